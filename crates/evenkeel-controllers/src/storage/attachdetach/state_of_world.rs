//! State of world: caches and indexes of volumes, of the pods that use them, and of VolumeAttachments.

use super::plan::{self, DesiredVolume};
use crate::storage::iscsi_fc;
use evenkeel_api::{
    Text,
    views::{CsiDriver, Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment},
};
use evenkeel_component_helpers::{
    scheduling::corev1,
    storage::{attach, claims, csi_translation, ephemeral},
};
use evenkeel_runtime::cache::{Cache, Caches, Index};
use std::sync::Arc;

/// Caches and indexes of the attach-detach controller.
pub(super) struct StateOfWorld {
    pub(super) nodes: Cache<Node>,
    pub(super) pods: Cache<Pod>,
    pub(super) claims: Cache<PersistentVolumeClaim>,
    pub(super) volumes: Cache<PersistentVolume>,
    pub(super) drivers: Cache<CsiDriver>,
    pub(super) attachments: Cache<VolumeAttachment>,
    pub(super) attachments_by_node: Index<VolumeAttachment>,
    pub(super) attachments_by_volume: Index<VolumeAttachment>,
    /// Nodes by the network devices in their `status.volumesAttached`.
    nodes_by_network_device: Index<Node>,
    /// Pods by the node on which they run.
    pods_by_node: Index<Pod>,
    /// Pods by the claims that they use.
    pub(super) pods_by_claim: Index<Pod>,
}

/// An attachable volume that a pod uses.
struct UsedVolume {
    /// Unique name of the volume, as in the status of nodes.
    name: Text,
    /// Name of the PersistentVolume, or of the inline volume in the pod.
    volume_name: Text,
    /// The PersistentVolume. `None` for an inline volume.
    volume: Option<Arc<PersistentVolume>>,
}

impl StateOfWorld {
    pub(super) fn new(caches: &Caches) -> Self {
        let nodes = caches.of::<Node>();
        let pods = caches.of::<Pod>();
        let attachments = caches.of::<VolumeAttachment>();
        Self {
            claims: caches.of(),
            volumes: caches.of(),
            drivers: caches.of(),
            attachments_by_node: attachments
                .index("node", |attachment, key| key(&attachment.spec.node_name)),
            attachments_by_volume: attachments.index("volume", |attachment, key| {
                if let Some(volume) = &attachment.spec.source.persistent_volume_name {
                    key(volume);
                }
            }),
            nodes_by_network_device: nodes.index("network device", |node, key| {
                let attached = node.status.volumes_attached.iter().map(|volume| &*volume.name);
                attached.filter(|name| iscsi_fc::is_iscsi_or_fc(name)).for_each(&mut *key);
            }),
            pods_by_node: pods.index("node", corev1::node_key),
            pods_by_claim: pods.index("claim", claims::keys_of_pod),
            nodes,
            pods,
            attachments,
        }
    }

    /// Returns the attachable volumes that the pods of a node use, sorted by name. Upstream:
    /// `DesiredStateOfWorldPopulator`.
    pub(super) fn desired_volumes(&self, node: &str) -> Vec<DesiredVolume> {
        let mut desired: Vec<DesiredVolume> = Vec::new();
        for pod in self.pods_by_node.get(node) {
            if !plan::needs_volumes(&pod) {
                continue;
            }
            let claimed = claims::of_pod(&pod).filter_map(|used| {
                let volume = self.attachable_volume(&pod, &used)?;
                let name = attach::attached_name(&volume)
                    .or_else(|| iscsi_fc::unique_volume_name(&volume))?;
                Some(UsedVolume {
                    name: name.into(),
                    volume_name: volume.meta.name.clone(),
                    volume: Some(volume),
                })
            });
            let inline = pod.spec.volumes.iter().filter_map(|volume| {
                let name = iscsi_fc::unique_volume_name_of_inline(&volume.source)?;
                let volume_name = volume.name.clone();
                Some(UsedVolume { name: name.into(), volume_name, volume: None })
            });
            for used in claimed.chain(inline) {
                match desired.iter_mut().find(|entry| entry.name == used.name) {
                    // The pod uses the volume twice.
                    Some(entry) if entry.pods.iter().any(|other| Arc::ptr_eq(other, &pod)) => {}
                    Some(entry) => entry.pods.push(Arc::clone(&pod)),
                    None => desired.push(self.desired_volume(used, &pod)),
                }
            }
        }
        desired.sort_by(|a, b| a.name.cmp(&b.name));
        for volume in &mut desired {
            volume.pods.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        }
        desired
    }

    /// Returns the entry of a volume that the pod uses, with the other nodes to which the volume is attached.
    fn desired_volume(&self, used: UsedVolume, pod: &Arc<Pod>) -> DesiredVolume {
        let UsedVolume { name, volume_name, volume } = used;
        let mut other_nodes: Vec<Text> = if iscsi_fc::is_iscsi_or_fc(&name) {
            let nodes = self.nodes_by_network_device.get(&name);
            nodes.iter().map(|node| node.meta.name.clone()).collect()
        } else {
            let attachments = self.attachments_by_volume.get(&volume_name);
            attachments.iter().map(|attachment| attachment.spec.node_name.clone()).collect()
        };
        other_nodes.retain(|node| *node != pod.spec.node_name);
        let pods_elsewhere = match &volume {
            Some(volume) if !other_nodes.is_empty() => self.pods_elsewhere(pod, volume),
            _ => Vec::new(),
        };
        let pods = vec![Arc::clone(pod)];
        DesiredVolume { name, volume_name, volume, pods, other_nodes, pods_elsewhere }
    }

    /// Returns the PersistentVolume bound to a pod's claim, if the controller must attach it.
    fn attachable_volume(
        &self,
        pod: &Pod,
        used: &claims::ClaimUse<'_>,
    ) -> Option<Arc<PersistentVolume>> {
        let volume = self.bound_volume(pod, used)?;
        let is_attachable = match csi_translation::driver_and_handle(&volume) {
            Some((driver, _)) => {
                let driver = self.drivers.get("", &driver);
                driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
            }
            None => iscsi_fc::unique_volume_name(&volume).is_some(),
        };
        is_attachable.then_some(volume)
    }

    /// Returns the PersistentVolume bound to a pod's claim.
    pub(super) fn bound_volume(
        &self,
        pod: &Pod,
        used: &claims::ClaimUse<'_>,
    ) -> Option<Arc<PersistentVolume>> {
        let claim = self.claims.get(&pod.meta.namespace, &used.claim_name(pod))?;
        let may_use = !used.is_ephemeral || ephemeral::made_for_pod(&claim, pod).is_ok();
        let volume = self.volumes.get("", &claim.spec.volume_name)?;
        let reference = volume.spec.claim_ref.as_deref();
        let is_bound = &*claim.status.phase == "Bound"
            && reference.is_some_and(|reference| reference.uid == claim.meta.uid);
        (may_use && is_bound).then_some(volume)
    }

    /// Returns the pods on other nodes that use the volume.
    fn pods_elsewhere(&self, pod: &Pod, volume: &PersistentVolume) -> Vec<Arc<Pod>> {
        let Some(claim) = volume.spec.claim_ref.as_deref() else { return Vec::new() };
        let users = self.pods_by_claim.get(&claims::key(&claim.namespace, &claim.name));
        let mut pods: Vec<Arc<Pod>> = users
            .into_iter()
            .filter(|other| {
                !other.spec.node_name.is_empty()
                    && other.spec.node_name != pod.spec.node_name
                    && plan::needs_volumes(other)
            })
            .collect();
        pods.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        pods
    }
}
