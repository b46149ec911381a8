//! Views of the API group `storage.k8s.io`: volume classes, CSI drivers, attachments and capacities.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Unread;
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::text::Text;

message! {
    /// StorageClass: provisioner, binding mode, topology and reclaim policy of volumes.
    pub struct StorageClass("k8s.io.api.storage.v1.StorageClass") {
        /// Metadata; an annotation marks the default class.
        meta: Meta = 1 "metadata",
        /// Name of the provisioner; `kubernetes.io/no-provisioner` for volumes that are created manually.
        provisioner: Text = 2 "provisioner",
        /// `persistentVolumeReclaimPolicy` of provisioned volumes; `Delete` if absent.
        reclaim_policy: Text = 4 "reclaimPolicy",
        /// Whether claims of the class can be expanded; false if absent.
        allow_volume_expansion: Option<bool> = 6 "allowVolumeExpansion",
        /// `Immediate` (also when empty), or `WaitForFirstConsumer` to bind a claim only when a pod that uses it is
        /// scheduled.
        volume_binding_mode: Text = 7 "volumeBindingMode",
        /// Terms; a volume is provisioned for a node that matches at least one. Empty for all nodes.
        allowed_topologies: Box<[TopologySelectorTerm]> = 8 "allowedTopologies",
    }
}

view!(StorageClass, "storage.k8s.io", "v1", "StorageClass", "storageclasses", cluster_scoped);

message! {
    /// Requirements on the labels of a node. All of them must match.
    pub struct TopologySelectorTerm("k8s.io.api.core.v1.TopologySelectorTerm") {
        /// Requirements, each on a different label.
        match_label_expressions: Box<[TopologySelectorLabelRequirement]> = 1 "matchLabelExpressions",
    }
}

message! {
    /// Requirement that a topology label of a node has one of some values.
    pub struct TopologySelectorLabelRequirement("k8s.io.api.core.v1.TopologySelectorLabelRequirement") {
        /// Key of the label, such as `topology.kubernetes.io/zone`.
        key: Text = 1 "key",
        /// Allowed values of the label.
        values: Box<[Text]> = 2 "values",
    }
}

message! {
    /// CSI driver that is installed in the cluster.
    pub struct CsiDriver("k8s.io.api.storage.v1.CSIDriver") {
        /// Metadata; the object's name is the name of the driver.
        meta: Meta = 1 "metadata",
        /// Properties of the driver for controllers and the scheduler.
        spec: CsiDriverSpec = 2 "spec",
    }
}

view!(CsiDriver, "storage.k8s.io", "v1", "CSIDriver", "csidrivers", cluster_scoped);

message! {
    /// Properties of a CSI driver: attachment, storage capacity tracking, and whether nodes need the driver.
    pub struct CsiDriverSpec("k8s.io.api.storage.v1.CSIDriverSpec") {
        /// Whether volumes must be attached to a node before they are mounted; true if absent.
        attach_required: Option<bool> = 1 "attachRequired",
        /// Whether scheduling considers the driver's CSIStorageCapacities; false if absent.
        storage_capacity: Option<bool> = 4 "storageCapacity",
        /// Whether a pod that uses the driver's volumes is only scheduled to nodes whose CSINode lists the driver;
        /// false if absent.
        prevent_pod_scheduling_if_missing: Option<bool> = 11 "preventPodSchedulingIfMissing",
    }
}

message! {
    /// CSI drivers that are installed on a node.
    pub struct CsiNode("k8s.io.api.storage.v1.CSINode") {
        /// Metadata; the object's name is the name of the node.
        meta: Meta = 1 "metadata",
        /// Drivers on the node, with their limits.
        spec: CsiNodeSpec = 2 "spec",
    }
}

view!(CsiNode, "storage.k8s.io", "v1", "CSINode", "csinodes", cluster_scoped);

message! {
    /// CSI drivers of one node.
    pub struct CsiNodeSpec("k8s.io.api.storage.v1.CSINodeSpec") {
        /// Drivers that are registered with the node's kubelet.
        drivers: Box<[CsiNodeDriver]> = 1 "drivers",
    }
}

message! {
    /// CSI driver on a node, with the maximum number of its volumes there.
    pub struct CsiNodeDriver("k8s.io.api.storage.v1.CSINodeDriver") {
        /// Name of the driver, which is the name of its CSIDriver object.
        name: Text = 1 "name",
        /// Maximum number of the driver's volumes on the node; unlimited if absent.
        allocatable: Option<Box<VolumeNodeResources>> = 4 "allocatable",
    }
}

message! {
    /// Maximum number of a driver's volumes on a node.
    pub struct VolumeNodeResources("k8s.io.api.storage.v1.VolumeNodeResources") {
        /// Maximum number of volumes; unlimited if absent.
        count: Option<i32> = 1 "count",
    }
}

message! {
    /// Free capacity for volumes of one StorageClass on some nodes, as reported by a driver's external provisioner.
    pub struct CsiStorageCapacity("k8s.io.api.storage.v1.CSIStorageCapacity") {
        /// Metadata; the name is generated.
        meta: Meta = 1 "metadata",
        /// Selector of the nodes that can access the storage; none if absent.
        node_topology: Option<Selector> = 2 "nodeTopology",
        /// Name of the StorageClass that the capacity is for.
        storage_class_name: Text = 3 "storageClassName",
        /// Free capacity in bytes; unknown if absent.
        capacity: Option<Quantity> = 4 "capacity",
        /// Size in bytes of the largest volume that can be provisioned; unknown if absent.
        maximum_volume_size: Option<Quantity> = 5 "maximumVolumeSize",
    }
}

view!(
    CsiStorageCapacity,
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities",
    namespaced
);

message! {
    /// Request of the attach-detach controller to attach a volume to a node, and the CSI driver's response.
    pub struct VolumeAttachment("k8s.io.api.storage.v1.VolumeAttachment") {
        /// Metadata; the name is `csi-` and a hash of volume, driver and node.
        meta: Meta = 1 "metadata",
        /// Driver, volume and node of the attachment.
        spec: VolumeAttachmentSpec = 2 "spec",
        /// Whether the volume is attached, and the last errors; written by the driver's external attacher.
        status: VolumeAttachmentStatus = 3 "status",
    }
}

view!(
    VolumeAttachment,
    "storage.k8s.io",
    "v1",
    "VolumeAttachment",
    "volumeattachments",
    cluster_scoped
);

message! {
    /// Driver, volume and node of an attachment.
    pub struct VolumeAttachmentSpec("k8s.io.api.storage.v1.VolumeAttachmentSpec") {
        /// Name of the CSI driver, which attaches the volume.
        attacher: Text = 1 "attacher",
        /// Volume to attach.
        source: VolumeAttachmentSource = 2 "source",
        /// Name of the node to which the volume is attached.
        node_name: Text = 3 "nodeName",
    }
}

message! {
    /// Volume of an attachment: a PersistentVolume, or an inline CSI volume.
    pub struct VolumeAttachmentSource("k8s.io.api.storage.v1.VolumeAttachmentSource") {
        /// Name of the PersistentVolume.
        persistent_volume_name: Option<Text> = 1 "persistentVolumeName",
        /// Spec of a volume without a PersistentVolume; only for in-tree volumes that are migrated to CSI.
        inline_volume_spec: Option<Unread> = 2 "inlineVolumeSpec",
    }
}

message! {
    /// Progress of an attachment.
    pub struct VolumeAttachmentStatus("k8s.io.api.storage.v1.VolumeAttachmentStatus") {
        /// Whether the driver has attached the volume.
        attached: bool = 1 "attached",
        /// Last error of attaching; absent once the volume is attached.
        attach_error: Option<Box<VolumeError>> = 3 "attachError",
        /// Last error of detaching; absent if none failed.
        detach_error: Option<Box<VolumeError>> = 4 "detachError",
    }
}

message! {
    /// Error of attaching or detaching, as the driver reports it.
    pub struct VolumeError("k8s.io.api.storage.v1.VolumeError") {
        /// Message for people; it appears in events and must not contain secrets.
        message: Text = 2 "message",
    }
}

message! {
    /// Class of attributes that a driver can change on an existing volume, such as its throughput.
    pub struct VolumeAttributesClass("k8s.io.api.storage.v1.VolumeAttributesClass") {
        /// Metadata; claims reference the class by name.
        meta: Meta = 1 "metadata",
        /// Name of the CSI driver that changes the volumes.
        driver_name: Text = 2 "driverName",
    }
}

view!(
    VolumeAttributesClass,
    "storage.k8s.io",
    "v1",
    "VolumeAttributesClass",
    "volumeattributesclasses",
    cluster_scoped
);
