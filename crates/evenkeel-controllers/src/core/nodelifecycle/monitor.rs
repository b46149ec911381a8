//! Looks at all nodes every few seconds, and does what is decided about them.

use super::{
    Options,
    live::{self, Live},
    metrics::Metrics,
    plan::{
        health::{self, Moment, Ready},
        no_execute::{self, Step},
        pods, silence,
        zones::{self, Count, Turn},
    },
    state::{Known, Memory, State},
};
use crate::wire;
use evenkeel_api::{
    Text, View,
    views::{Lease, Node, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, Index},
    client::{ApiError, Client, Metadata},
    clock::Clock,
    events::Recorder,
    plan::{Note, PatchForm, Target},
};
use futures::StreamExt;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Where nodes' leases are.
const LEASES: &str = "kube-node-lease";

/// How many nodes are looked at side by side, as upstream has it.
const WORKERS: usize = 8;

/// How often a status is tried to be written, and the time between.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// The monitor.
pub(super) struct Monitor {
    pub(super) nodes: Cache<Node>,
    pub(super) leases: Cache<Lease>,
    pub(super) pods: Cache<Pod>,
    pub(super) on_node: Index<Pod>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) events: Recorder,
    pub(super) options: Options,
    pub(super) memory: Memory,
    pub(super) metrics: Metrics,
    /// Whether a node is only judged after a look at its lease past the cache (gate NodeControllerLeaseCircuitBreaker).
    pub(super) checks_leases: bool,
}

/// Why a node was not judged.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("the cache of leases is behind: it is at version {seen}, and there is {live}")]
    Behind { seen: u64, live: u64 },
}

impl Monitor {
    /// Works until it is dropped.
    pub(super) async fn run(self) {
        self.nodes.synced().await;
        self.leases.synced().await;
        self.pods.synced().await;
        loop {
            self.look_at_all().await;
            let next = self.memory.now().steady + signed(self.options.monitor_period);
            loop {
                self.taint_who_is_due().await;
                let now = self.memory.now().steady;
                let due = self.memory.lock().zones.next(now).map_or(next, |due| due.min(next));
                // A turn that has come already means that the last one could not be taken: not at once again.
                let wait = Duration::try_from(due - now).unwrap_or_default();
                self.clock.sleep(wait.max(Duration::from_millis(1))).await;
                if self.memory.now().steady >= next {
                    break;
                }
            }
        }
    }

    async fn look_at_all(&self) {
        let began = Instant::now();
        {
            let mut state = self.memory.lock();
            if let Some(version) = state.behind {
                if self.leases.version() < version {
                    tracing::info!(
                        version,
                        "Nodes are not judged until their leases are up to date"
                    );
                    return;
                }
                state.behind = None;
            }
        }
        let mut nodes = self.nodes.list();
        nodes.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        self.take_in(&nodes);
        futures::stream::iter(nodes.iter().cloned())
            .for_each_concurrent(WORKERS, |node| async move { self.look_at(&node).await })
            .await;
        self.turn(&nodes).await;
        self.metrics.all_seconds.observe(began.elapsed().as_secs_f64());
    }

    /// Nodes that are new, and those that are gone.
    ///
    /// Upstream takes both `NoExecute` taints off each node that is new to it, and so off all nodes whenever it starts; a
    /// node that is not ready gets its taint back when its turn comes, and in a zone in partial disruption it may never
    /// come. Here a node keeps its taint until its condition says otherwise ([`no_execute::step`]): that the controller was
    /// started, or another one leads now, says nothing of a node.
    fn take_in(&self, nodes: &[Arc<Node>]) {
        let now = self.memory.now();
        let mut state = self.memory.lock();
        let State { nodes: known, zones, .. } = &mut *state;
        let there: BTreeMap<&str, &Node> =
            nodes.iter().map(|node| (&*node.meta.name, &**node)).collect();
        known.retain(|name, known| {
            let stays = there.get(&**name).is_some_and(|node| node.meta.uid == known.uid);
            if !stays {
                self.tell(
                    name,
                    &known.uid,
                    "RemovingNode",
                    &format!("Removing Node {name} from Controller"),
                );
                zones.spare(name);
            }
            stays
        });
        for node in nodes {
            let (name, zone) = (&*node.meta.name, zones::zone_of(&node.meta.labels));
            if zones.add(&zone, &self.options, now.steady) {
                self.metrics.evictions.with_label_values(&[&*zone]);
            }
            if let Some(known) = known.get_mut(name) {
                if known.zone != zone {
                    zones.spare(name);
                    known.zone = zone;
                }
                continue;
            }
            self.tell(
                name,
                &node.meta.uid,
                "RegisteredNode",
                &format!("Registered Node {name} in Controller"),
            );
            // Whoever wrote that a node is silent may not have come to its pods.
            let pods_to_mark = health::ready(node) == Some(Ready::Unknown);
            let new = Known {
                uid: node.meta.uid.clone(),
                zone,
                health: None,
                pods_to_mark,
                refused: None,
            };
            known.insert(name.into(), new);
        }
    }

    fn tell(&self, name: &str, uid: &str, reason: &'static str, what: &str) {
        let node = Target::new(Node::kind(), "", name, uid);
        self.events.record(&Note::normal(node, reason, format!("Node {name} event: {what}")));
    }

    async fn look_at(&self, node: &Node) {
        let began = Instant::now();
        if let Err(error) = self.judge(node).await {
            tracing::warn!(node = &*node.meta.name, %error, "Node is not judged, and keeps its pods");
        }
        self.metrics.seconds.observe(began.elapsed().as_secs_f64());
    }

    async fn judge(&self, node: &Node) -> Result<(), Failed> {
        let name = &*node.meta.name;
        let lease = self.leases.get(LEASES, name);
        let health = self.memory.look(node, lease.as_deref());
        let overdue = health.is_overdue(&self.options, self.memory.now());
        let ready = if overdue && health.ready != Some(Ready::Unknown) {
            self.silence(name, lease.as_deref()).await?
        } else {
            health.ready
        };
        self.step(node, ready).await;
        let marks = self.memory.lock().nodes.get(name).is_some_and(|known| known.pods_to_mark);
        if marks {
            let done = ready == Some(Ready::Yes) || self.mark_pods(name).await;
            self.memory.change(name, |known| known.pods_to_mark = !done);
        }
        Ok(())
    }

    /// Writes that nothing is known of a node any more; what it is then.
    async fn silence(&self, name: &str, lease: Option<&Lease>) -> Result<Option<Ready>, Failed> {
        let mut tries = 1;
        loop {
            match self.try_silence(name, lease).await {
                Err(Failed::Api(error)) if !error.is_not_found() && tries < TRIES => {
                    tracing::debug!(node = name, %error, "Status of a node is not written yet");
                    tries += 1;
                    self.clock.sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn try_silence(
        &self,
        name: &str,
        lease: Option<&Lease>,
    ) -> Result<Option<Ready>, Failed> {
        let mut live: Live<Node> = live::read(&self.client, "", name).await?;
        // The cache may not have seen yet that it spoke.
        let health = self.memory.look(&live.view, lease);
        let was = health.ready;
        if !health.is_overdue(&self.options, self.memory.now()) || was == Some(Ready::Unknown) {
            return Ok(was);
        }
        if self.checks_leases {
            self.check_lease(name, lease).await?;
        }
        silence::mark_unknown(&mut live.object, self.clock.now());
        // Before the status is written: it may be so even though no answer comes.
        self.memory.change(name, |known| known.pods_to_mark |= was == Some(Ready::Yes));
        live.put_status(&self.client).await?;
        self.memory.change(name, Known::is_silent);
        tracing::info!(node = name, "Node has not been heard of and is not counted upon any more");
        if was == Some(Ready::Yes) {
            let what = format!("Node {name} status is now: NodeNotReady");
            self.events.record(&Note::normal(wire::target(&live.view), "NodeNotReady", what));
        }
        Ok(Some(Ready::Unknown))
    }

    /// Fails where the lease has been renewed and the cache does not know it (or nobody can say).
    async fn check_lease(&self, name: &str, lease: Option<&Lease>) -> Result<(), Failed> {
        let live = match self.client.get::<Lease>(LEASES, name).await {
            Err(error) if error.is_not_found() => return Ok(()),
            answer => answer?.meta.version(),
        };
        let seen = lease.map_or(0, |lease| lease.meta.version());
        if live == seen {
            return Ok(());
        }
        self.memory.lock().behind = Some(live);
        Err(Failed::Behind { seen, live })
    }

    /// What follows for the node's taints.
    async fn step(&self, node: &Node, ready: Option<Ready>) {
        let name = &*node.meta.name;
        if self.memory.is_refused(node) {
            return;
        }
        match no_execute::step(node, ready) {
            Step::InTurn => {
                let mut state = self.memory.lock();
                let State { nodes, zones, .. } = &mut *state;
                if let Some(known) = nodes.get(name) {
                    zones.wait(&known.zone, name);
                }
            }
            Step::Nothing => self.memory.lock().zones.spare(name),
            Step::Now => {
                self.memory.lock().zones.spare(name);
                if let Err(error) = self.taint(name).await {
                    tracing::warn!(node = name, %error, "Taints of a node are not written");
                }
            }
        }
    }

    /// Gives the node the taint of its condition as that is by now; whether there was anything to change.
    async fn taint(&self, name: &str) -> Result<bool, ApiError> {
        self.patch_taints(name, |node| no_execute::patch(node, self.clock.now())).await
    }

    /// Patches the taints of the node as it is by now; whether there was anything to change. `patch` decides again where
    /// somebody else wrote to the node in between.
    async fn patch_taints(
        &self,
        name: &str,
        patch: impl Fn(&Node) -> Option<String>,
    ) -> Result<bool, ApiError> {
        let mut tries = 1;
        loop {
            match self.try_patch_taints(name, &patch).await {
                Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
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
            self.memory.refuse(&node);
        }
        done.map(|_| true)
    }

    async fn taint_who_is_due(&self) {
        let due = self.memory.lock().zones.due(self.memory.now().steady);
        for name in due {
            // The cache may still show the node as it was before its status was written.
            match self.taint(&name).await {
                Ok(true) => {
                    let zone = self.memory.lock().nodes.get(&name).map(|known| known.zone.clone());
                    self.metrics.evictions.with_label_values(&[&*zone.unwrap_or_default()]).inc();
                }
                Ok(false) => {}
                // It comes again with the next look at all nodes.
                Err(error) => tracing::warn!(node = &*name, %error, "Node is not tainted"),
            }
        }
    }

    /// Marks all pods of the node as not ready; whether that is done.
    async fn mark_pods(&self, node: &str) -> bool {
        let mut all = true;
        for pod in self.on_node.get(node) {
            if let Err(error) = mark_pod(&self.client, &self.events, &self.clock, &pod).await {
                let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
                tracing::warn!(node, namespace, name, %error, "Pod cannot be marked as not ready");
                all = false;
            }
        }
        all
    }

    /// Counts the nodes of each zone, and does what follows.
    async fn turn(&self, nodes: &[Arc<Node>]) {
        let turn = {
            let now = self.memory.now();
            let mut state = self.memory.lock();
            let State { nodes: known, zones, .. } = &mut *state;
            let mut counts: BTreeMap<Text, Count> = BTreeMap::new();
            for node in nodes {
                let Some(known) = known.get(&node.meta.name) else { continue };
                let count = counts.entry(known.zone.clone()).or_default();
                match known.health.and_then(|health| health.ready) {
                    _ if !zones::counts(node) => {}
                    Some(Ready::Yes) => count.ready += 1,
                    _ => count.not_ready += 1,
                }
            }
            for gone in zones.retain(|zone| counts.contains_key(zone)) {
                self.show(&gone, Count::default());
            }
            counts.iter().for_each(|(zone, count)| self.show(zone, *count));
            let turn = zones.turn(&counts, &self.options, now.steady);
            if turn == Turn::SomeBack {
                let all = known.values_mut().filter_map(|known| known.health.as_mut());
                all.for_each(|health| health.heard = now.steady);
            }
            turn
        };
        match turn {
            Turn::None => {}
            Turn::SomeBack => tracing::info!("Some nodes are ready again"),
            Turn::AllGone => {
                tracing::info!("No node is ready: none loses its pods");
                self.untaint_all(nodes).await;
            }
        }
    }

    async fn untaint_all(&self, nodes: &[Arc<Node>]) {
        for node in nodes.iter().filter(|node| no_execute::without(node).is_some()) {
            let name = &*node.meta.name;
            // Nobody comes back to it while all nodes are gone.
            if let Err(error) = self.patch_taints(name, no_execute::without).await {
                tracing::warn!(node = name, %error, "Taints are not taken off a node");
            }
        }
    }

    fn show(&self, zone: &str, count: Count) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 nodes")]
        let float = |count: usize| count as f64;
        self.metrics.zone_size.with_label_values(&[zone]).set(float(count.all()));
        self.metrics.zone_health.with_label_values(&[zone]).set(count.health());
        self.metrics.unhealthy.with_label_values(&[zone]).set(float(count.not_ready));
    }
}

/// Marks one pod as not ready, where it says that it is, and tells so.
pub(super) async fn mark_pod(
    client: &Client,
    events: &Recorder,
    clock: &Clock,
    pod: &Pod,
) -> Result<(), ApiError> {
    if !pods::claims_ready(pod) {
        return Ok(());
    }
    let meta = &pod.meta;
    let mut live: Live<Pod> = match live::read(client, &meta.namespace, &meta.name).await {
        Err(error) if error.is_not_found() => return Ok(()),
        live => live?,
    };
    let is_other = live.view.meta.uid != meta.uid;
    if is_other || !pods::take_back_ready(&mut live.object, clock.now()) {
        return Ok(());
    }
    match live.put_status(client).await {
        Err(error) if error.is_not_found() => return Ok(()),
        answer => drop(answer?),
    }
    let note = Note::warning(wire::target(&live.view), "NodeNotReady", "Node is not ready");
    events.record(&note);
    Ok(())
}

fn signed(duration: Duration) -> Moment {
    Moment::try_from(duration).unwrap_or(Moment::MAX)
}
