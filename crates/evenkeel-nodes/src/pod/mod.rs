//! Lifecycle of a pod on a simulated node: its facts and memory, from which the plan and the status follow.

pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod status;

#[cfg(test)]
mod tests;
