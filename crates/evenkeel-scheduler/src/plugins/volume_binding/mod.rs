//! VolumeBinding: schedules a pod to nodes from which its volumes are accessible, and binds its claims before the pod.
//!
//! `find` selects volumes for a pod on one node without side effects. The plugin keeps the volumes of assumed pods
//! until their claims are bound, so that it selects no volume twice.
//!
//! Upstream: `plugins/volumebinding`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `volumeBindingMode: Immediate`: the claim must be bound before the pod | `find::usable_claim` |
//! | node affinity of bound volumes | `find::check_bound_claims`, `find::is_reachable` |
//! | `volumeBindingMode: WaitForFirstConsumer` with an existing volume | `find::find_pod_volumes` |
//! | dynamic provisioning, `allowedTopologies` | `find::check_volume_provision` |
//! | storage capacity tracking (CSIStorageCapacity) | `find::capacity_for_claim` |
//! | binding before the pod runs, `bindTimeoutSeconds` | `act::bind`, `bind::check_bindings` |
//! | scores by storage capacity, `shape` | `score::score` |

mod act;
mod bind;
mod find;
mod score;
#[cfg(test)]
mod tests;

use evenkeel_api::views::{
    CsiNode, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Volume,
};
use evenkeel_component_helpers::storage::{claims, csi_translation, volume};
use evenkeel_runtime::{
    cache::{Cache, Index},
    client::Client,
    clock::Clock,
};
use find::{PodClaims, PodVolumes, UnboundClaim, volume_size_limit};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

use super::{
    shape::Shape,
    volumes::{VolumeCaches, VolumeListers},
};

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, Code, CycleState, Delta, EventResource, Filter, Handle,
        ObjectChange, Plugin, PluginFuture, PreBind, PreBindError, PreBindPreFlight, PreFilter,
        PreFilterResult, PreScore, PreScoreResult, QueueingHint, Reserve, Score, Status,
        StatusResult,
    },
    metrics::{Metrics, VolumeStage},
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Arguments of [`VolumeBinding`].
///
/// Upstream: `VolumeBindingArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Timeout for binding all claims of a pod. Default: 10 min.
    pub bind_timeout: Duration,
    /// Score by storage utilization in percent. `None` disables the score.
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

/// The VolumeBinding plugin.
#[derive(Default)]
pub struct VolumeBinding {
    args: Args,
    /// Set by [`Plugin::connect`].
    observed: OnceLock<Observed>,
    /// Volumes of assumed pods, by pod uid.
    assumed_volumes: Mutex<HashMap<Box<str>, AssumedPodVolumes>>,
}

/// Volumes that the plugin selected for the claims of an assumed pod.
#[derive(Debug, Clone)]
struct AssumedPodVolumes {
    node: Arc<str>,
    pod_volumes: PodVolumes,
}

/// Caches of the plugin.
struct Observed {
    clock: Clock,
    metrics: Metrics,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    listers: VolumeCaches,
    /// PersistentVolumes by StorageClass name.
    by_class: Index<PersistentVolume>,
    /// Notifies waiters of every change of a claim or volume.
    changed: Arc<Notify>,
}

impl Observed {
    fn new(handle: &Handle) -> Self {
        let Handle { caches, clock, metrics, .. } = handle;
        let listers = VolumeCaches::new(handle);
        let changed = Arc::new(Notify::new());
        let changed_claim = Arc::clone(&changed);
        let changed_volume = Arc::clone(&changed);
        listers.claims.subscribe(move |_| changed_claim.notify_waiters());
        listers.volumes.subscribe(move |_| changed_volume.notify_waiters());
        let class = |volume: &PersistentVolume, key: &mut dyn FnMut(&str)| {
            key(volume::class_of_volume(volume));
        };
        Self {
            clock: clock.clone(),
            metrics: metrics.clone(),
            pods: caches.of(),
            nodes: caches.of(),
            by_class: listers.volumes.index("class", class),
            listers,
            changed,
        }
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn connect(&self, handle: &Handle) {
        // Only the first scheduler connects a plugin that several schedulers share. The others use its caches.
        self.observed.get_or_init(|| Observed::new(handle));
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
            Change::Object(change) => after_object_change(&pod.pod, change),
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

/// Returns `Queue` if the change of an object may make the pod schedulable.
fn after_object_change(pod: &Pod, change: &ObjectChange) -> QueueingHint {
    match change {
        ObjectChange::PersistentVolumeClaim(edit) => {
            QueueingHint::when(edit.after().is_some_and(|claim| {
                claim.meta.namespace == pod.meta.namespace
                    && claims::of_pod(pod).any(|used| used.claim_name(pod) == *claim.meta.name)
            }))
        }
        ObjectChange::PersistentVolume(edit) => QueueingHint::when(edit.after().is_some()),
        ObjectChange::StorageClass(edit) => match edit {
            Delta::Added(_) => QueueingHint::Queue,
            Delta::Updated { old, new } => {
                QueueingHint::when(old.allowed_topologies != new.allowed_topologies)
            }
            Delta::Deleted(_) => QueueingHint::Skip,
        },
        ObjectChange::CsiNode(edit) => match edit {
            Delta::Added(_) => QueueingHint::Queue,
            Delta::Updated { old, new } => {
                QueueingHint::when(migrated_plugins(old) != migrated_plugins(new))
            }
            Delta::Deleted(_) => QueueingHint::Skip,
        },
        ObjectChange::CsiDriver(Delta::Updated { old, new }) => {
            let uses_driver = |volume: &Volume| {
                volume.source.csi.as_deref().is_some_and(|csi| csi.driver == new.meta.name)
            };
            let no_longer_tracks_capacity =
                old.spec.storage_capacity == Some(true) && new.spec.storage_capacity != Some(true);
            QueueingHint::when(
                no_longer_tracks_capacity && pod.spec.volumes.iter().any(uses_driver),
            )
        }
        ObjectChange::CsiStorageCapacity(edit) => match edit {
            Delta::Added(_) => QueueingHint::Queue,
            Delta::Updated { old, new } => {
                let old_limit = volume_size_limit(old);
                let increases = volume_size_limit(new).is_some_and(|new_limit| {
                    old_limit.is_none_or(|old_limit| new_limit.value() > old_limit.value())
                });
                QueueingHint::when(increases)
            }
            Delta::Deleted(_) => QueueingHint::Skip,
        },
        _ => QueueingHint::Skip,
    }
}

/// Returns the node's annotation that lists the in-tree plugins that migrated to CSI.
fn migrated_plugins(node: &CsiNode) -> &str {
    node.meta.annotations.get(csi_translation::MIGRATED_PLUGINS).unwrap_or_default()
}

impl VolumeBinding {
    /// Returns the plugin with these arguments.
    pub fn new(args: Args) -> Self {
        Self { args, ..Self::default() }
    }

    /// Locks the volumes of assumed pods.
    fn assumed_volumes(&self) -> MutexGuard<'_, HashMap<Box<str>, AssumedPodVolumes>> {
        self.assumed_volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pod's claims and the volumes available to them.
    ///
    /// # Errors
    ///
    /// Returns the status that rejects the pod on all nodes.
    fn claims(&self, observed: &Observed, pod: &Pod) -> Result<PodClaims, Status> {
        let mut claims = PodClaims::default();
        for used in claims::of_pod(pod) {
            let name = used.claim_name(pod);
            let cached_claim = observed.listers.claim(&pod.meta.namespace, &name);
            let claim = find::usable_claim(pod, &name, used.is_ephemeral, cached_claim)?;
            let class = match volume::class_of_claim(&claim) {
                "" => None,
                class_name => observed.listers.class(class_name),
            };
            if find::is_bound(&claim) {
                claims.bound.push(observed.listers.volume(&claim.spec.volume_name));
            } else if class.as_deref().is_some_and(volume::waits_for_consumer)
                && claim.spec.volume_name.is_empty()
            {
                claims.delayed.push(self.unbound_claim(observed, claim, class));
            } else {
                let reason = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Status::unresolvable(reason));
            }
        }
        Ok(claims)
    }

    /// Returns an unbound claim with its selected node and the volumes to which it may be bound. Both consider the
    /// decisions for assumed pods.
    fn unbound_claim(
        &self,
        observed: &Observed,
        claim: Arc<PersistentVolumeClaim>,
        class: Option<Arc<StorageClass>>,
    ) -> UnboundClaim {
        let mut node: Option<Arc<str>> =
            claim.meta.annotations.get(volume::SELECTED_NODE).map(Arc::from);
        let mut candidates = observed.by_class.get(volume::class_of_claim(&claim));
        for assumed_volumes in self.assumed_volumes().values() {
            let PodVolumes { bindings, provisions, .. } = &assumed_volumes.pod_volumes;
            let provisions_claim =
                provisions.iter().any(|provision| provision.claim.meta.uid == claim.meta.uid);
            if provisions_claim {
                node = Some(Arc::clone(&assumed_volumes.node));
            }
            for (volume, bound_claim) in bindings {
                if bound_claim.meta.uid == claim.meta.uid {
                    // The decision for the assumed pod holds for all pods that share the claim.
                    candidates.retain(|candidate| candidate.meta.name == volume.meta.name);
                } else {
                    candidates.retain(|candidate| candidate.meta.name != volume.meta.name);
                }
            }
        }
        UnboundClaim { claim, class, node, candidates }
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        if claims::of_pod(&pod.pod).next().is_none() {
            return Ok(PreFilterResult::Skip);
        }
        let Some(observed) = self.observed.get() else {
            return Err(Status::error("volumes are not known yet"));
        };
        state.put(self.claims(observed, &pod.pod)?);
        Ok(PreFilterResult::All)
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        match (state.get::<PodClaims>(), self.observed.get()) {
            (Some(claims), Some(observed)) => {
                let pod_volumes = find::find_pod_volumes(&observed.listers, claims, node.node());
                if pod_volumes.as_ref().is_err_and(|status| status.code == Code::Error) {
                    observed.metrics.claims().count_volume_error(VolumeStage::Predicate);
                }
                pod_volumes.map(drop)
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
        // Only claims that are bound after scheduling can make the scores of nodes differ.
        let has_delayed_claims =
            state.get::<PodClaims>().is_some_and(|claims| !claims.delayed.is_empty());
        if self.args.shape.is_some() && has_delayed_claims {
            PreScoreResult::All
        } else {
            PreScoreResult::Skip
        }
    }
}

impl Score for VolumeBinding {
    fn score(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> i64 {
        let (Some(claims), Some(observed)) = (state.get::<PodClaims>(), self.observed.get()) else {
            return 0;
        };
        let pod_volumes = find::find_pod_volumes(&observed.listers, claims, node.node()).ok();
        let shape = self.args.shape.as_ref();
        pod_volumes.zip(shape).map_or(0, |(volumes, shape)| score::score(&volumes, shape))
    }
}

impl Reserve for VolumeBinding {
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> StatusResult {
        let (Some(claims), Some(observed)) = (state.get::<PodClaims>(), self.observed.get()) else {
            return Ok(());
        };
        let Some(node_object) = observed.nodes.get("", node) else {
            return Err(Status::error(format!("node \"{node}\" not found")));
        };
        let pod_volumes = find::find_pod_volumes(&observed.listers, claims, &node_object)
            .inspect_err(|_| observed.metrics.claims().count_volume_error(VolumeStage::Assume))?;
        if !pod_volumes.is_empty() {
            let assumed_volumes = AssumedPodVolumes { node: Arc::from(node), pod_volumes };
            self.assumed_volumes().insert(pod.uid().into(), assumed_volumes);
        }
        Ok(())
    }

    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        self.assumed_volumes().remove(pod.uid());
    }
}

impl PreBind for VolumeBinding {
    fn pre_bind_pre_flight(&self, pod: &PodInfo, _: &str) -> PreBindPreFlight {
        match self.assumed_volumes().contains_key(pod.uid()) {
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
            let assumed_volumes = self.assumed_volumes().get(pod.uid()).cloned();
            let (Some(assumed_volumes), Some(observed)) = (assumed_volumes, self.observed.get())
            else {
                return Ok(());
            };
            act::bind(client, observed, &pod.pod, &assumed_volumes, self.args.bind_timeout)
                .await
                .inspect_err(|_| observed.metrics.claims().count_volume_error(VolumeStage::Bind))?;
            // The cache shows that the claims are bound, so the plugin can drop the assumed volumes.
            self.assumed_volumes().remove(pod.uid());
            Ok(())
        })
    }
}

impl std::fmt::Debug for VolumeBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeBinding")
            .field("assumed_volumes", &self.assumed_volumes())
            .finish_non_exhaustive()
    }
}
