//! NodeVolumeLimits: rejects nodes that would exceed the volume limit that the kubelet reports for a driver.
//!
//! Upstream: `plugins/nodevolumelimits/csi.go`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `spec.drivers[].allocatable.count` of the CSINode | `limit_of`, `filter` |
//! | volumes count once for each driver and handle | `count::CsiVolume`, `count::volumes_on_node` |
//! | unbound claims count for the provisioner of their class | `count::volume_of_claim`, `count::placeholder_for_claim` |
//! | in-tree volumes that migrated to CSI | `count::volume_of_inline_source` |
//! | VolumeAttachments of volumes that no pod on the node uses | `count::attached_volumes` |
//! | `preventPodSchedulingIfMissing` of the CSIDriver | `requires_driver`, `has_driver` |

mod count;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use evenkeel_api::views::{CsiNode, CsiNodeDriver, Pod, Volume};
use evenkeel_component_helpers::storage::{claims, csi_translation};

use super::volumes::{VolumeCaches, VolumeListers, named_claims};
use crate::{
    framework::{
        ActionType, Change, ClusterEvent, CycleState, Delta, EventResource, Filter, Handle,
        ObjectChange, Plugin, PreFilter, PreFilterResult, QueueingHint, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};
use count::CsiVolume;

/// Reason of a rejection. Upstream: `ErrReasonMaxVolumeCountExceeded`.
const MAX_VOLUME_COUNT_EXCEEDED: &str = "node(s) exceed max volume count";

/// Filter plugin that compares the CSI volumes of a node and of the pod with the node's limits.
pub struct NodeVolumeLimits {
    /// Set by [`Plugin::connect`].
    listers: OnceLock<Box<dyn VolumeListers>>,
    rejects_missing_drivers: bool,
}

impl Default for NodeVolumeLimits {
    fn default() -> Self {
        Self::new(true)
    }
}

impl NodeVolumeLimits {
    /// Returns the plugin. With `rejects_missing_drivers`, it rejects nodes that lack the CSI driver of a volume, if its
    /// CSIDriver sets `preventPodSchedulingIfMissing`.
    pub fn new(rejects_missing_drivers: bool) -> Self {
        Self { listers: OnceLock::new(), rejects_missing_drivers }
    }
}

impl std::fmt::Debug for NodeVolumeLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeVolumeLimits")
    }
}

/// CSI volumes of the pod that PreFilter stores in the cycle state, or the status with which Filter rejects every node.
struct VolumesToAttach(Result<Vec<CsiVolume>, Status>);

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn connect(&self, handle: &Handle) {
        self.listers.get_or_init(|| Box::new(VolumeCaches::new(handle)));
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::CsiNode, &[ActionType::Add, ActionType::Update]),
            ClusterEvent::new(EventResource::AssignedPod, &[ActionType::Delete]),
            ClusterEvent::new(EventResource::PersistentVolumeClaim, &[ActionType::Add]),
            ClusterEvent::new(EventResource::VolumeAttachment, &[ActionType::Delete]),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        let pod = &pod.pod;
        match change {
            Change::AssignedPod(Delta::Deleted(deleted)) => {
                QueueingHint::when(deleted.pod.spec.volumes.iter().any(may_be_csi_volume))
            }
            Change::Object(ObjectChange::CsiNode(edit)) => match edit {
                Delta::Added(_) => QueueingHint::Queue,
                Delta::Updated { old, new } => QueueingHint::when(has_higher_limit(old, new)),
                Delta::Deleted(_) => QueueingHint::Skip,
            },
            Change::Object(ObjectChange::PersistentVolumeClaim(Delta::Added(claim))) => {
                QueueingHint::when(
                    claim.meta.namespace == pod.meta.namespace
                        && claims::of_pod(pod).any(|used| used.claim_name(pod) == *claim.meta.name),
                )
            }
            Change::Object(ObjectChange::VolumeAttachment(Delta::Deleted(deleted))) => {
                let mut drivers_of_inline_volumes = pod.spec.volumes.iter().filter_map(|volume| {
                    let plugin = csi_translation::plugin_of_inline(&volume.source)?;
                    csi_translation::driver_of(plugin)
                });
                // The hint does not look up the driver of a claim, so any claim may belong to the attachment's driver.
                let uses_claim = named_claims(pod).next().is_some();
                QueueingHint::when(
                    uses_claim
                        || drivers_of_inline_volumes
                            .any(|driver| *deleted.spec.attacher == *driver),
                )
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

/// Returns whether the volume may belong to a CSI driver.
fn may_be_csi_volume(volume: &Volume) -> bool {
    let source = &volume.source;
    source.persistent_volume_claim.is_some()
        || source.ephemeral.is_some()
        || csi_translation::plugin_of_inline(source).is_some()
}

/// Returns an upper bound of the number of CSI volumes that the pod uses.
fn max_csi_volumes_of(pod: &Pod) -> usize {
    pod.spec.volumes.iter().filter(|volume| may_be_csi_volume(volume)).count()
}

/// Returns the maximum number of the driver's volumes on the node, or `None` if there is no limit.
fn limit_of(driver: &CsiNodeDriver) -> Option<i32> {
    driver.allocatable.as_deref().and_then(|allocatable| allocatable.count)
}

/// Returns whether the node's limit for some driver increased.
fn has_higher_limit(old: &CsiNode, new: &CsiNode) -> bool {
    let old_limit = |name: &str| {
        let driver = old.spec.drivers.iter().find(|driver| *driver.name == *name);
        driver.and_then(limit_of).unwrap_or(0)
    };
    new.spec.drivers.iter().any(|driver| limit_of(driver).unwrap_or(0) > old_limit(&driver.name))
}

impl PreFilter for NodeVolumeLimits {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let Some(listers) = self.listers.get().filter(|_| max_csi_volumes_of(&pod.pod) > 0) else {
            return Ok(PreFilterResult::Skip);
        };
        state.put(VolumesToAttach(count::volumes_of_pod(&**listers, &pod.pod)));
        Ok(PreFilterResult::All)
    }
}

impl Filter for NodeVolumeLimits {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let (Some(VolumesToAttach(volumes)), Some(listers)) =
            (state.get::<VolumesToAttach>(), self.listers.get())
        else {
            return Ok(());
        };
        let volumes = volumes.as_ref().map_err(Clone::clone)?;
        let csi_node = listers.csi_node(node.name());
        let csi_node = csi_node.as_deref();
        let mut pod_volumes: Vec<&CsiVolume> =
            volumes.iter().filter(|volume| volume.counts_on(csi_node)).collect();
        if self.rejects_missing_drivers {
            reject_missing_driver(&**listers, &pod_volumes, csi_node)?;
        }
        let drivers = csi_node.map_or(&[][..], |csi_node| &csi_node.spec.drivers);
        let limit_on_node = |driver: &str| {
            let driver = drivers.iter().find(|candidate| *candidate.name == *driver);
            driver.and_then(limit_of)
        };
        pod_volumes.retain(|volume| limit_on_node(&volume.driver).is_some());
        let limits = pod_volumes.iter().filter_map(|volume| limit_on_node(&volume.driver));
        let Some(lowest_limit) = limits.min() else { return Ok(()) };
        // Usually even all volumes and attachments of the node together stay below the lowest limit. Then the drivers
        // of the volumes need not be looked up.
        let attachments = listers.attachments(node.name());
        let pods = node.pods();
        let max_used =
            pods.iter().map(|pod| max_csi_volumes_of(&pod.pod)).sum::<usize>() + attachments.len();
        if max_used + pod_volumes.len() <= usize::try_from(lowest_limit).unwrap_or(0) {
            return Ok(());
        }
        let existing =
            count::volumes_on_node(&**listers, pods.iter().map(|pod| &*pod.pod), csi_node)?;
        let attached = count::attached_volumes(&**listers, &attachments);
        let mut new_volumes = pod_volumes;
        new_volumes.retain(|volume| !existing.contains(*volume));
        for volume in &new_volumes {
            let is_of_driver = |other: &&CsiVolume| other.driver == volume.driver;
            let attached = attached.iter().filter(is_of_driver);
            let only_attached = attached.filter(|other| !existing.contains(*other));
            let n_used = existing.iter().filter(is_of_driver).count() + only_attached.count();
            let n_new = new_volumes.iter().filter(|other| is_of_driver(other)).count();
            let limit = limit_on_node(&volume.driver)
                .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
            if n_used + n_new > limit {
                return Err(Status::unschedulable(MAX_VOLUME_COUNT_EXCEEDED));
            }
        }
        Ok(())
    }
}

/// Rejects the node if it lacks a driver of these volumes whose CSIDriver sets `preventPodSchedulingIfMissing`.
fn reject_missing_driver(
    listers: &dyn VolumeListers,
    volumes: &[&CsiVolume],
    csi_node: Option<&CsiNode>,
) -> StatusResult {
    for CsiVolume { driver, .. } in volumes {
        if requires_driver(listers, driver) && !has_driver(csi_node, driver) {
            let reason = format!("{driver} CSI driver is not installed on the node");
            return Err(Status::unschedulable(reason));
        }
    }
    Ok(())
}

/// Returns whether pods that use the driver must not be scheduled to nodes without it.
fn requires_driver(listers: &dyn VolumeListers, driver: &str) -> bool {
    listers
        .driver(driver)
        .is_some_and(|driver| driver.spec.prevent_pod_scheduling_if_missing == Some(true))
}

/// Returns whether the CSINode lists the driver.
fn has_driver(csi_node: Option<&CsiNode>, driver: &str) -> bool {
    csi_node
        .is_some_and(|node| node.spec.drivers.iter().any(|installed| *installed.name == *driver))
}
