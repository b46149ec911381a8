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
    node_sync_seconds: Histogram,
    /// Current measurement; `None` if all load balancers are up to date.
    node_sync: Mutex<Option<NodeSync>>,
}

/// Load balancers that still need an update after a change of nodes.
struct NodeSync {
    /// Time of the node change.
    since: Instant,
    /// Services whose load balancers need the update.
    pending: HashSet<Key>,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(format!("service_controller_{name}"), help);
            register(registry, counter.expect("the name is valid"))
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
                "Failed updates of load balancers after node changes.",
            ),
            update_seconds: seconds(
                "update_loadbalancer_host_latency_seconds",
                "Seconds to update the nodes of one load balancer.",
            ),
            node_sync_seconds: seconds(
                "nodesync_latency_seconds",
                "Seconds from a node change until all load balancers are updated.",
            ),
            node_sync: Mutex::new(None),
        }
    }

    /// Starts the measurement for the load balancers that need an update after a change of nodes. An unfinished
    /// measurement keeps its start.
    pub(super) fn start_node_sync(&self, keys: &[Key], now: Instant) {
        let mut node_sync = self.node_sync.lock().unwrap_or_else(PoisonError::into_inner);
        let since = node_sync.as_ref().map_or(now, |node_sync| node_sync.since);
        *node_sync =
            (!keys.is_empty()).then(|| NodeSync { since, pending: keys.iter().cloned().collect() });
    }

    /// Records that a sync of a service has ended, with or without success. After the last pending one, observes the
    /// seconds since the change of nodes.
    pub(super) fn record_end_of_sync(&self, key: &Key) {
        let mut node_sync = self.node_sync.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(current) = node_sync.as_mut() else { return };
        current.pending.remove(key);
        if current.pending.is_empty() {
            self.node_sync_seconds.observe(current.since.elapsed().as_secs_f64());
            *node_sync = None;
        }
    }
}
