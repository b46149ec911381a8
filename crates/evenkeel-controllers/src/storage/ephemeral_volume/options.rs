//! What the controller can be told.

use crate::options::Flags;

/// Options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many pods are looked at at the same time; `--concurrent-ephemeralvolume-syncs`.
    pub concurrent_syncs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 5 }
    }
}

impl Options {
    /// What the flags say.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self { concurrent_syncs: flags.workers("concurrent-ephemeralvolume-syncs") }
    }
}
