//! The shell around nodes: registers them, renews their leases, reports their status.

use evenkeel_api::{
    Kind, Text, View,
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

use crate::{NodeOptions, NodesOptions, node, silence};

/// All simulated kubelets, as far as their nodes go.
pub(crate) struct Heartbeats {
    client: Client,
    clock: Clock,
    options: NodesOptions,
    names: HashMap<Text, usize>,
    nodes: Cache<Node>,
    /// Indexes of nodes.
    queue: Queue<usize>,
    state: Mutex<Vec<State>>,
}

/// What is remembered of one node.
#[derive(Debug, Clone, Default)]
struct State {
    /// When its status was last reported; `None` before it is registered.
    reported: Option<Timestamp>,
    /// Its lease is known to exist.
    leased: bool,
}

impl Heartbeats {
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        options: NodesOptions,
        nodes: &Cache<Node>,
        queue: Queue<usize>,
    ) -> Arc<Self> {
        let names = options
            .nodes
            .iter()
            .enumerate()
            .map(|(n, node)| (node.name.as_str().into(), n))
            .collect();
        let state = Mutex::new(vec![State::default(); options.nodes.len()]);
        let heartbeats =
            Arc::new(Self { client, clock, options, names, nodes: nodes.clone(), queue, state });
        let weak = Arc::downgrade(&heartbeats);
        nodes.subscribe(move |event| {
            if let (Some(heartbeats), CacheEvent::Updated { new, .. }) = (weak.upgrade(), event) {
                heartbeats.seen(new, silence::brings_back(event).is_some());
            }
        });
        heartbeats
    }

    /// Looks after a node at once that a controller thinks is not ready, and after one that is back.
    fn seen(&self, node: &Node, is_back: bool) {
        let Some(n) = self.names.get(&node.meta.name) else { return };
        if is_back || !is_ready(node) && !silence::is_silent(node) {
            self.queue.add(*n, Priority::NORMAL);
        }
    }

    /// Whether somebody else made the node not ready, which is then to be contradicted.
    fn doubted(&self, options: &NodeOptions) -> bool {
        self.nodes.get("", &options.name).is_some_and(|node| !is_ready(&node))
    }

    /// Registers every node; heartbeats follow.
    pub(crate) fn begin(&self) {
        for n in 0..self.options.nodes.len() {
            self.queue.add(n, Priority::NORMAL);
        }
    }

    /// Works on nodes until the queue is shut down.
    pub(crate) async fn work(&self) {
        while let Some(n) = self.queue.next().await {
            match self.beat(n).await {
                Ok(()) => {
                    self.queue.forget(&n);
                    self.queue.add_after(n, self.options.lease_renewal);
                }
                // Gone: as a real kubelet, a simulated one does not register again.
                Err(error) if error.is_not_found() => {
                    tracing::warn!(
                        node = self.options.nodes[n].name,
                        "Node was deleted and stays away"
                    );
                }
                Err(error) => {
                    tracing::debug!(node = self.options.nodes[n].name, %error, "Node heartbeat failed");
                    self.queue.add_rate_limited(n);
                }
            }
            self.queue.done(&n);
        }
    }

    async fn beat(&self, n: usize) -> Result<(), ApiError> {
        let options = &self.options.nodes[n];
        if silence::silences(&self.nodes, &options.name) {
            return Ok(());
        }
        let mut state = self.lock()[n].clone();
        let now = self.clock.now();
        match state.reported {
            None => {
                self.register(options, now).await?;
                state.reported = Some(now);
                self.lock()[n] = state.clone();
            }
            Some(_) if self.doubted(options) => {
                self.patch_node(options, node::status_patch(options, now, now)).await?;
                state.reported = Some(now);
            }
            Some(last) if now.duration_since(last).unsigned_abs() >= self.options.status_report => {
                self.patch_node(options, node::heartbeat_patch(now)).await?;
                state.reported = Some(now);
            }
            Some(_) => {}
        }
        state.leased = self.renew(options, state.leased).await?;
        self.lock()[n] = state;
        Ok(())
    }

    async fn register(&self, options: &NodeOptions, now: Timestamp) -> Result<(), ApiError> {
        let body = node::object(options, now).to_string();
        match self.client.create::<Metadata>(&Node::kind(), "", body.into()).await {
            Err(error) if error.is_already_exists() => {}
            other => return other.map(drop),
        }
        // It was here before: labels and status are ours, the rest is left alone.
        let labels =
            serde_json::json!({ "metadata": { "labels": node::labels(options) } }).to_string();
        let (kind, form) = (Node::kind(), PatchForm::Strategic);
        self.client.patch::<Metadata>(&kind, "", &options.name, "", form, labels.into()).await?;
        let ready = self.client.get::<Node>("", &options.name).await?;
        let ready = ready.status.conditions.iter().find(|condition| &*condition.type_ == "Ready");
        let since = ready
            .filter(|ready| &*ready.status == "True")
            .and_then(|ready| ready.last_transition_time);
        self.patch_node(options, node::status_patch(options, since.unwrap_or(now), now)).await
    }

    async fn patch_node(&self, options: &NodeOptions, patch: String) -> Result<(), ApiError> {
        let (kind, form) = (Node::kind(), PatchForm::Strategic);
        self.client
            .patch::<Metadata>(&kind, "", &options.name, "status", form, patch.into())
            .await
            .map(drop)
    }

    /// Renews the lease, or makes it.
    async fn renew(&self, options: &NodeOptions, leased: bool) -> Result<bool, ApiError> {
        let (kind, namespace, duration): (Kind, _, _) =
            (Lease::kind(), node::LEASE_NAMESPACE, self.options.lease_duration);
        let now = self.clock.now();
        let renewal = || node::renewal(&options.name, duration, now).into();
        let form = PatchForm::Merge;
        if leased {
            match self
                .client
                .patch::<Metadata>(&kind, namespace, &options.name, "", form, renewal())
                .await
            {
                Err(error) if error.is_not_found() => {}
                other => return other.map(|_| true),
            }
        }
        let owner = self.client.get_metadata(&Node::kind(), "", &options.name).await?;
        let lease = node::lease(&options.name, &owner.meta.uid, duration, now).to_string();
        match self.client.create::<Metadata>(&kind, namespace, lease.into()).await {
            Err(error) if error.is_already_exists() => {
                let renewed = self
                    .client
                    .patch::<Metadata>(&kind, namespace, &options.name, "", form, renewal())
                    .await;
                renewed.map(|_| true)
            }
            // The namespace is made by the API server a moment after its start; a later beat makes the lease.
            Err(error) if error.is_not_found() => Ok(false),
            other => other.map(|_| true),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_ready(node: &Node) -> bool {
    node.status
        .conditions
        .iter()
        .any(|condition| &*condition.type_ == "Ready" && &*condition.status == "True")
}
