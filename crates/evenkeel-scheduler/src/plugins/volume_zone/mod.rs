//! VolumeZone: schedules pods only to nodes in the zones and regions of their volumes.
//!
//! Upstream: `plugins/volumezone`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `topology.kubernetes.io/zone`, `topology.kubernetes.io/region` of PersistentVolumes, and their beta names | `volume_topologies`, `filter` |
//! | several zones in one label, separated by `__` | `volume_topologies` |
//! | nodes without such labels are feasible | `filter` |
//! | `volumeBindingMode: WaitForFirstConsumer`: a claim without volume does not restrict the nodes | `volume_of` |

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use evenkeel_api::views::{PersistentVolume, Pod};
use evenkeel_component_helpers::storage::volume;

use super::volumes::{
    CLAIM_RESOURCE, CLASS_RESOURCE, VOLUME_RESOURCE, VolumeCaches, VolumeListers, named_claims,
    not_found,
};
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, Delta, EventResource, Filter, Handle,
        ObjectChange, Plugin, PreFilter, PreFilterResult, QueueingHint, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Reason of a rejection. Upstream: `ErrReasonConflict`.
const ERR_REASON_CONFLICT: &str = "node(s) had no available volume zone";

/// Topology labels of volumes, each with the current name of the label. A node may have either name.
const TOPOLOGY_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];
/// Separator between the zones in one label of a volume.
const ZONE_DELIMITER: &str = "__";

/// The VolumeZone plugin: rejects nodes outside the zones and regions of the pod's volumes.
#[derive(Default)]
pub struct VolumeZone {
    /// Set by [`Plugin::connect`].
    listers: OnceLock<Box<dyn VolumeListers>>,
}

impl std::fmt::Debug for VolumeZone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumeZone")
    }
}

/// Topology labels of all volumes of a pod. A node must match each.
#[derive(Debug, PartialEq, Eq)]
struct VolumeTopologies(Vec<VolumeTopology>);

/// One topology label of a volume. A node matches if its label has one of the values.
#[derive(Debug, PartialEq, Eq)]
struct VolumeTopology {
    /// Label of the volume.
    key: &'static str,
    /// Current name of the label. It differs from `key` if `key` is a beta name.
    replacement: &'static str,
    values: Vec<Box<str>>,
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn connect(&self, handle: &Handle) {
        self.listers.get_or_init(|| Box::new(VolumeCaches::new(handle)));
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let changes = &[ActionType::Add, ActionType::Update];
        vec![
            ClusterEvent::new(EventResource::StorageClass, &[ActionType::Add]),
            ClusterEvent::new(EventResource::Node, &[ActionType::Add, ActionType::UpdateNodeLabel]),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, changes),
            ClusterEvent::new(EventResource::PersistentVolume, changes),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        match change {
            Change::Object(ObjectChange::StorageClass(edit)) => {
                let waits = edit.after().is_some_and(|class| volume::waits_for_consumer(class));
                QueueingHint::when(edit.is_added() && waits)
            }
            Change::Node(Delta::Added(_) | Delta::Updated { .. }) => QueueingHint::Queue,
            Change::Object(ObjectChange::PersistentVolumeClaim(edit)) => {
                QueueingHint::when(edit.after().is_some_and(|claim| {
                    claim.meta.namespace == pod.pod.meta.namespace
                        && named_claims(&pod.pod).any(|name| *name == *claim.meta.name)
                }))
            }
            Change::Object(ObjectChange::PersistentVolume(edit)) => match edit {
                Delta::Added(_) => QueueingHint::Queue,
                Delta::Updated { old, new } => {
                    QueueingHint::when(volume_topologies(old) != volume_topologies(new))
                }
                Delta::Deleted(_) => QueueingHint::Skip,
            },
            _ => QueueingHint::Skip,
        }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for VolumeZone {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let pod = &pod.pod;
        let mut topologies = Vec::new();
        for name in named_claims(pod) {
            let Some(listers) = self.listers.get() else { continue };
            if let Some(volume) = volume_of(&**listers, pod, name).map_err(Status::unresolvable)? {
                topologies.extend(volume_topologies(&volume));
            }
        }
        if topologies.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        state.put(VolumeTopologies(topologies));
        Ok(PreFilterResult::All)
    }
}

impl Filter for VolumeZone {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(VolumeTopologies(topologies)) = state.get::<VolumeTopologies>() else {
            return Ok(());
        };
        let labels = &node.node().meta.labels;
        if !TOPOLOGY_LABELS.iter().any(|(key, _)| labels.contains(key)) {
            // A node without topology labels has no zone that could conflict.
            return Ok(());
        }
        let matches = |topology: &VolumeTopology| {
            let node_value = labels.get(topology.key).or_else(|| labels.get(topology.replacement));
            node_value.is_some_and(|label| topology.values.iter().any(|value| **value == *label))
        };
        if topologies.iter().all(matches) {
            Ok(())
        } else {
            Err(Status::unresolvable(ERR_REASON_CONFLICT))
        }
    }
}

/// Returns the volume of a claim, or `None` if the claim is bound only after the pod is scheduled
/// (`WaitForFirstConsumer`).
///
/// # Errors
/// Returns upstream's message if the claim, its volume or its class does not exist, or if the claim must be bound
/// before the pod is scheduled.
fn volume_of(
    listers: &dyn VolumeListers,
    pod: &Pod,
    name: &str,
) -> Result<Option<std::sync::Arc<PersistentVolume>>, String> {
    if name.is_empty() {
        return Err("PersistentVolumeClaim had no name".to_owned());
    }
    let claim =
        listers.claim(&pod.meta.namespace, name).ok_or_else(|| not_found(CLAIM_RESOURCE, name))?;
    let volume = &*claim.spec.volume_name;
    if !volume.is_empty() {
        return listers.volume(volume).ok_or_else(|| not_found(VOLUME_RESOURCE, volume)).map(Some);
    }
    let class = volume::class_of_claim(&claim);
    if class.is_empty() {
        return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
    }
    let class = listers.class(class).ok_or_else(|| not_found(CLASS_RESOURCE, class))?;
    if class.volume_binding_mode.is_empty() {
        return Err(format!("VolumeBindingMode not set for StorageClass \"{}\"", class.meta.name));
    }
    if volume::waits_for_consumer(&class) {
        return Ok(None);
    }
    Err("PersistentVolume had no name".to_owned())
}

/// Returns the topology labels of a volume, except those with an empty zone.
fn volume_topologies(volume: &PersistentVolume) -> Vec<VolumeTopology> {
    let labels = &volume.meta.labels;
    let topology = |(key, replacement): (&'static str, &'static str)| {
        let zones = labels.get(key)?.split(ZONE_DELIMITER);
        let mut values: Vec<Box<str>> = zones.map(|zone| zone.trim().into()).collect();
        values.sort_unstable();
        values.dedup();
        let has_empty_zone = values.iter().any(|zone| zone.is_empty());
        if has_empty_zone { None } else { Some(VolumeTopology { key, replacement, values }) }
    };
    TOPOLOGY_LABELS.into_iter().filter_map(topology).collect()
}
