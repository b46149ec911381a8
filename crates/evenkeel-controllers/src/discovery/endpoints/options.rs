//! Command-line options of the controller.

use crate::options::Flags;
use std::time::Duration;

/// Options of the Endpoints controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of Services that are processed concurrently. Flag `--concurrent-endpoint-syncs`. Default: 5.
    pub concurrent_syncs: usize,
    /// Time within which changes of a Service's pods lead to one reconciliation. Flag
    /// `--endpoint-updates-batch-period`. Default: 0.
    pub batch_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 5, batch_period: Duration::ZERO }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self {
            concurrent_syncs: flags.positive("concurrent-endpoint-syncs"),
            batch_period: flags.duration("endpoint-updates-batch-period"),
        }
    }
}
