//! What the controller can be told.

use crate::options::Flags;

/// Options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many DaemonSets are worked on at the same time; `--concurrent-daemonset-syncs`.
    pub concurrent_syncs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 2 }
    }
}

impl Options {
    /// What the flags say.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self { concurrent_syncs: flags.workers("concurrent-daemonset-syncs") }
    }
}
