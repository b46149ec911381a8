//! The monitor: periodic passes over all nodes, and the I/O around [`super::plan`]. Upstream: `monitorNodeHealth`,
//! `doNoExecuteTaintingPass`.
//!
//! The monitor does not use the queue of the runtime, because one pass covers all nodes. The zones' states depend on the health
//! of every node, which live reads and writes change within the pass. The zones' rate limiters, not events, decide
//! when a node is tainted. [`super::plan`] makes the decisions.

use super::{
    DESCRIPTOR, Heartbeats, Options, SharedState,
    metrics::Metrics,
    plan::{
        health::{self, Moment, NodeHealth, Ready},
        no_execute::{self, TaintAction},
        pods, unreachable,
        zones::{self, DisruptionChange, NodeCounts},
    },
    state::{NodeRecord, State},
};
use crate::{wire, wiring::descriptor::ControllerContext};
use bytes::Bytes;
use evenkeel_api::{
    Encoding, Text, View,
    views::{Lease, Node, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, Index},
    client::{ApiError, Client, Metadata},
    clock::Clock,
    controller::Periodic,
    events::EventRecorder,
    plan::{EventRecord, PatchType, Target},
};
use futures::StreamExt;
use http::{Request, header::ACCEPT};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Namespace of the leases that kubelets renew. Upstream: `NamespaceNodeLease`.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Number of nodes whose health is updated concurrently. Upstream: `UpdateWorkerSize`.
const UPDATE_WORKERS: usize = 8;

/// Maximum number of attempts to write a node's status or taints. Upstream: `NodeHealthUpdateRetry`.
const MAX_ATTEMPTS: usize = 5;
/// Delay after a failed write of a node's status. Upstream: `retrySleepTime`.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// The monitor's caches, clients and state.
pub(super) struct Monitor {
    pub(super) nodes: Cache<Node>,
    pub(super) leases: Cache<Lease>,
    pub(super) pods: Cache<Pod>,
    /// Pods by the name of their node.
    pub(super) pods_by_node: Index<Pod>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) events: EventRecorder,
    pub(super) options: Options,
    pub(super) heartbeats: Heartbeats,
    pub(super) state: SharedState,
    pub(super) metrics: Metrics,
    /// Whether a live read of the lease confirms that a node is unreachable (gate `NodeControllerLeaseCircuitBreaker`).
    pub(super) confirms_with_live_lease: bool,
}

/// Error in updating the health of a node.
#[derive(Debug, thiserror::Error)]
enum HealthError {
    /// A request failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// The cached leases are too old to prove anything about nodes.
    #[error("the lease cache is at resource version {cached}, behind {live}")]
    LeaseCacheBehind { cached: u64, live: u64 },
}

impl Monitor {
    /// Starts the passes: one over the health of all nodes in each period, and one over the nodes to taint whenever a
    /// node is due.
    pub(super) fn start(self, context: &ControllerContext) {
        let passes = Periodic::new(&context.env, DESCRIPTOR.name);
        let passes = passes.reads(&self.nodes).reads(&self.leases).reads(&self.pods);
        let this = Arc::new(self);
        passes.start(&context.tasks, move || {
            let this = Arc::clone(&this);
            async move { this.pass().await }
        });
    }

    /// Runs the passes that are due, and returns the time to the next one.
    async fn pass(&self) -> Duration {
        let now = self.state.now().steady;
        let scheduled = self.state.lock().next_health_pass;
        // The first pass is due immediately.
        let next_health_pass = match scheduled {
            Some(time) if now < time => time,
            _ => {
                self.monitor_node_health().await;
                let time = self.state.now().steady + to_signed(self.options.monitor_period);
                self.state.lock().next_health_pass = Some(time);
                time
            }
        };
        self.do_no_execute_tainting_pass().await;
        let now = self.state.now().steady;
        let next_taint = self.state.lock().zones.next_due(now);
        let next_pass = next_taint.map_or(next_health_pass, |time| time.min(next_health_pass));
        // A node can still be due here only if its taint failed. The wait delays the next attempt.
        let wait = Duration::try_from(next_pass - now).unwrap_or_default();
        wait.max(Duration::from_millis(1))
    }

    /// Checks the health of all nodes. Upstream: `monitorNodeHealth`.
    async fn monitor_node_health(&self) {
        let began_at = self.clock.instant();
        if let Err(error) = self.check_lease_cache_version() {
            tracing::info!(%error, "Skipping the pass over nodes until the lease cache is up to date");
            return;
        }
        let mut nodes = self.nodes.list();
        nodes.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        self.classify_nodes(&nodes);
        futures::stream::iter(nodes.iter().cloned())
            .for_each_concurrent(UPDATE_WORKERS, |node| async move {
                self.update_node_health(&node).await;
            })
            .await;
        self.handle_disruption(&nodes).await;
        self.metrics.all_nodes_seconds.observe(began_at.elapsed().as_secs_f64());
    }

    /// Registers new nodes and removes deleted ones. Upstream: `classifyNodes`.
    ///
    /// Upstream removes both `NoExecute` taints from each node that is new to it, so from all nodes at each start. A node that
    /// is not ready then waits for the zone's rate limiter, in a partially disrupted zone possibly without a time limit. Here
    /// the taint stays until the node's condition changes ([`no_execute::taint_action`]), because a restart or a new leader
    /// does not show that a node is healthy.
    fn classify_nodes(&self, nodes: &[Arc<Node>]) {
        let now = self.state.now();
        let mut state = self.state.lock();
        let State { nodes: records, zones, .. } = &mut *state;
        let existing: BTreeMap<&str, &Node> =
            nodes.iter().map(|node| (&*node.meta.name, &**node)).collect();
        records.retain(|name, record| {
            let stays = existing.get(&**name).is_some_and(|node| node.meta.uid == record.uid);
            if !stays {
                self.record_event(
                    name,
                    &record.uid,
                    "RemovingNode",
                    &format!("Removing Node {name} from Controller"),
                );
                zones.dequeue(name);
            }
            stays
        });
        for node in nodes {
            let name = &*node.meta.name;
            let zone = zones::zone_key(&node.meta.labels);
            if zones.add(&zone, &self.options, now.steady) {
                // This creates the zone's counter, at zero.
                self.metrics.evictions.with_label_values(&[&*zone]);
            }
            if let Some(record) = records.get_mut(name) {
                if record.zone != zone {
                    zones.dequeue(name);
                    record.zone = zone;
                }
                continue;
            }
            self.record_event(
                name,
                &node.meta.uid,
                "RegisteredNode",
                &format!("Registered Node {name} in Controller"),
            );
            // An earlier process may have set the node's conditions and stopped before it marked the pods as not
            // ready.
            let pods_to_mark = health::ready_status(node) == Some(Ready::Unknown);
            let new = NodeRecord {
                uid: node.meta.uid.clone(),
                zone,
                health: None,
                pods_to_mark,
                rejected_patch: None,
            };
            records.insert(name.into(), new);
        }
    }

    /// Records a normal event about a node.
    fn record_event(&self, name: &str, uid: &str, reason: &'static str, message: &str) {
        let node = Target::new(Node::kind(), "", name, uid);
        self.events.record(&EventRecord::normal(
            node,
            reason,
            format!("Node {name} event: {message}"),
        ));
    }

    /// Updates the recorded health of a node from its status and lease.
    fn observe_health(&self, node: &Node, lease: Option<&Lease>) -> NodeHealth {
        let (now, is_alive) = (self.state.now(), self.heartbeats.come_from(node));
        self.state.lock().observe_health(node, lease, is_alive, now)
    }

    /// Updates the health of a node, and logs an error.
    async fn update_node_health(&self, node: &Node) {
        let began_at = self.clock.instant();
        if let Err(error) = self.try_update_node_health(node).await {
            tracing::warn!(node = &*node.meta.name, %error, "Failed to update the health of the node; its pods are not evicted");
        }
        self.metrics.node_seconds.observe(began_at.elapsed().as_secs_f64());
    }

    /// Updates the health of a node, its taints and its pods. Upstream: `tryUpdateNodeHealth`.
    async fn try_update_node_health(&self, node: &Node) -> Result<(), HealthError> {
        // The check of another node in this pass may have shown that the cache is stale.
        self.check_lease_cache_version()?;
        let name = &*node.meta.name;
        let lease = self.leases.get(LEASE_NAMESPACE, name);
        let health = self.observe_health(node, lease.as_deref());
        let overdue = health.is_grace_period_over(&self.options, self.state.now());
        let ready = if overdue && health.ready != Some(Ready::Unknown) {
            self.mark_unreachable(name, lease.as_deref()).await?
        } else {
            health.ready
        };
        self.process_taint_based_eviction(node, ready).await;
        let pods_to_mark =
            self.state.lock().nodes.get(name).is_some_and(|record| record.pods_to_mark);
        if pods_to_mark {
            let needs_retry = ready != Some(Ready::Yes) && !self.mark_pods_not_ready(name).await;
            self.state.lock().update_record(name, |record| record.pods_to_mark = needs_retry);
        }
        Ok(())
    }

    /// Sets the kubelet's conditions of an unreachable node to `Unknown`, with retries. Returns the resulting
    /// status of `Ready`.
    async fn mark_unreachable(
        &self,
        name: &str,
        lease: Option<&Lease>,
    ) -> Result<Option<Ready>, HealthError> {
        let mut attempts = 1;
        loop {
            match self.try_mark_unreachable(name, lease).await {
                Err(HealthError::Api(error))
                    if !error.is_not_found() && attempts < MAX_ATTEMPTS =>
                {
                    tracing::debug!(node = name, %error, "Failed to write the status of the node; retrying");
                    attempts += 1;
                    self.clock.sleep(RETRY_DELAY).await;
                }
                result => return result,
            }
        }
    }

    /// Sets the conditions of a node to `Unknown` if a live read confirms that its grace period is over.
    async fn try_mark_unreachable(
        &self,
        name: &str,
        lease: Option<&Lease>,
    ) -> Result<Option<Ready>, HealthError> {
        let mut live: LiveObject<Node> = read_live(&self.client, "", name).await?;
        // The live node or lease may be newer than the cache.
        let health = self.observe_health(&live.view, lease);
        let ready_before = health.ready;
        if !health.is_grace_period_over(&self.options, self.state.now())
            || ready_before == Some(Ready::Unknown)
        {
            return Ok(ready_before);
        }
        if self.confirms_with_live_lease {
            self.check_live_lease(name, lease).await?;
        }
        unreachable::mark_unknown(&mut live.object, self.clock.now());
        // Record this before the write: the write may succeed although its response is lost.
        self.state
            .lock()
            .update_record(name, |record| record.pods_to_mark |= ready_before == Some(Ready::Yes));
        live.put_status(&self.client).await?;
        self.state.lock().update_record(name, NodeRecord::set_unreachable);
        tracing::info!(node = name, "Node is unreachable; set its conditions to Unknown");
        if ready_before == Some(Ready::Yes) {
            let message = format!("Node {name} status is now: NodeNotReady");
            self.events.record(&EventRecord::normal(
                wire::target(&live.view),
                "NodeNotReady",
                message,
            ));
        }
        Ok(Some(Ready::Unknown))
    }

    /// Fails while the lease cache is older than a lease that was read live. Until the cache catches up, a cached
    /// lease proves nothing about its node. Upstream: `EnsureReady`.
    fn check_lease_cache_version(&self) -> Result<(), HealthError> {
        let cached = self.leases.version();
        match self.state.lock().update_pending_lease_version(cached) {
            Some(live) => Err(HealthError::LeaseCacheBehind { cached, live }),
            None => Ok(()),
        }
    }

    /// Fails if the live lease cannot be read, or differs from the cached one.
    async fn check_live_lease(&self, name: &str, lease: Option<&Lease>) -> Result<(), HealthError> {
        let live = match self.client.get::<Lease>(LEASE_NAMESPACE, name).await {
            Err(error) if error.is_not_found() => return Ok(()),
            result => result?.meta.version(),
        };
        let cached = lease.map_or(0, |lease| lease.meta.version());
        if live == cached {
            return Ok(());
        }
        self.state.lock().await_lease_version(live);
        Err(HealthError::LeaseCacheBehind { cached, live })
    }

    /// Taints a node immediately, or enqueues it in its zone. Upstream: `processTaintBaseEviction`.
    async fn process_taint_based_eviction(&self, node: &Node, ready: Option<Ready>) {
        let name = &*node.meta.name;
        let now = self.state.now().steady;
        if self.state.lock().has_rejected_patch(node, now) {
            return;
        }
        match no_execute::taint_action(node, ready) {
            TaintAction::RateLimited => {
                let mut state = self.state.lock();
                let State { nodes, zones, .. } = &mut *state;
                if let Some(record) = nodes.get(name) {
                    zones.enqueue(&record.zone, name);
                }
            }
            TaintAction::None => self.state.lock().zones.dequeue(name),
            TaintAction::Immediate => {
                self.state.lock().zones.dequeue(name);
                if let Err(error) = self.sync_no_execute_taint(name).await {
                    tracing::warn!(node = name, %error, "Failed to write the taints of the node");
                }
            }
        }
    }

    /// Patches the node's `NoExecute` taint so that it agrees with the live condition `Ready`. Returns whether the
    /// taints changed.
    async fn sync_no_execute_taint(&self, name: &str) -> Result<bool, ApiError> {
        self.patch_taints(name, |node| no_execute::taints_patch(node, self.clock.now())).await
    }

    /// Patches the taints of the live node. After a conflict, reads the node and calls `patch` again. Returns whether
    /// the taints changed.
    async fn patch_taints(
        &self,
        name: &str,
        patch: impl Fn(&Node) -> Option<String>,
    ) -> Result<bool, ApiError> {
        let mut attempts = 1;
        loop {
            match self.try_patch_taints(name, &patch).await {
                Err(error) if error.is_conflict() && attempts < MAX_ATTEMPTS => attempts += 1,
                result => return result,
            }
        }
    }

    /// Reads the node live and patches its taints. Returns whether it sent a patch.
    async fn try_patch_taints(
        &self,
        name: &str,
        patch: impl Fn(&Node) -> Option<String>,
    ) -> Result<bool, ApiError> {
        let node: Node = match self.client.get("", name).await {
            Err(error) if error.is_not_found() => return Ok(false),
            node => node?,
        };
        let Some(body) = patch(&node) else { return Ok(false) };
        let kind = Node::kind();
        let form = PatchType::Strategic;
        let result = self.client.patch::<Metadata>(&kind, "", name, "", form, body.into()).await;
        if result.as_ref().is_err_and(ApiError::is_invalid) {
            let now = self.state.now().steady;
            self.state.lock().record_rejected_patch(&node, now);
        }
        result.map(|_| true)
    }

    /// Taints the nodes that the rate limiters of the zones release. Upstream: `doNoExecuteTaintingPass`.
    async fn do_no_execute_tainting_pass(&self) {
        let due = self.state.lock().zones.take_due(self.state.now().steady);
        for name in due {
            // Decide from a live read, because the cache may not have the written status yet.
            match self.sync_no_execute_taint(&name).await {
                Ok(true) => {
                    let zone = self.state.lock().nodes.get(&name).map(|record| record.zone.clone());
                    self.metrics.evictions.with_label_values(&[&*zone.unwrap_or_default()]).inc();
                }
                Ok(false) => {}
                // The next pass over all nodes enqueues the node again.
                Err(error) => tracing::warn!(node = &*name, %error, "Failed to taint the node"),
            }
        }
    }

    /// Marks all pods of the node as not ready. Returns whether all succeeded. Upstream: `MarkPodsNotReady`.
    async fn mark_pods_not_ready(&self, node: &str) -> bool {
        let mut all_marked = true;
        for pod in self.pods_by_node.get(node) {
            if let Err(error) =
                mark_pod_not_ready(&self.client, &self.events, &self.clock, &pod).await
            {
                let namespace = &*pod.meta.namespace;
                let name = &*pod.meta.name;
                tracing::warn!(node, namespace, name, %error, "Failed to mark the pod as not ready");
                all_marked = false;
            }
        }
        all_marked
    }

    /// Counts the ready nodes of each zone, and updates the zones' states and rate limiters. Upstream:
    /// `handleDisruption`.
    async fn handle_disruption(&self, nodes: &[Arc<Node>]) {
        let change = {
            let now = self.state.now();
            let mut state = self.state.lock();
            let State { nodes: records, zones, .. } = &mut *state;
            let mut counts: BTreeMap<Text, NodeCounts> = BTreeMap::new();
            for node in nodes {
                let Some(record) = records.get(&node.meta.name) else { continue };
                // A zone whose nodes are all excluded counts none, but exists.
                let count = counts.entry(record.zone.clone()).or_default();
                if !zones::counts_for_disruption(node) {
                    continue;
                }
                match record.health.and_then(|health| health.ready) {
                    Some(Ready::Yes) => count.ready += 1,
                    _ => count.not_ready += 1,
                }
            }
            for removed in zones.remove_empty(|zone| counts.contains_key(zone)) {
                self.set_zone_gauges(&removed, NodeCounts::default());
            }
            counts.iter().for_each(|(zone, count)| self.set_zone_gauges(zone, *count));
            let change = zones.handle_disruption(&counts, &self.options, now.steady);
            if change == DisruptionChange::LeftFullDisruption {
                for health in records.values_mut().filter_map(|record| record.health.as_mut()) {
                    health.probe_time = now.steady;
                }
            }
            change
        };
        match change {
            DisruptionChange::None => {}
            DisruptionChange::LeftFullDisruption => tracing::info!(
                "Controller detected that some Nodes are Ready. Exiting master disruption mode"
            ),
            DisruptionChange::EnteredFullDisruption => {
                tracing::info!(
                    "Controller detected that all Nodes are not-Ready. Entering master disruption mode"
                );
                self.mark_all_reachable(nodes).await;
            }
        }
    }

    /// Removes the taints of all nodes during a full disruption. Upstream: `markNodeAsReachable`.
    async fn mark_all_reachable(&self, nodes: &[Arc<Node>]) {
        for node in nodes.iter().filter(|node| no_execute::reachable_patch(node).is_some()) {
            let name = &*node.meta.name;
            // A failed patch is not repeated before the full disruption ends.
            if let Err(error) = self.patch_taints(name, no_execute::reachable_patch).await {
                tracing::warn!(node = name, %error, "Failed to remove the taints of the node");
            }
        }
    }

    fn set_zone_gauges(&self, zone: &str, count: NodeCounts) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
        let float = |count: usize| count as f64;
        self.metrics.zone_size.with_label_values(&[zone]).set(float(count.total()));
        self.metrics.zone_health.with_label_values(&[zone]).set(count.percent_ready());
        self.metrics.unhealthy_nodes.with_label_values(&[zone]).set(float(count.not_ready));
    }
}

/// Sets a pod's condition `Ready` to `False` if it is `True`, and records the event `NodeNotReady`. Upstream:
/// `MarkPodsNotReady`.
async fn mark_pod_not_ready(
    client: &Client,
    events: &EventRecorder,
    clock: &Clock,
    pod: &Pod,
) -> Result<(), ApiError> {
    if !pods::claims_ready(pod) {
        return Ok(());
    }
    let meta = &pod.meta;
    let mut live: LiveObject<Pod> = match read_live(client, &meta.namespace, &meta.name).await {
        Err(error) if error.is_not_found() => return Ok(()),
        live => live?,
    };
    if !pods::mark_not_ready(&mut live.object, &meta.uid, clock.now()) {
        return Ok(());
    }
    match live.put_status(client).await {
        Err(error) if error.is_not_found() => return Ok(()),
        result => drop(result?),
    }
    events.record(&pods::node_not_ready_event(pod));
    Ok(())
}

/// Converts a duration. A duration that is too long becomes the maximum.
fn to_signed(duration: Duration) -> Moment {
    Moment::try_from(duration).unwrap_or(Moment::MAX)
}

/// An object read live as JSON, and its lean view. Writes send the changed JSON, which has the fields that the view
/// lacks.
struct LiveObject<V> {
    object: Value,
    view: V,
}

/// Reads one object live.
async fn read_live<V: View>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<LiveObject<V>, ApiError> {
    let path = format!("{}/{name}", V::kind().path(namespace));
    let request_error =
        |reason: String| ApiError::Request { path: path.as_str().into(), reason: reason.into() };
    let request = Request::get(&path).header(ACCEPT, "application/json").body(Bytes::new());
    let result = client.raw(request.map_err(|error| request_error(error.to_string()))?).await?;
    let object =
        serde_json::from_slice(result.body()).map_err(|error| request_error(error.to_string()))?;
    let view = V::decode(result.body(), Encoding::Json);
    Ok(LiveObject { object, view: view.map_err(|error| request_error(error.to_string()))? })
}

impl<V: View> LiveObject<V> {
    /// Writes the status, with the resource version that was read as precondition.
    async fn put_status(&self, client: &Client) -> Result<Metadata, ApiError> {
        let kind = V::kind();
        let meta = self.view.meta();
        let body = Bytes::from(self.object.to_string());
        client.update(&kind, &meta.namespace, &meta.name, "status", body).await
    }
}
