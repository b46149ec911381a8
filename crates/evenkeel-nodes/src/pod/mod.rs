//! Lifecycle of a pod on a simulated node. The plan and the status are computed from facts (inputs that are read from objects)
//! and memory (the state of earlier syncs).

pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod status;

#[cfg(test)]
mod tests;
