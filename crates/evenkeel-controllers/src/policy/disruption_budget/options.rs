//! What the controller of disruption budgets can be told.

use crate::options::Flags;

/// What the controller can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many budgets are worked on at the same time; `--concurrent-disruption-syncs`.
    pub concurrent_syncs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 1 }
    }
}

impl Options {
    /// What the flags say.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self { concurrent_syncs: flags.workers("concurrent-disruption-syncs") }
    }
}
