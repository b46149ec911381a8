//! Command-line options of the controller.

use crate::options::Flags;
use std::time::Duration;

/// Options of the EndpointSlice mirroring controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of Endpoints that are reconciled concurrently. Flag `--mirroring-concurrent-service-endpoint-syncs`.
    /// Default: 5.
    pub concurrent_syncs: usize,
    /// Time within which other clients' changes of slices lead to a single reconciliation. Flag
    /// `--mirroring-endpointslice-updates-batch-period`. Default: 0.
    pub batch_period: Duration,
    /// Maximum number of addresses that are mirrored for each subset. Flag `--mirroring-max-endpoints-per-subset`.
    /// Default: 1000.
    pub max_endpoints_per_subset: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 5, batch_period: Duration::ZERO, max_endpoints_per_subset: 1000 }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self {
            concurrent_syncs: flags.positive("mirroring-concurrent-service-endpoint-syncs"),
            batch_period: flags.duration("mirroring-endpointslice-updates-batch-period"),
            max_endpoints_per_subset: flags.positive("mirroring-max-endpoints-per-subset"),
        }
    }
}
