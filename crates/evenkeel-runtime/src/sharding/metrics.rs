//! Metrics of sharding.

use crate::metrics::{counters, int_gauges};
use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

/// Metrics `sharding_shards{name}`, and `sharding_transitions_total{name,transition}` with the transitions `acquired`,
/// `released` and `lost`.
pub(super) struct Metrics {
    held: IntGauge,
    acquired: IntCounter,
    released: IntCounter,
    lost: IntCounter,
}

impl Metrics {
    pub(super) fn register(registry: &Registry, id: &str) -> Self {
        let held = int_gauges(
            registry,
            "sharding_shards",
            "Shards that this process holds, of the operator of that name.",
            &["name"],
        );
        let transitions: IntCounterVec = counters(
            registry,
            "sharding_transitions_total",
            "Shards that this process acquired, released in a hand-over, or lost with its lease.",
            &["name", "transition"],
        );
        let counter = |transition: &str| transitions.with_label_values(&[id, transition]);
        let (acquired, released, lost) =
            (counter("acquired"), counter("released"), counter("lost"));
        Self { held: held.with_label_values(&[id]), acquired, released, lost }
    }

    pub(super) fn record_acquisition(&self) {
        self.acquired.inc();
        self.held.inc();
    }

    pub(super) fn record_release(&self) {
        self.released.inc();
        self.held.dec();
    }

    pub(super) fn record_loss(&self, n: usize) {
        self.lost.inc_by(n as u64);
        self.held.sub(i64::try_from(n).unwrap_or(i64::MAX));
    }
}
