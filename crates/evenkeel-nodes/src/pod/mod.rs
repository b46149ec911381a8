//! Lifecycle of a pod on a simulated node: facts, memory, plan, status.

pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod status;

#[cfg(test)]
mod tests;
