//! Metrics of the service controller, under upstream's names.

use evenkeel_runtime::{
    metrics::{exponential, histogram, register},
    plan::Key,
};
use prometheus::{Histogram, IntCounter, Registry};
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};
use tokio::time::Instant;

/// Metrics `service_controller_…` of the service controller.
pub(super) struct Metrics {
    /// Updates of load balancers after node changes.
    pub(super) syncs: IntCounter,
    /// Failed updates of load balancers after node changes.
    pub(super) sync_errors: IntCounter,
    /// Seconds of each update.
    pub(super) update_seconds: Histogram,
    /// Seconds from a node change to the update of the last load balancer.
    sweep_seconds: Histogram,
    /// Current measurement; `None` if all load balancers are up to date.
    sweep: Mutex<Option<Sweep>>,
}

/// Load balancers that still need an update after a change of nodes.
struct Sweep {
    /// Time of the node change.
    since: Instant,
    /// Services whose load balancers need the update.
    pending: HashSet<Key>,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(format!("service_controller_{name}"), help);
            register(registry, counter.expect("a name that is fixed"))
        };
        let seconds = |name: &str, help: &str| {
            let name = format!("service_controller_{name}");
            histogram(registry, &name, help, &exponential(1.0, 2.0, 15))
        };
        Self {
            syncs: counter(
                "loadbalancer_sync_total",
                "Updates of load balancers after node changes.",
            ),
            sync_errors: counter(
                "nodesync_error_total",
                "Load balancers that refused other nodes.",
            ),
            update_seconds: seconds(
                "update_loadbalancer_host_latency_seconds",
                "Seconds that one load balancer took to hear of other nodes.",
            ),
            sweep_seconds: seconds(
                "nodesync_latency_seconds",
                "Seconds until all load balancers had heard of other nodes.",
            ),
            sweep: Mutex::new(None),
        }
    }

    /// Starts the measurement for the load balancers that need an update after a change of nodes. An unfinished
    /// measurement keeps its start.
    pub(super) fn begin_sweep(&self, keys: &[Key], now: Instant) {
        let mut sweep = self.sweep.lock().unwrap_or_else(PoisonError::into_inner);
        let since = sweep.as_ref().map_or(now, |sweep| sweep.since);
        *sweep =
            (!keys.is_empty()).then(|| Sweep { since, pending: keys.iter().cloned().collect() });
    }

    /// Records that a sync of a service has ended, with or without success. After the last one, observes the
    /// seconds since the change of nodes.
    pub(super) fn synced(&self, key: &Key) {
        let mut sweep = self.sweep.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(current) = sweep.as_mut() else { return };
        current.pending.remove(key);
        if current.pending.is_empty() {
            self.sweep_seconds.observe(current.since.elapsed().as_secs_f64());
            *sweep = None;
        }
    }
}
