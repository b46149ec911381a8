//! The garbage collector: deletes what its owners left behind.

mod absent;
mod graph;
#[cfg(test)]
mod model;
mod plan;
