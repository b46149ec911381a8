//! VolumeBinding: a pod goes where its volumes can be had, and is bound once they are its own.
//!
//! What a node would give is worked out in `find`, which is pure; what was decided for pods on their way to a node is kept
//! until their claims are bound, so that no volume is chosen twice. Upstream: `plugins/volumebinding`.

mod bind;
mod find;
mod score;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    migrated, storage,
    views::{CsiNode, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Volume},
};
use evenkeel_runtime::{
    cache::{Cache, Index},
    client::Client,
    clock::Clock,
};
use find::{Delayed, Found, PodClaims, limit};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

use super::{
    shape::Shape,
    volumes::{Cached, Lookup},
};

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, Code, CycleState, Edit, EventResource, Filter, Handle,
        ObjectChange, Plugin, PluginFuture, PreBind, PreBindError, PreBindPreFlight, PreFilter,
        PreFilterResult, PreScore, PreScoreResult, QueueingHint, Reserve, Score, Status,
        StatusResult,
    },
    metrics::{Metrics, Stage},
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// What can be set about [`VolumeBinding`]; upstream's `VolumeBindingArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// How long a pod waits for its claims to be bound.
    pub bind_timeout: Duration,
    /// How good a node is by how full its storage would be; `None` for no scores.
    pub shape: Option<Shape>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            bind_timeout: Duration::from_secs(600),
            shape: Some(Shape::new(&[(0, 10), (100, 0)])),
        }
    }
}

/// Places pods by their volumes.
#[derive(Default)]
pub struct VolumeBinding {
    args: Args,
    seen: OnceLock<Seen>,
    /// What was decided for pods that are on their way, by uid.
    decided: Mutex<HashMap<Box<str>, Decided>>,
}

/// What is decided for a pod.
#[derive(Debug, Clone)]
struct Decided {
    node: Arc<str>,
    found: Found,
}

/// What it looks at.
struct Seen {
    clock: Clock,
    metrics: Metrics,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    stored: Cached,
    by_class: Index<PersistentVolume>,
    /// Told of each change of a claim or a volume.
    changed: Arc<Notify>,
}

impl Seen {
    fn new(handle: &Handle) -> Self {
        let Handle { caches, clock, metrics, .. } = handle;
        let stored = Cached::new(handle);
        let changed = Arc::new(Notify::new());
        let (of_claims, of_volumes) = (Arc::clone(&changed), Arc::clone(&changed));
        stored.claims.subscribe(move |_| of_claims.notify_waiters());
        stored.volumes.subscribe(move |_| of_volumes.notify_waiters());
        let class = |volume: &PersistentVolume, key: &mut dyn FnMut(&str)| {
            key(storage::class_of_volume(volume));
        };
        Self {
            clock: clock.clone(),
            metrics: metrics.clone(),
            pods: caches.of(),
            nodes: caches.of(),
            by_class: stored.volumes.index("class", class),
            stored,
            changed,
        }
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn connect(&self, handle: &Handle) {
        // A second scheduler over the same plug-in sees what the first one does.
        self.seen.get_or_init(|| Seen::new(handle));
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let changes = &[ActionType::Add, ActionType::Update];
        vec![
            ClusterEvent::new(EventResource::StorageClass, changes),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, changes),
            ClusterEvent::new(EventResource::PersistentVolume, changes),
            ClusterEvent::new(EventResource::Node, &[ActionType::Add, ActionType::UpdateNodeLabel]),
            ClusterEvent::new(EventResource::CsiNode, changes),
            ClusterEvent::new(EventResource::CsiDriver, &[ActionType::Update]),
            ClusterEvent::new(EventResource::CsiStorageCapacity, changes),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        match change {
            Change::Object(change) => of_object(&pod.pod, change),
            _ => QueueingHint::Queue,
        }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        Some(self)
    }
}

/// Whether a change of an object may help a pod that had no volumes.
fn of_object(pod: &Pod, change: &ObjectChange) -> QueueingHint {
    match change {
        ObjectChange::Claim(edit) => QueueingHint::when(edit.now().is_some_and(|claim| {
            claim.meta.namespace == pod.meta.namespace
                && storage::claims_of(pod).any(|used| used.claim_name(pod) == *claim.meta.name)
        })),
        ObjectChange::Volume(edit) => QueueingHint::when(edit.now().is_some()),
        ObjectChange::Class(edit) => match edit {
            Edit::Added(_) => QueueingHint::Queue,
            Edit::Updated { old, new } => {
                QueueingHint::when(old.allowed_topologies != new.allowed_topologies)
            }
            Edit::Deleted(_) => QueueingHint::Skip,
        },
        ObjectChange::CsiNode(edit) => match edit {
            Edit::Added(_) => QueueingHint::Queue,
            Edit::Updated { old, new } => QueueingHint::when(plugins(old) != plugins(new)),
            Edit::Deleted(_) => QueueingHint::Skip,
        },
        ObjectChange::CsiDriver(Edit::Updated { old, new }) => {
            let names = |volume: &Volume| {
                volume.source.csi.as_deref().is_some_and(|csi| csi.driver == new.meta.name)
            };
            let counts = |capacity: Option<bool>| capacity == Some(true);
            let freed = counts(old.spec.storage_capacity) && !counts(new.spec.storage_capacity);
            QueueingHint::when(freed && pod.spec.volumes.iter().any(names))
        }
        ObjectChange::CsiStorageCapacity(edit) => match edit {
            Edit::Added(_) => QueueingHint::Queue,
            Edit::Updated { old, new } => {
                let (before, now) = (limit(old), limit(new));
                QueueingHint::when(
                    now.is_some_and(|now| before.is_none_or(|before| now.value() > before.value())),
                )
            }
            Edit::Deleted(_) => QueueingHint::Skip,
        },
        _ => QueueingHint::Skip,
    }
}

/// For which plug-ins drivers work on the node.
fn plugins(node: &CsiNode) -> &str {
    node.meta.annotations.get(migrated::MIGRATED_PLUGINS).unwrap_or_default()
}

impl VolumeBinding {
    /// With other arguments than the defaults.
    pub fn new(args: Args) -> Self {
        Self { args, ..Self::default() }
    }

    fn decided(&self) -> MutexGuard<'_, HashMap<Box<str>, Decided>> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod's claims, and what may become their volumes.
    fn claims(&self, seen: &Seen, pod: &Pod) -> Result<PodClaims, Status> {
        let mut claims = PodClaims::default();
        for used in storage::claims_of(pod) {
            let name = used.claim_name(pod);
            let claim = seen.stored.claim(&pod.meta.namespace, &name);
            let claim = find::usable(pod, &name, used.ephemeral, claim)?;
            let class = storage::class_of_claim(&claim);
            let class = if class.is_empty() { None } else { seen.stored.class(class) };
            if find::is_bound(&claim) {
                claims.bound.push(seen.stored.volume(&claim.spec.volume_name));
            } else if class.as_deref().is_some_and(storage::waits_for_consumer)
                && claim.spec.volume_name.is_empty()
            {
                claims.delayed.push(self.delayed(seen, claim, class));
            } else {
                let why = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Status::unresolvable(why));
            }
        }
        Ok(claims)
    }

    /// A claim with what others on their way have decided about it, and without the volumes that they have taken.
    fn delayed(
        &self,
        seen: &Seen,
        claim: Arc<PersistentVolumeClaim>,
        class: Option<Arc<StorageClass>>,
    ) -> Delayed {
        let mut node: Option<Arc<str>> =
            claim.meta.annotations.get(storage::SELECTED_NODE).map(Arc::from);
        let mut candidates = seen.by_class.get(storage::class_of_claim(&claim));
        for decided in self.decided().values() {
            if decided.found.provisions.iter().any(|other| other.claim.meta.uid == claim.meta.uid) {
                node = Some(Arc::clone(&decided.node));
            }
            for (volume, other) in &decided.found.bindings {
                if other.meta.uid == claim.meta.uid {
                    candidates.retain(|candidate| candidate.meta.name == volume.meta.name);
                } else {
                    candidates.retain(|candidate| candidate.meta.name != volume.meta.name);
                }
            }
        }
        Delayed { claim, class, node, candidates }
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        if storage::claims_of(&pod.pod).next().is_none() {
            return Ok(PreFilterResult::Skip);
        }
        let Some(seen) = self.seen.get() else {
            return Err(Status::error("volumes are not known yet"));
        };
        state.put(self.claims(seen, &pod.pod)?);
        Ok(PreFilterResult::All)
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        match (state.get::<PodClaims>(), self.seen.get()) {
            (Some(claims), Some(seen)) => {
                let found = find::find(&seen.stored, claims, node.node());
                if found.as_ref().is_err_and(|why| why.code == Code::Error) {
                    seen.metrics.claims().volumes_failed(Stage::Predicate);
                }
                found.map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl PreScore for VolumeBinding {
    fn pre_score(
        &self,
        state: &mut CycleState,
        _: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        // Where nothing is left to be bound every node is as good.
        let waits = state.get::<PodClaims>().is_some_and(|claims| !claims.delayed.is_empty());
        if self.args.shape.is_some() && waits { PreScoreResult::All } else { PreScoreResult::Skip }
    }
}

impl Score for VolumeBinding {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        let (Some(claims), Some(seen)) = (state.get::<PodClaims>(), self.seen.get()) else {
            return 0;
        };
        let found = find::find(&seen.stored, claims, node.node());
        let shape = self.args.shape.as_ref();
        found.ok().zip(shape).map_or(0, |(found, shape)| score::score(&found, shape))
    }
}

impl Reserve for VolumeBinding {
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> StatusResult {
        let (Some(claims), Some(seen)) = (state.get::<PodClaims>(), self.seen.get()) else {
            return Ok(());
        };
        let Some(there) = seen.nodes.get("", node) else {
            return Err(Status::error(format!("node \"{node}\" not found")));
        };
        let found = find::find(&seen.stored, claims, &there)
            .inspect_err(|_| seen.metrics.claims().volumes_failed(Stage::Assume))?;
        if !found.is_empty() {
            let decided = Decided { node: Arc::from(node), found };
            self.decided().insert(pod.uid().into(), decided);
        }
        Ok(())
    }

    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        self.decided().remove(pod.uid());
    }
}

impl PreBind for VolumeBinding {
    fn pre_bind_pre_flight(&self, pod: &PodInfo, _: &str) -> PreBindPreFlight {
        match self.decided().contains_key(pod.uid()) {
            true => PreBindPreFlight::Act { parallel: true },
            false => PreBindPreFlight::Skip,
        }
    }

    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        _: &'a str,
    ) -> PluginFuture<'a, Result<(), PreBindError>> {
        Box::pin(async move {
            let decided = self.decided().get(pod.uid()).cloned();
            let (Some(decided), Some(seen)) = (decided, self.seen.get()) else { return Ok(()) };
            bind::bind(client, seen, &pod.pod, &decided, self.args.bind_timeout)
                .await
                .inspect_err(|_| seen.metrics.claims().volumes_failed(Stage::Bind))?;
            // The claims say so themselves by now.
            self.decided().remove(pod.uid());
            Ok(())
        })
    }
}

impl std::fmt::Debug for VolumeBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeBinding").field("decided", &self.decided()).finish_non_exhaustive()
    }
}
