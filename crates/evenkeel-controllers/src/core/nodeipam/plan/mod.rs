//! What is decided about ranges.

pub(super) mod allocator;
pub(super) mod config;
pub(super) mod set;
