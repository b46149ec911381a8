//! Heartbeats of simulated nodes: registers Nodes, renews their Leases and reports their status.

use evenkeel_api::{
    Text, View,
    time::Timestamp,
    views::{Lease, Node},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    client::{ApiError, Client, Metadata},
    clock::Clock,
    plan::PatchType,
    queue::{Priority, Queue},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    NodeFaults, NodeOptions, NodesOptions,
    faults::{self, Health},
    node,
    stages::{ResourceRef, Stages},
};

/// Heartbeats of all simulated nodes of the process.
pub(crate) struct Heartbeats {
    client: Client,
    clock: Clock,
    options: NodesOptions,
    /// Indexes into `options.nodes`, by node name.
    node_indexes: HashMap<Text, usize>,
    nodes: Cache<Node>,
    /// Faults of the nodes.
    faults: NodeFaults,
    /// Stages of the cluster. If there are Stages of nodes, they write the status of the nodes.
    stages: Option<Stages>,
    /// Queue of indexes into `options.nodes`.
    queue: Queue<usize>,
    /// State of each node, by index into `options.nodes`.
    state: Mutex<Vec<State>>,
}

/// State of one node's heartbeats.
#[derive(Debug, Clone, Default)]
struct State {
    /// Time of the last status report; `None` until the node is registered.
    last_report: Option<Timestamp>,
    /// Health in the last status report.
    health: Health,
    lease: LeaseState,
}

/// Last known state of a node's Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum LeaseState {
    /// The Lease may be missing.
    #[default]
    Unknown,
    /// This process wrote the Lease last, at this resource version, for the Node with the uid `owner`. Like a kubelet, the
    /// process updates the whole Lease, which costs the API server less than a patch.
    Own { version: Text, owner: Text },
    /// Another client wrote the Lease too, so a renewal patches only its own fields.
    Shared,
}

impl Heartbeats {
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        options: NodesOptions,
        nodes: &Cache<Node>,
        faults: NodeFaults,
        stages: Option<Stages>,
        queue: Queue<usize>,
    ) -> Arc<Self> {
        let node_indexes = options
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (node.name.as_str().into(), index))
            .collect();
        let state = Mutex::new(vec![State::default(); options.nodes.len()]);
        let heartbeats = Arc::new(Self {
            client,
            clock,
            options,
            node_indexes,
            nodes: nodes.clone(),
            faults,
            stages,
            queue,
            state,
        });
        let weak = Arc::downgrade(&heartbeats);
        heartbeats.faults.subscribe(move || {
            if let Some(heartbeats) = weak.upgrade() {
                heartbeats.enqueue_all();
            }
        });
        let weak = Arc::downgrade(&heartbeats);
        nodes.subscribe(move |event| {
            if let (Some(heartbeats), CacheEvent::Updated { new, .. }) = (weak.upgrade(), event) {
                let now = heartbeats.clock.now();
                let is_other =
                    faults::has_other_faults(event) || faults::resumed_node(event, now).is_some();
                heartbeats.handle_update(new, is_other, now);
            }
        });
        heartbeats
    }

    /// Enqueues a node immediately if its conditions differ from its health, or if its faults changed. The heartbeat
    /// then schedules the next one, at the end of a fault if that is sooner than the renewal of the Lease.
    fn handle_update(&self, node: &Node, has_other_faults: bool, now: Timestamp) {
        let Some(index) = self.node_indexes.get(&node.meta.name) else { return };
        let health = self.faults.health(node, now);
        let is_reported = self.has_stages()
            || is_ready(node) != health.not_ready && self.lock()[*index].health == health;
        if has_other_faults || !is_reported && self.faults.partition(node, now).is_none() {
            self.queue.add(*index, Priority::NORMAL);
        }
    }

    /// Returns the health of the node. Also returns a patch of its conditions if they differ from this health: it has
    /// changed since the report `reported`, or another writer has marked the node not ready.
    fn health_patch(
        &self,
        options: &NodeOptions,
        reported: Health,
        now: Timestamp,
    ) -> (Health, Option<String>) {
        let Some(node) = self.nodes.get("", &options.name) else { return (reported, None) };
        let health = self.faults.health(&node, now);
        if health == reported && is_ready(&node) != health.not_ready {
            return (health, None);
        }
        (health, Some(conditions_patch(options, &node, health, now)))
    }

    /// Returns whether Stages write the status of nodes.
    fn has_stages(&self) -> bool {
        self.stages.as_ref().is_some_and(|stages| stages.exist_for(ResourceRef::Node))
    }

    /// Enqueues all nodes. The first heartbeat of a node registers it.
    pub(crate) fn enqueue_all(&self) {
        for index in 0..self.options.nodes.len() {
            self.queue.add(index, Priority::NORMAL);
        }
    }

    /// Sends heartbeats until the queue is shut down.
    pub(crate) async fn work(&self) {
        while let Some(index) = self.queue.next().await {
            self.queue.process(&index, self.heartbeat(index)).await;
        }
    }

    /// Sends one heartbeat, and enqueues the node for the next one.
    async fn heartbeat(&self, index: usize) {
        match self.sync_node_status(index).await {
            Ok(()) => {
                self.queue.forget(&index);
                self.queue.add_after(index, self.next_heartbeat(index));
            }
            // The Node was deleted. Like a real kubelet, a simulated one does not register it again.
            Err(error) if error.is_not_found() => {
                tracing::warn!(
                    node = self.options.nodes[index].name,
                    "Node was deleted and stays away"
                );
            }
            Err(error) => {
                let node = &self.options.nodes[index].name;
                if error.is_invalid() {
                    // A retry of the same write would fail again, until the options or the object change.
                    tracing::warn!(node, %error, "the server refuses what the kubelet writes about its node");
                } else {
                    tracing::debug!(node, %error, "Node heartbeat failed");
                }
                self.queue.add_rate_limited(index);
            }
        }
    }

    /// Returns the time until the next heartbeat of a node: when its Lease is due, or a fault begins or ends by itself.
    fn next_heartbeat(&self, index: usize) -> Duration {
        let node = self.nodes.get("", &self.options.nodes[index].name);
        let change = node.and_then(|node| self.faults.next_change(&node, self.clock.now()));
        change.map_or(self.options.lease_renewal, |change| change.min(self.options.lease_renewal))
    }

    /// Registers the node or reports its status if that is due, and renews its Lease. A partitioned node writes
    /// nothing.
    ///
    /// Upstream: `syncNodeStatus`.
    async fn sync_node_status(&self, index: usize) -> Result<(), ApiError> {
        let options = &self.options.nodes[index];
        let now = self.clock.now();
        let node = self.nodes.get("", &options.name);
        if node.is_some_and(|node| self.faults.partition(&node, now).is_some()) {
            return Ok(());
        }
        let mut state = self.lock()[index].clone();
        match state.last_report {
            None => {
                state.health = self.register_with_api_server(options, now).await?;
                state.last_report = Some(now);
                self.lock()[index] = state.clone();
            }
            // Keep renewing the Lease: a node that follows Stages is not partitioned.
            Some(_) if self.has_stages() => {}
            Some(last) => {
                let (health, patch) = self.health_patch(options, state.health, now);
                let is_due = now.duration_since(last).unsigned_abs() >= self.options.status_report;
                let patch = patch.or_else(|| is_due.then(|| node::heartbeat_patch(now)));
                if let Some(patch) = patch {
                    self.patch_node(options, patch).await?;
                    (state.health, state.last_report) = (health, Some(now));
                }
            }
        }
        state.lease = self.renew_lease(options, state.lease).await?;
        self.lock()[index] = state;
        Ok(())
    }

    /// Creates the Node, or updates the labels and status of an existing one. With [`NodeOptions::existing`], updates
    /// only the conditions. Does not update the status of an existing node that follows Stages. Returns the reported
    /// health.
    ///
    /// Upstream: `registerWithAPIServer`.
    async fn register_with_api_server(
        &self,
        options: &NodeOptions,
        now: Timestamp,
    ) -> Result<Health, ApiError> {
        if !options.existing {
            let body = node::object(options, now).to_string();
            match self.client.create::<Metadata>(&Node::kind(), "", body.into()).await {
                Err(error) if error.is_already_exists() => {}
                other => return other.map(|_| Health::default()),
            }
            let labels =
                serde_json::json!({ "metadata": { "labels": node::labels(options) } }).to_string();
            let (kind, form) = (Node::kind(), PatchType::Strategic);
            self.client
                .patch::<Metadata>(&kind, "", &options.name, "", form, labels.into())
                .await?;
        }
        // The Node exists already. Its conditions keep their transition times.
        let node = self.client.get::<Node>("", &options.name).await?;
        let health = self.faults.health(&node, now);
        if !self.has_stages() {
            self.patch_node(options, conditions_patch(options, &node, health, now)).await?;
        }
        Ok(health)
    }

    /// Patches the status of the Node.
    async fn patch_node(&self, options: &NodeOptions, patch: String) -> Result<(), ApiError> {
        let (kind, form) = (Node::kind(), PatchType::Strategic);
        self.client
            .patch::<Metadata>(&kind, "", &options.name, "status", form, patch.into())
            .await
            .map(drop)
    }

    /// Renews or creates the Lease, and returns its new state.
    ///
    /// Upstream: `retryUpdateLease`.
    async fn renew_lease(
        &self,
        options: &NodeOptions,
        lease: LeaseState,
    ) -> Result<LeaseState, ApiError> {
        let renewed = match lease {
            LeaseState::Unknown => return self.create_lease(options).await,
            LeaseState::Own { version, owner } => {
                match self.replace_lease(options, &version, owner).await {
                    Err(error) if error.is_conflict() => self.patch_lease(options).await,
                    replaced => replaced,
                }
            }
            LeaseState::Shared => self.patch_lease(options).await,
        };
        match renewed {
            Err(error) if error.is_not_found() => self.create_lease(options).await,
            renewed => renewed,
        }
    }

    /// Replaces the Lease if it still has this resource version.
    async fn replace_lease(
        &self,
        options: &NodeOptions,
        version: &str,
        owner: Text,
    ) -> Result<LeaseState, ApiError> {
        let (name, duration) = (&options.name, self.options.lease_duration);
        let lease = node::lease(name, &owner, version, duration, self.clock.now());
        let body = lease.to_string().into();
        let kind = Lease::kind();
        let replaced =
            self.client.update::<Metadata>(&kind, node::LEASE_NAMESPACE, name, "", body).await?;
        Ok(LeaseState::Own { version: replaced.meta.resource_version, owner })
    }

    /// Renews the Lease, and keeps fields that other clients wrote.
    async fn patch_lease(&self, options: &NodeOptions) -> Result<LeaseState, ApiError> {
        let (name, duration) = (&options.name, self.options.lease_duration);
        let patch = node::lease_renewal_patch(name, duration, self.clock.now()).into();
        let (kind, form) = (Lease::kind(), PatchType::Merge);
        self.client
            .patch::<Metadata>(&kind, node::LEASE_NAMESPACE, name, "", form, patch)
            .await
            .map(|_| LeaseState::Shared)
    }

    async fn create_lease(&self, options: &NodeOptions) -> Result<LeaseState, ApiError> {
        let (name, duration) = (&options.name, self.options.lease_duration);
        let node = self.client.get_metadata(&Node::kind(), "", name).await?;
        let owner = node.meta.uid;
        let lease = node::lease(name, &owner, "", duration, self.clock.now()).to_string();
        let kind = Lease::kind();
        match self.client.create::<Metadata>(&kind, node::LEASE_NAMESPACE, lease.into()).await {
            Ok(created) => Ok(LeaseState::Own { version: created.meta.resource_version, owner }),
            Err(error) if error.is_already_exists() => self.patch_lease(options).await,
            // The API server creates the namespace shortly after its start, so a later heartbeat creates the Lease.
            Err(error) if error.is_not_found() => Ok(LeaseState::Unknown),
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the node's Ready condition is True.
fn is_ready(node: &Node) -> bool {
    node.status
        .conditions
        .iter()
        .any(|condition| &*condition.type_ == "Ready" && &*condition.status == "True")
}

/// Returns the status patch of an existing node. Conditions with an unchanged status keep their transition times.
fn conditions_patch(options: &NodeOptions, node: &Node, health: Health, now: Timestamp) -> String {
    let since = |kind: &str, status: &str| since(node, kind, status).unwrap_or(now);
    node::status_patch(options, health, &since, now)
}

/// Returns the last transition time of the node's condition of this type; `None` if its status differs from `status`.
fn since(node: &Node, kind: &str, status: &str) -> Option<Timestamp> {
    let mut conditions = node.status.conditions.iter();
    let condition = conditions.find(|condition| &*condition.type_ == kind)?;
    condition.last_transition_time.filter(|_| &*condition.status == status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Encoding;
    use serde_json::{Value, json};
    use std::net::Ipv4Addr;

    #[test]
    fn each_condition_keeps_its_transition_time_after_a_restart() {
        let at = |minute: u32| format!("2027-01-15T08:{minute:02}:00Z");
        let condition = |kind: &str, status: &str, minute: u32| json!({ "type": kind, "status": status, "lastTransitionTime": at(minute) });
        let node = json!({ "metadata": { "name": "n" }, "status": { "conditions": [
            condition("Ready", "True", 1), condition("MemoryPressure", "True", 2),
            condition("DiskPressure", "False", 3), condition("PIDPressure", "True", 4),
        ] } });
        let node = Node::decode(node.to_string().as_bytes(), Encoding::Json).unwrap();
        let options = NodeOptions::new("n", Ipv4Addr::new(172, 18, 0, 2));
        let health = Health { memory_pressure: true, ..Health::default() };
        let patch = conditions_patch(&options, &node, health, at(9).parse().unwrap());
        let patch: Value = serde_json::from_str(&patch).unwrap();
        for (kind, minute) in
            [("Ready", 1), ("MemoryPressure", 2), ("DiskPressure", 3), ("PIDPressure", 9)]
        {
            let conditions = patch["status"]["conditions"].as_array().unwrap();
            let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
            assert_eq!(found["lastTransitionTime"], at(minute), "{kind}");
        }
    }
}
