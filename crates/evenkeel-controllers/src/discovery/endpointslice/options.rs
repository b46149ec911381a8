//! Command-line options of the controller.

use crate::options::Flags;
use std::time::Duration;

/// Options of the controller of EndpointSlices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of Services processed concurrently; `--concurrent-service-endpoint-syncs`.
    pub concurrent_syncs: usize,
    /// What happens to a Service's pods within this time is one pass; `--endpointslice-updates-batch-period`.
    pub batch_period: Duration,
    /// The most endpoints that a slice has; `--max-endpoints-per-slice`.
    pub max_endpoints: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 5, batch_period: Duration::ZERO, max_endpoints: 100 }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self {
            concurrent_syncs: flags.workers("concurrent-service-endpoint-syncs"),
            batch_period: flags.duration("endpointslice-updates-batch-period"),
            max_endpoints: flags.workers("max-endpoints-per-slice"),
        }
    }
}
