//! The monitor: periodic passes over all nodes, and the I/O around [`super::plan`]. Upstream: `monitorNodeHealth`,
//! `doNoExecuteTaintingPass`.
//!
//! The monitor is a shell of its own, because a pass covers all nodes at once. The zones' states depend on the health
//! of every node, which live reads and writes change within the pass. The zones' rate limiters, not events, decide
//! when a node is tainted. [`super::plan`] makes the decisions.

use super::{
    DESCRIPTOR, MonitorState, Options,
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
    plan::{EventRecord, PatchForm, Target},
};
use futures::StreamExt;
use http::{Request, header::ACCEPT};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Namespace of the leases that kubelets renew. Upstream: `NamespaceNodeLease`.
const LEASES: &str = "kube-node-lease";

/// Nodes processed concurrently. Upstream: `UpdateWorkerSize`.
const WORKERS: usize = 8;

/// Attempts to write a node's status, and the interval between them. Upstream: `NodeHealthUpdateRetry`,
/// `retrySleepTime`.
const MAX_ATTEMPTS: usize = 5;
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The monitor's caches, clients and state.
pub(super) struct Monitor {
    pub(super) nodes: Cache<Node>,
    pub(super) leases: Cache<Lease>,
    pub(super) pods: Cache<Pod>,
    pub(super) on_node: Index<Pod>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) events: EventRecorder,
    pub(super) options: Options,
    pub(super) memory: MonitorState,
    pub(super) metrics: Metrics,
    /// Whether a live read of the lease confirms that a node is unreachable (gate `NodeControllerLeaseCircuitBreaker`).
    pub(super) checks_leases: bool,
}

/// Error in updating the health of a node.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("the lease cache is at resource version {seen}, behind {live}")]
    LeaseCacheBehind { seen: u64, live: u64 },
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
        let now = self.memory.now().steady;
        let next = self.memory.lock().next_health_pass.filter(|next| now < *next);
        let next = match next {
            Some(next) => next,
            None => {
                self.monitor_node_health().await;
                let next = self.memory.now().steady + signed(self.options.monitor_period);
                self.memory.lock().next_health_pass = Some(next);
                next
            }
        };
        self.do_no_execute_tainting_pass().await;
        let now = self.memory.now().steady;
        let due = self.memory.lock().zones.next_ready(now).map_or(next, |due| due.min(next));
        // A node is still due only if its taint failed: wait before the next attempt.
        let wait = Duration::try_from(due - now).unwrap_or_default();
        wait.max(Duration::from_millis(1))
    }

    async fn monitor_node_health(&self) {
        let began = self.clock.instant();
        if let Err(error) = self.check_lease_cache() {
            tracing::info!(%error, "Skipping the pass over nodes until the lease cache is up to date");
            return;
        }
        let mut nodes = self.nodes.list();
        nodes.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        self.classify_nodes(&nodes);
        futures::stream::iter(nodes.iter().cloned())
            .for_each_concurrent(
                WORKERS,
                |node| async move { self.update_node_health(&node).await },
            )
            .await;
        self.handle_disruption(&nodes).await;
        self.metrics.all_seconds.observe(began.elapsed().as_secs_f64());
    }

    /// Registers new nodes and removes deleted ones. Upstream: `classifyNodes`.
    ///
    /// Upstream removes both `NoExecute` taints from each node that is new to it, so from all nodes at each start. A
    /// node that is not ready then waits for the zone's rate limiter, in a partially disrupted zone perhaps for ever.
    /// Here the taint stays until the node's condition changes ([`no_execute::taint_action`]), because a restart or a
    /// new leader is no evidence about a node.
    fn classify_nodes(&self, nodes: &[Arc<Node>]) {
        let now = self.memory.now();
        let mut state = self.memory.lock();
        let State { nodes: known, zones, .. } = &mut *state;
        let existing: BTreeMap<&str, &Node> =
            nodes.iter().map(|node| (&*node.meta.name, &**node)).collect();
        known.retain(|name, known| {
            let stays = existing.get(&**name).is_some_and(|node| node.meta.uid == known.uid);
            if !stays {
                self.record_event(
                    name,
                    &known.uid,
                    "RemovingNode",
                    &format!("Removing Node {name} from Controller"),
                );
                zones.dequeue(name);
            }
            stays
        });
        for node in nodes {
            let (name, zone) = (&*node.meta.name, zones::zone_key(&node.meta.labels));
            if zones.add(&zone, &self.options, now.steady) {
                self.metrics.evictions.with_label_values(&[&*zone]);
            }
            if let Some(known) = known.get_mut(name) {
                if known.zone != zone {
                    zones.dequeue(name);
                    known.zone = zone;
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
            let pods_to_mark = health::ready(node) == Some(Ready::Unknown);
            let new = NodeRecord {
                uid: node.meta.uid.clone(),
                zone,
                health: None,
                pods_to_mark,
                rejected_patch: None,
            };
            known.insert(name.into(), new);
        }
    }

    fn record_event(&self, name: &str, uid: &str, reason: &'static str, message: &str) {
        let node = Target::new(Node::kind(), "", name, uid);
        self.events.record(&EventRecord::normal(
            node,
            reason,
            format!("Node {name} event: {message}"),
        ));
    }

    fn update_health(&self, node: &Node, lease: Option<&Lease>) -> NodeHealth {
        let now = self.memory.now();
        self.memory.lock().update_health(node, lease, now)
    }

    async fn update_node_health(&self, node: &Node) {
        let began = self.clock.instant();
        if let Err(error) = self.try_update_node_health(node).await {
            tracing::warn!(node = &*node.meta.name, %error, "Failed to update the health of the node; its pods are not evicted");
        }
        self.metrics.seconds.observe(began.elapsed().as_secs_f64());
    }

    async fn try_update_node_health(&self, node: &Node) -> Result<(), Failed> {
        // Another node of this pass may have shown that the cache is behind.
        self.check_lease_cache()?;
        let name = &*node.meta.name;
        let lease = self.leases.get(LEASES, name);
        let health = self.update_health(node, lease.as_deref());
        let overdue = health.is_grace_period_over(&self.options, self.memory.now());
        let ready = if overdue && health.ready != Some(Ready::Unknown) {
            self.mark_unreachable(name, lease.as_deref()).await?
        } else {
            health.ready
        };
        self.process_taint_based_eviction(node, ready).await;
        let must_mark = self.memory.lock().nodes.get(name).is_some_and(|known| known.pods_to_mark);
        if must_mark {
            let done = ready == Some(Ready::Yes) || self.mark_pods(name).await;
            self.memory.lock().change(name, |known| known.pods_to_mark = !done);
        }
        Ok(())
    }

    /// Sets the kubelet's conditions of an unreachable node to `Unknown`, with retries. Returns the resulting
    /// status of `Ready`.
    async fn mark_unreachable(
        &self,
        name: &str,
        lease: Option<&Lease>,
    ) -> Result<Option<Ready>, Failed> {
        let mut tries = 1;
        loop {
            match self.try_mark_unreachable(name, lease).await {
                Err(Failed::Api(error)) if !error.is_not_found() && tries < MAX_ATTEMPTS => {
                    tracing::debug!(node = name, %error, "Failed to write the status of the node; retrying");
                    tries += 1;
                    self.clock.sleep(RETRY_INTERVAL).await;
                }
                answer => return answer,
            }
        }
    }

    async fn try_mark_unreachable(
        &self,
        name: &str,
        lease: Option<&Lease>,
    ) -> Result<Option<Ready>, Failed> {
        let mut live: Live<Node> = read_live(&self.client, "", name).await?;
        // The live node or lease may be newer than the cache.
        let health = self.update_health(&live.view, lease);
        let was = health.ready;
        if !health.is_grace_period_over(&self.options, self.memory.now())
            || was == Some(Ready::Unknown)
        {
            return Ok(was);
        }
        if self.checks_leases {
            self.check_lease(name, lease).await?;
        }
        unreachable::mark_unknown(&mut live.object, self.clock.now());
        // Record this before the write: the write may succeed although its response is lost.
        self.memory.lock().change(name, |known| known.pods_to_mark |= was == Some(Ready::Yes));
        live.put_status(&self.client).await?;
        self.memory.lock().change(name, NodeRecord::set_unreachable);
        tracing::info!(node = name, "Node is unreachable; set its conditions to Unknown");
        if was == Some(Ready::Yes) {
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
    fn check_lease_cache(&self) -> Result<(), Failed> {
        let seen = self.leases.version();
        match self.memory.lock().awaited_lease_version(seen) {
            Some(live) => Err(Failed::LeaseCacheBehind { seen, live }),
            None => Ok(()),
        }
    }

    /// Fails if the live lease cannot be read, or differs from the cached one.
    async fn check_lease(&self, name: &str, lease: Option<&Lease>) -> Result<(), Failed> {
        let live = match self.client.get::<Lease>(LEASES, name).await {
            Err(error) if error.is_not_found() => return Ok(()),
            answer => answer?.meta.version(),
        };
        let seen = lease.map_or(0, |lease| lease.meta.version());
        if live == seen {
            return Ok(());
        }
        self.memory.lock().await_lease_version(live);
        Err(Failed::LeaseCacheBehind { seen, live })
    }

    /// Taints a node at once, or enqueues it in its zone. Upstream: `processTaintBaseEviction`.
    async fn process_taint_based_eviction(&self, node: &Node, ready: Option<Ready>) {
        let name = &*node.meta.name;
        let now = self.memory.now().steady;
        if self.memory.lock().has_rejected_patch(node, now) {
            return;
        }
        match no_execute::taint_action(node, ready) {
            TaintAction::RateLimited => {
                let mut state = self.memory.lock();
                let State { nodes, zones, .. } = &mut *state;
                if let Some(known) = nodes.get(name) {
                    zones.enqueue(&known.zone, name);
                }
            }
            TaintAction::None => self.memory.lock().zones.dequeue(name),
            TaintAction::Immediate => {
                self.memory.lock().zones.dequeue(name);
                if let Err(error) = self.taint(name).await {
                    tracing::warn!(node = name, %error, "Failed to write the taints of the node");
                }
            }
        }
    }

    /// Patches the node's `NoExecute` taint to agree with its live condition. Returns whether the taints changed.
    async fn taint(&self, name: &str) -> Result<bool, ApiError> {
        self.patch_taints(name, |node| no_execute::taints_patch(node, self.clock.now())).await
    }

    /// Patches the taints of the live node. After a conflict, reads the node and calls `patch` again. Returns whether
    /// the taints changed.
    async fn patch_taints(
        &self,
        name: &str,
        patch: impl Fn(&Node) -> Option<String>,
    ) -> Result<bool, ApiError> {
        let mut tries = 1;
        loop {
            match self.try_patch_taints(name, &patch).await {
                Err(error) if error.is_conflict() && tries < MAX_ATTEMPTS => tries += 1,
                answer => return answer,
            }
        }
    }

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
        let (kind, form) = (Node::kind(), PatchForm::Strategic);
        let done = self.client.patch::<Metadata>(&kind, "", name, "", form, body.into()).await;
        if done.as_ref().is_err_and(ApiError::is_invalid) {
            let now = self.memory.now().steady;
            self.memory.lock().record_rejected_patch(&node, now);
        }
        done.map(|_| true)
    }

    async fn do_no_execute_tainting_pass(&self) {
        let due = self.memory.lock().zones.take_due(self.memory.now().steady);
        for name in due {
            // Decide from a live read, because the cache may not have the written status yet.
            match self.taint(&name).await {
                Ok(true) => {
                    let zone = self.memory.lock().nodes.get(&name).map(|known| known.zone.clone());
                    self.metrics.evictions.with_label_values(&[&*zone.unwrap_or_default()]).inc();
                }
                Ok(false) => {}
                // The next pass over all nodes enqueues the node again.
                Err(error) => tracing::warn!(node = &*name, %error, "Failed to taint the node"),
            }
        }
    }

    /// Marks all pods of the node as not ready. Returns whether all succeeded. Upstream: `MarkPodsNotReady`.
    async fn mark_pods(&self, node: &str) -> bool {
        let mut all = true;
        for pod in self.on_node.get(node) {
            if let Err(error) = mark_pod(&self.client, &self.events, &self.clock, &pod).await {
                let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
                tracing::warn!(node, namespace, name, %error, "Failed to mark the pod as not ready");
                all = false;
            }
        }
        all
    }

    /// Counts the ready nodes of each zone, and updates the zones' states and rate limiters. Upstream:
    /// `handleDisruption`.
    async fn handle_disruption(&self, nodes: &[Arc<Node>]) {
        let change = {
            let now = self.memory.now();
            let mut state = self.memory.lock();
            let State { nodes: known, zones, .. } = &mut *state;
            let mut counts: BTreeMap<Text, NodeCounts> = BTreeMap::new();
            for node in nodes {
                let Some(known) = known.get(&node.meta.name) else { continue };
                let count = counts.entry(known.zone.clone()).or_default();
                match known.health.and_then(|health| health.ready) {
                    _ if !zones::counts_for_disruption(node) => {}
                    Some(Ready::Yes) => count.ready += 1,
                    _ => count.not_ready += 1,
                }
            }
            for gone in zones.retain(|zone| counts.contains_key(zone)) {
                self.show(&gone, NodeCounts::default());
            }
            counts.iter().for_each(|(zone, count)| self.show(zone, *count));
            let change = zones.handle_disruption(&counts, &self.options, now.steady);
            if change == DisruptionChange::LeftFullDisruption {
                let all = known.values_mut().filter_map(|known| known.health.as_mut());
                all.for_each(|health| health.probe_time = now.steady);
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

    async fn mark_all_reachable(&self, nodes: &[Arc<Node>]) {
        for node in nodes.iter().filter(|node| no_execute::reachable_patch(node).is_some()) {
            let name = &*node.meta.name;
            // A failed patch is not repeated before the full disruption ends.
            if let Err(error) = self.patch_taints(name, no_execute::reachable_patch).await {
                tracing::warn!(node = name, %error, "Failed to remove the taints of the node");
            }
        }
    }

    fn show(&self, zone: &str, count: NodeCounts) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
        let float = |count: usize| count as f64;
        self.metrics.zone_size.with_label_values(&[zone]).set(float(count.all()));
        self.metrics.zone_health.with_label_values(&[zone]).set(count.percent_ready());
        self.metrics.unhealthy.with_label_values(&[zone]).set(float(count.not_ready));
    }
}

/// Sets a pod's condition `Ready` to `False` if it is `True`, and records the event `NodeNotReady`. Upstream:
/// `MarkPodsNotReady`.
async fn mark_pod(
    client: &Client,
    events: &EventRecorder,
    clock: &Clock,
    pod: &Pod,
) -> Result<(), ApiError> {
    if !pods::claims_ready(pod) {
        return Ok(());
    }
    let meta = &pod.meta;
    let mut live: Live<Pod> = match read_live(client, &meta.namespace, &meta.name).await {
        Err(error) if error.is_not_found() => return Ok(()),
        live => live?,
    };
    if !pods::mark_not_ready(&mut live.object, &meta.uid, clock.now()) {
        return Ok(());
    }
    match live.put_status(client).await {
        Err(error) if error.is_not_found() => return Ok(()),
        answer => drop(answer?),
    }
    events.record(&pods::node_not_ready(pod));
    Ok(())
}

fn signed(duration: Duration) -> Moment {
    Moment::try_from(duration).unwrap_or(Moment::MAX)
}

/// An object read live as JSON, and its lean view. Writes send the changed JSON, which has the fields that the view
/// lacks.
struct Live<V> {
    object: Value,
    view: V,
}

/// Reads one object live.
async fn read_live<V: View>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Live<V>, ApiError> {
    let path = format!("{}/{name}", V::kind().path(namespace));
    let problem =
        |reason: String| ApiError::Request { path: path.as_str().into(), reason: reason.into() };
    let request = Request::get(&path).header(ACCEPT, "application/json").body(Bytes::new());
    let answer = client.raw(request.map_err(|error| problem(error.to_string()))?).await?;
    let object =
        serde_json::from_slice(answer.body()).map_err(|error| problem(error.to_string()))?;
    let view = V::decode(answer.body(), Encoding::Json);
    Ok(Live { object, view: view.map_err(|error| problem(error.to_string()))? })
}

impl<V: View> Live<V> {
    /// Writes the status, with the resource version that was read as precondition.
    async fn put_status(&self, client: &Client) -> Result<Metadata, ApiError> {
        let (kind, meta) = (V::kind(), self.view.meta());
        let body = Bytes::from(self.object.to_string());
        client.update(&kind, &meta.namespace, &meta.name, "status", body).await
    }
}
