//! Lookups of claims, volumes and related objects for the volume plugins.

use evenkeel_api::views::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, Pod,
    StorageClass, VolumeAttachment,
};
use evenkeel_runtime::cache::{Cache, Index};
use std::sync::Arc;

use crate::framework::Handle;

/// Source of the objects that determine volumes and their topology. Tests implement it without caches.
pub(super) trait VolumeListers: Send + Sync {
    /// Returns the claim with this namespace and name.
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>>;
    /// Returns the volume with this name.
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// Returns the StorageClass with this name.
    fn class(&self, name: &str) -> Option<Arc<StorageClass>>;
    /// Returns the CSINode of the node with this name.
    fn csi_node(&self, name: &str) -> Option<Arc<CsiNode>>;
    /// Returns the CSIDriver with this name.
    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>>;
    /// Returns the VolumeAttachments of a node.
    fn attachments(&self, node: &str) -> Vec<Arc<VolumeAttachment>>;
    /// Returns the CSIStorageCapacities of a class.
    fn capacities(&self, class: &str) -> Vec<Arc<CsiStorageCapacity>>;
}

/// Caches of these objects, for one plugin.
pub(super) struct VolumeCaches {
    pub(super) claims: Cache<PersistentVolumeClaim>,
    pub(super) volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    csi_nodes: Cache<CsiNode>,
    drivers: Cache<CsiDriver>,
    /// VolumeAttachments by node.
    attachments: Index<VolumeAttachment>,
    /// CSIStorageCapacities by StorageClass.
    capacities: Index<CsiStorageCapacity>,
}

impl VolumeCaches {
    /// Requests the caches. Changes of their objects requeue pods.
    pub(super) fn new(handle: &Handle) -> Self {
        let attachments = handle.watch::<VolumeAttachment>();
        let capacities = handle.watch::<CsiStorageCapacity>();
        Self {
            claims: handle.watch(),
            volumes: handle.watch(),
            classes: handle.watch(),
            csi_nodes: handle.watch(),
            drivers: handle.watch(),
            attachments: attachments
                .index("node", |attachment, key| key(&attachment.spec.node_name)),
            capacities: capacities
                .index("class", |capacity, key| key(&capacity.storage_class_name)),
        }
    }
}

impl VolumeListers for VolumeCaches {
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(namespace, name)
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get("", name)
    }

    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.get("", name)
    }

    fn csi_node(&self, name: &str) -> Option<Arc<CsiNode>> {
        self.csi_nodes.get("", name)
    }

    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
        self.drivers.get("", name)
    }

    fn attachments(&self, node: &str) -> Vec<Arc<VolumeAttachment>> {
        self.attachments.get(node)
    }

    fn capacities(&self, class: &str) -> Vec<Arc<CsiStorageCapacity>> {
        self.capacities.get(class)
    }
}

/// Returns the names of the claims in the pod's volumes, without those of ephemeral volumes.
pub(super) fn named_claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let sources = pod
        .spec
        .volumes
        .iter()
        .filter_map(|volume| volume.source.persistent_volume_claim.as_deref());
    sources.map(|source| &*source.claim_name)
}

/// Returns upstream's message for an object that does not exist.
pub(super) fn not_found(resource: &str, name: &str) -> String {
    format!("{resource} \"{name}\" not found")
}

/// Name of PersistentVolumeClaims in upstream's messages.
pub(super) const CLAIM_RESOURCE: &str = "persistentvolumeclaim";
/// Name of PersistentVolumes in upstream's messages.
pub(super) const VOLUME_RESOURCE: &str = "persistentvolume";
/// Name of StorageClasses in upstream's messages.
pub(super) const CLASS_RESOURCE: &str = "storageclass.storage.k8s.io";

#[cfg(test)]
pub(super) mod test_objects {
    //! Lookups of the objects of a test.

    use super::*;
    use evenkeel_api::{Encoding, View};
    use serde_json::{Value, json};

    use crate::fixtures::merge;

    /// The objects of a test.
    #[derive(Default, Clone)]
    pub(crate) struct VolumeObjects {
        pub(crate) claims: Vec<Arc<PersistentVolumeClaim>>,
        pub(crate) volumes: Vec<Arc<PersistentVolume>>,
        pub(crate) classes: Vec<Arc<StorageClass>>,
        pub(crate) csi_nodes: Vec<Arc<CsiNode>>,
        pub(crate) drivers: Vec<Arc<CsiDriver>>,
        pub(crate) attachments: Vec<Arc<VolumeAttachment>>,
        pub(crate) capacities: Vec<Arc<CsiStorageCapacity>>,
    }

    fn named<V: View>(objects: &[Arc<V>], namespace: &str, name: &str) -> Option<Arc<V>> {
        objects
            .iter()
            .find(|object| *object.meta().name == *name && *object.meta().namespace == *namespace)
            .cloned()
    }

    impl VolumeListers for VolumeObjects {
        fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
            named(&self.claims, namespace, name)
        }
        fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
            named(&self.volumes, "", name)
        }
        fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
            named(&self.classes, "", name)
        }
        fn csi_node(&self, name: &str) -> Option<Arc<CsiNode>> {
            named(&self.csi_nodes, "", name)
        }
        fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
            named(&self.drivers, "", name)
        }
        fn attachments(&self, node: &str) -> Vec<Arc<VolumeAttachment>> {
            self.attachments
                .iter()
                .filter(|attachment| *attachment.spec.node_name == *node)
                .cloned()
                .collect()
        }
        fn capacities(&self, class: &str) -> Vec<Arc<CsiStorageCapacity>> {
            self.capacities
                .iter()
                .filter(|capacity| *capacity.storage_class_name == *class)
                .cloned()
                .collect()
        }
    }

    /// Returns an object with this name, with `more` merged into it.
    pub(crate) fn object<V: View>(name: &str, more: &Value) -> Arc<V> {
        let mut base = json!({"metadata": {"name": name, "uid": name}});
        if V::kind().namespaced {
            base["metadata"]["namespace"] = json!("shop");
        }
        merge(&mut base, more);
        Arc::new(V::decode(base.to_string().as_bytes(), Encoding::Json).unwrap())
    }

    /// Returns the fields of a pod with volumes that refer to these claims.
    pub(crate) fn using(claims: &[&str]) -> Value {
        let volumes: Vec<Value> = claims
            .iter()
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .collect();
        json!({"spec": {"volumes": volumes}})
    }

    /// Returns a claim that is bound to the volume.
    pub(crate) fn bound(name: &str, volume: &str) -> Arc<PersistentVolumeClaim> {
        object(
            name,
            &json!({
                "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
            }),
        )
    }
}
