//! VolumeRestrictions: enforces exclusive use of some disks on a node, and of `ReadWriteOncePod` claims in the cluster.
//!
//! Upstream: `plugins/volumerestrictions`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | access mode `ReadWriteOncePod` (KEP-2485) | `pre_filter`, `RestrictedVolumes` |
//! | preemption of the pod that uses such a claim | `add_pod`, `remove_pod` |
//! | pods on a node share a GCE disk, an iSCSI or RBD volume only if all of them mount it read-only, and never share an EBS volume | `is_volume_conflict` |

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use evenkeel_api::views::{Pod, VolumeSource};

use super::volumes::{CLAIM_RESOURCE, VolumeCaches, VolumeListers, named_claims, not_found};
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, Delta, EventResource, Filter, Handle,
        ObjectChange, Plugin, PreFilter, PreFilterResult, QueueingHint, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Reason of a rejection. Upstream: `ErrReasonDiskConflict`.
const DISK_IN_USE: &str = "node(s) had no available disk";
/// Reason of a rejection. Upstream: `ErrReasonReadWriteOncePodConflict`.
const CLAIM_IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The VolumeRestrictions plugin. It rejects nodes where a disk of the pod is in use. If a `ReadWriteOncePod` claim of
/// the pod is in use, it rejects all nodes.
#[derive(Default)]
pub struct VolumeRestrictions {
    /// Set by [`Plugin::connect`].
    listers: OnceLock<Box<dyn VolumeListers>>,
}

impl std::fmt::Debug for VolumeRestrictions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumeRestrictions")
    }
}

/// Volumes of a pod that other pods may not share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RestrictedVolumes {
    /// Whether the pod has inline volumes that may conflict on a node.
    has_disks: bool,
    /// Names of the pod's `ReadWriteOncePod` claims.
    exclusive_claims: Vec<Arc<str>>,
    /// Number of references to these claims by other pods on nodes.
    claim_users: i64,
}

impl RestrictedVolumes {
    /// Adds another pod's references to the exclusive claims if `sign` is 1, or subtracts them if it is -1.
    fn count_references(&mut self, other: &Pod, sign: i64) {
        let is_exclusive =
            |name: &&str| self.exclusive_claims.iter().any(|claim| **claim == **name);
        self.claim_users += sign * named_claims(other).filter(is_exclusive).count() as i64;
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn connect(&self, handle: &Handle) {
        self.listers.get_or_init(|| Box::new(VolumeCaches::new(handle)));
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::AssignedPod, &[ActionType::Delete]),
            ClusterEvent::new(EventResource::Node, &[ActionType::Add]),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, &[ActionType::Add]),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let pod = &pod.pod;
        match change {
            Change::AssignedPod(Delta::Deleted(deleted)) => {
                let deleted = &deleted.pod;
                let share_claim = || {
                    let mut names = named_claims(pod);
                    names.any(|name| named_claims(deleted).any(|other| name == other))
                };
                QueueingHint::when(
                    deleted.meta.namespace == pod.meta.namespace
                        && (have_conflicting_disks(pod, deleted) || share_claim()),
                )
            }
            Change::Node(Delta::Added(_)) => QueueingHint::Queue,
            Change::Object(ObjectChange::PersistentVolumeClaim(edit)) if edit.is_added() => {
                QueueingHint::when(edit.after().is_some_and(|claim| {
                    claim.meta.namespace == pod.meta.namespace
                        && named_claims(pod).any(|name| *name == *claim.meta.name)
                }))
            }
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

impl PreFilter for VolumeRestrictions {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let pod = &pod.pod;
        if pod.spec.volumes.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        let mut restricted = RestrictedVolumes {
            has_disks: pod.spec.volumes.iter().any(|volume| is_disk(&volume.source)),
            ..RestrictedVolumes::default()
        };
        for name in named_claims(pod) {
            let claim =
                self.listers.get().and_then(|listers| listers.claim(&pod.meta.namespace, name));
            let claim =
                claim.ok_or_else(|| Status::unresolvable(not_found(CLAIM_RESOURCE, name)))?;
            let is_exclusive =
                claim.spec.access_modes.iter().any(|mode| **mode == *"ReadWriteOncePod");
            if is_exclusive && !restricted.exclusive_claims.iter().any(|known| **known == *name) {
                // A used claim counts once, because only one pod can use it.
                let is_in_use = nodes.uses_claim(&pod.meta.namespace, name);
                restricted.claim_users += i64::from(is_in_use);
                restricted.exclusive_claims.push(name.into());
            }
        }
        if !restricted.has_disks && restricted.claim_users == 0 {
            return Ok(PreFilterResult::Skip);
        }
        state.put(restricted);
        Ok(PreFilterResult::All)
    }

    fn add_pod(&self, state: &mut CycleState, _: &PodInfo, other: &PodInfo, _: NodeRef<'_>) {
        if let Some(restricted) = state.get_mut::<RestrictedVolumes>() {
            restricted.count_references(&other.pod, 1);
        }
    }

    fn remove_pod(&self, state: &mut CycleState, _: &PodInfo, other: &PodInfo, _: NodeRef<'_>) {
        if let Some(restricted) = state.get_mut::<RestrictedVolumes>() {
            restricted.count_references(&other.pod, -1);
        }
    }
}

impl Filter for VolumeRestrictions {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(restricted) = state.get::<RestrictedVolumes>() else { return Ok(()) };
        if restricted.has_disks
            && node.pods().iter().any(|other| have_conflicting_disks(&pod.pod, &other.pod))
        {
            return Err(Status::unschedulable(DISK_IN_USE));
        }
        if restricted.claim_users > 0 {
            return Err(Status::unschedulable(CLAIM_IN_USE));
        }
        Ok(())
    }
}

/// Returns whether the volume is of a type that two pods on a node may not always share.
fn is_disk(source: &VolumeSource) -> bool {
    source.gce_persistent_disk.is_some()
        || source.aws_elastic_block_store.is_some()
        || source.rbd.is_some()
        || source.iscsi.is_some()
}

/// Returns whether the pods cannot run on the same node, because they have conflicting disks.
fn have_conflicting_disks(pod: &Pod, other: &Pod) -> bool {
    let disks = pod.spec.volumes.iter().map(|volume| &volume.source).filter(|disk| is_disk(disk));
    let disks_in_use = || other.spec.volumes.iter().map(|volume| &volume.source);
    disks.into_iter().any(|disk| disks_in_use().any(|other| is_volume_conflict(disk, other)))
}

/// Returns whether both volumes are the same disk, and two pods on a node may not share it.
fn is_volume_conflict(a: &VolumeSource, b: &VolumeSource) -> bool {
    let gce = a.gce_persistent_disk.as_deref().zip(b.gce_persistent_disk.as_deref());
    let ebs = a.aws_elastic_block_store.as_deref().zip(b.aws_elastic_block_store.as_deref());
    let iscsi = a.iscsi.as_deref().zip(b.iscsi.as_deref());
    let rbd = a.rbd.as_deref().zip(b.rbd.as_deref());
    gce.is_some_and(|(a, b)| a.pd_name == b.pd_name && !(a.read_only && b.read_only))
        || ebs.is_some_and(|(a, b)| a.volume_id == b.volume_id)
        || iscsi.is_some_and(|(a, b)| a.iqn == b.iqn && !(a.read_only && b.read_only))
        || rbd.is_some_and(|(a, b)| {
            a.monitors.iter().any(|monitor| b.monitors.contains(monitor))
                && a.pool == b.pool
                && a.image == b.image
                && !(a.read_only && b.read_only)
        })
}
