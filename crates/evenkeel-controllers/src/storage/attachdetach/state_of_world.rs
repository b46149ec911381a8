//! State of world: caches and indexes of volumes, of the pods that use them, and of attachments.

use super::{
    iscsi_fc,
    plan::{self, DesiredVolume},
};
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
    pub(super) by_node: Index<VolumeAttachment>,
    pub(super) by_volume: Index<VolumeAttachment>,
    /// Nodes by the names of the network devices in their `volumesAttached`.
    reported_attached: Index<Node>,
    on_node: Index<Pod>,
    pub(super) users: Index<Pod>,
}

impl StateOfWorld {
    pub(super) fn new(caches: &Caches) -> Self {
        let (nodes, pods) = (caches.of::<Node>(), caches.of::<Pod>());
        let attachments = caches.of::<VolumeAttachment>();
        Self {
            claims: caches.of(),
            volumes: caches.of(),
            drivers: caches.of(),
            by_node: attachments.index("node", |attachment, key| key(&attachment.spec.node_name)),
            by_volume: attachments.index("volume", |attachment, key| {
                if let Some(volume) = &attachment.spec.source.persistent_volume_name {
                    key(volume);
                }
            }),
            reported_attached: nodes.index("network device", |node, key| {
                let attached = node.status.volumes_attached.iter().map(|one| &*one.name);
                attached.filter(|name| iscsi_fc::is_iscsi_or_fc(name)).for_each(&mut *key);
            }),
            on_node: pods.index("node", corev1::node_key),
            users: pods.index("claim", claims::keys_of_pod),
            nodes,
            pods,
            attachments,
        }
    }

    /// Returns the volumes that the pods of a node use. Upstream: `DesiredStateOfWorldPopulator`.
    pub(super) fn desired_volumes(&self, node: &str) -> Vec<DesiredVolume> {
        let mut desired: Vec<DesiredVolume> = Vec::new();
        for pod in self.on_node.get(node) {
            if !plan::needs_volumes(&pod) {
                continue;
            }
            let claimed = claims::of_pod(&pod).filter_map(|used| {
                let volume = self.volume(&pod, &used)?;
                let name = attach::attached_name(&volume)
                    .or_else(|| iscsi_fc::unique_volume_name(&volume))?;
                Some((Text::from(name), volume.meta.name.clone(), Some(volume)))
            });
            let inline = pod.spec.volumes.iter().filter_map(|volume| {
                let name = iscsi_fc::unique_volume_name_of_inline(&volume.source)?;
                Some((Text::from(name), volume.name.clone(), None))
            });
            for (name, volume_name, volume) in claimed.chain(inline) {
                match desired.iter_mut().find(|one| one.name == name) {
                    Some(one) if one.pods.iter().any(|known| Arc::ptr_eq(known, &pod)) => {}
                    Some(one) => one.pods.push(Arc::clone(&pod)),
                    None => desired.push(self.desired_volume(name, volume_name, volume, &pod)),
                }
            }
        }
        desired.sort_by(|a, b| a.name.cmp(&b.name));
        for one in &mut desired {
            one.pods.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        }
        desired
    }

    /// Returns the entry of a volume that the pod uses, with the other nodes that have the volume.
    fn desired_volume(
        &self,
        name: Text,
        volume_name: Text,
        volume: Option<Arc<PersistentVolume>>,
        pod: &Arc<Pod>,
    ) -> DesiredVolume {
        let mut elsewhere: Vec<Text> = if iscsi_fc::is_iscsi_or_fc(&name) {
            self.reported_attached.get(&name).iter().map(|node| node.meta.name.clone()).collect()
        } else {
            let attachments = self.by_volume.get(&volume_name);
            attachments.iter().map(|attachment| attachment.spec.node_name.clone()).collect()
        };
        elsewhere.retain(|other| *other != pod.spec.node_name);
        let others = match &volume {
            Some(volume) if !elsewhere.is_empty() => self.others(pod, volume),
            _ => Vec::new(),
        };
        DesiredVolume { name, volume_name, volume, pods: vec![Arc::clone(pod)], elsewhere, others }
    }

    /// Returns the PersistentVolume bound to a pod's claim, if the controller must attach it.
    fn volume(&self, pod: &Pod, used: &claims::ClaimUse<'_>) -> Option<Arc<PersistentVolume>> {
        let volume = self.bound(pod, used)?;
        let attaches = match csi_translation::driver_and_handle(&volume) {
            Some((driver, _)) => {
                let driver = self.drivers.get("", &driver);
                driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
            }
            None => iscsi_fc::unique_volume_name(&volume).is_some(),
        };
        attaches.then_some(volume)
    }

    /// Returns the PersistentVolume bound to a pod's claim.
    pub(super) fn bound(
        &self,
        pod: &Pod,
        used: &claims::ClaimUse<'_>,
    ) -> Option<Arc<PersistentVolume>> {
        let claim = self.claims.get(&pod.meta.namespace, &used.claim_name(pod))?;
        let own = !used.ephemeral || ephemeral::made_for_pod(&claim, pod).is_ok();
        let volume = self.volumes.get("", &claim.spec.volume_name)?;
        let bound = volume.spec.claim_ref.as_deref().is_some_and(|of| of.uid == claim.meta.uid);
        (own && bound && &*claim.status.phase == "Bound").then_some(volume)
    }

    /// Returns the pods on other nodes that use the volume.
    fn others(&self, pod: &Pod, volume: &PersistentVolume) -> Vec<Arc<Pod>> {
        let Some(claim) = volume.spec.claim_ref.as_deref() else { return Vec::new() };
        let users = self.users.get(&claims::key(&claim.namespace, &claim.name));
        let mut others: Vec<Arc<Pod>> = users
            .into_iter()
            .filter(|other| {
                !other.spec.node_name.is_empty()
                    && other.spec.node_name != pod.spec.node_name
                    && plan::needs_volumes(other)
            })
            .collect();
        others.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        others
    }
}
