//! What the controller can be told.

/// Options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many Jobs are worked on at the same time; `--concurrent-job-syncs`.
    pub concurrent_syncs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 5 }
    }
}
