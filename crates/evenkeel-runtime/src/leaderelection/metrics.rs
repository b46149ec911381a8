//! Metrics of leader election, with upstream's names.

use crate::metrics::{counters, int_gauges};
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

/// Metrics `leader_election_master_status{name}` and `leader_election_slowpath_total{name}`.
#[derive(Clone)]
pub struct Metrics {
    pub(super) master: IntGaugeVec,
    pub(super) slowpath: IntCounterVec,
}

impl Metrics {
    /// Registers the metrics. Call it once for each registry.
    pub fn register(registry: &Registry) -> Self {
        let labels = &["name"];
        Self {
            master: int_gauges(
                registry,
                "leader_election_master_status",
                "1 while this process holds the lease of that name, 0 while it stands by.",
                labels,
            ),
            slowpath: counters(
                registry,
                "leader_election_slowpath_total",
                "Renewals of a lease that had to read it first.",
                labels,
            ),
        }
    }
}
