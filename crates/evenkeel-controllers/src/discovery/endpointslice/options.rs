//! Command-line options of the controller.

use crate::options::Flags;
use std::time::Duration;

/// Options of the EndpointSlice controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of Services that are processed concurrently. Flag `--concurrent-service-endpoint-syncs`. Default: 5.
    pub concurrent_syncs: usize,
    /// Time within which changes of a Service's pods lead to one reconciliation. Flag
    /// `--endpointslice-updates-batch-period`. Default: 0.
    pub batch_period: Duration,
    /// Maximum number of endpoints in a slice. Flag `--max-endpoints-per-slice`. Default: 100.
    pub max_endpoints_per_slice: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 5, batch_period: Duration::ZERO, max_endpoints_per_slice: 100 }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self {
            concurrent_syncs: flags.positive("concurrent-service-endpoint-syncs"),
            batch_period: flags.duration("endpointslice-updates-batch-period"),
            max_endpoints_per_slice: flags.positive("max-endpoints-per-slice"),
        }
    }
}
