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
    plan::PatchForm,
    queue::{Priority, Queue},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{NodeOptions, NodesOptions, node, partition};

/// Heartbeats of all simulated nodes of the process.
pub(crate) struct Heartbeats {
    client: Client,
    clock: Clock,
    options: NodesOptions,
    /// Indexes into `options.nodes`, by node name.
    node_indexes: HashMap<Text, usize>,
    nodes: Cache<Node>,
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
    lease: LeaseState,
}

/// What the process knows of a node's Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum LeaseState {
    /// It may be missing.
    #[default]
    Unknown,
    /// It is as this process wrote it, at this resource version, for the Node with the uid `owner`. As a kubelet, the
    /// process replaces it whole, which costs the API server less than a patch.
    Own { version: Text, owner: Text },
    /// Somebody else wrote it as well, so a renewal changes nothing but its own fields.
    Shared,
}

impl Heartbeats {
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        options: NodesOptions,
        nodes: &Cache<Node>,
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
            queue,
            state,
        });
        let weak = Arc::downgrade(&heartbeats);
        nodes.subscribe(move |event| {
            if let (Some(heartbeats), CacheEvent::Updated { new, .. }) = (weak.upgrade(), event) {
                heartbeats.handle_update(new, partition::reconnected_node(event).is_some());
            }
        });
        heartbeats
    }

    /// Enqueues a node at once if a controller marked it not ready, or if its partition has ended.
    fn handle_update(&self, node: &Node, reconnected: bool) {
        let Some(index) = self.node_indexes.get(&node.meta.name) else { return };
        if reconnected || !is_ready(node) && !partition::is_partitioned(node) {
            self.queue.add(*index, Priority::NORMAL);
        }
    }

    /// Reports whether another writer marked the node not ready, so that the kubelet must report its status again.
    fn was_marked_not_ready(&self, options: &NodeOptions) -> bool {
        self.nodes.get("", &options.name).is_some_and(|node| !is_ready(&node))
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
                self.queue.add_after(index, self.options.lease_renewal);
            }
            // The Node was deleted. As a real kubelet, a simulated one does not register it again.
            Err(error) if error.is_not_found() => {
                tracing::warn!(
                    node = self.options.nodes[index].name,
                    "Node was deleted and stays away"
                );
            }
            Err(error) => {
                tracing::debug!(node = self.options.nodes[index].name, %error, "Node heartbeat failed");
                self.queue.add_rate_limited(index);
            }
        }
    }

    /// Registers the node or reports its status if that is due, and renews its Lease. A partitioned node writes
    /// nothing.
    ///
    /// Upstream: `syncNodeStatus`.
    async fn sync_node_status(&self, index: usize) -> Result<(), ApiError> {
        let options = &self.options.nodes[index];
        if partition::is_node_partitioned(&self.nodes, &options.name) {
            return Ok(());
        }
        let mut state = self.lock()[index].clone();
        let now = self.clock.now();
        match state.last_report {
            None => {
                self.register_with_api_server(options, now).await?;
                state.last_report = Some(now);
                self.lock()[index] = state.clone();
            }
            Some(_) if self.was_marked_not_ready(options) => {
                self.patch_node(options, node::status_patch(options, now, now)).await?;
                state.last_report = Some(now);
            }
            Some(last) if now.duration_since(last).unsigned_abs() >= self.options.status_report => {
                self.patch_node(options, node::heartbeat_patch(now)).await?;
                state.last_report = Some(now);
            }
            Some(_) => {}
        }
        state.lease = self.renew_lease(options, state.lease).await?;
        self.lock()[index] = state;
        Ok(())
    }

    /// Creates the Node, or updates the labels and status of an existing one. Of a node whose object is to stay as it is,
    /// it updates the conditions only.
    ///
    /// Upstream: `registerWithAPIServer`.
    async fn register_with_api_server(
        &self,
        options: &NodeOptions,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        if !options.existing {
            let body = node::object(options, now).to_string();
            match self.client.create::<Metadata>(&Node::kind(), "", body.into()).await {
                Err(error) if error.is_already_exists() => {}
                other => return other.map(drop),
            }
            let labels =
                serde_json::json!({ "metadata": { "labels": node::labels(options) } }).to_string();
            let (kind, form) = (Node::kind(), PatchForm::Strategic);
            self.client
                .patch::<Metadata>(&kind, "", &options.name, "", form, labels.into())
                .await?;
        }
        // The Node exists already. Its Ready condition keeps its transition time.
        let ready = self.client.get::<Node>("", &options.name).await?;
        let ready = ready.status.conditions.iter().find(|condition| &*condition.type_ == "Ready");
        let since = ready
            .filter(|ready| &*ready.status == "True")
            .and_then(|ready| ready.last_transition_time);
        self.patch_node(options, node::status_patch(options, since.unwrap_or(now), now)).await
    }

    /// Patches the status of the Node.
    async fn patch_node(&self, options: &NodeOptions, patch: String) -> Result<(), ApiError> {
        let (kind, form) = (Node::kind(), PatchForm::Strategic);
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

    /// Renews the Lease, and keeps what others wrote.
    async fn patch_lease(&self, options: &NodeOptions) -> Result<LeaseState, ApiError> {
        let (name, duration) = (&options.name, self.options.lease_duration);
        let patch = node::lease_renewal_patch(name, duration, self.clock.now()).into();
        let (kind, form) = (Lease::kind(), PatchForm::Merge);
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

/// Reports whether the node's Ready condition is True.
fn is_ready(node: &Node) -> bool {
    node.status
        .conditions
        .iter()
        .any(|condition| &*condition.type_ == "Ready" && &*condition.status == "True")
}
