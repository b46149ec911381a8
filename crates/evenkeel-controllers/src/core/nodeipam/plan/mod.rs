//! Allocation of pod CIDRs, as pure functions.

pub(super) mod allocator;
pub(super) mod assign;
pub(super) mod config;
pub(super) mod set;
