//! The life of one pod on a simulated node: what is looked at, what is remembered, what is decided, how it is written.

pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod status;

#[cfg(test)]
mod tests;
