//! What the controller of claims can be told.

use crate::options::Flags;

/// What the controller can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many pods, and how many claims, are worked on at the same time; `--concurrent-resourceclaim-syncs`.
    pub concurrent_syncs: usize,
}

impl Options {
    /// What the flags say.
    pub fn read(flags: &dyn Flags) -> Self {
        Self { concurrent_syncs: flags.workers("concurrent-resourceclaim-syncs") }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 50 }
    }
}
