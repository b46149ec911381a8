//! Views of API group `storage.k8s.io`: classes of volumes, CSI drivers, attachments, capacities.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Unread;
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::text::Text;

message! {
    /// Class of volumes: who provisions them, when and where they are provisioned, and what happens to a released one.
    pub struct StorageClass("k8s.io.api.storage.v1.StorageClass") {
        /// Metadata; an annotation marks the default class.
        meta: Meta = 1 "metadata",
        /// Name of the provisioner; `kubernetes.io/no-provisioner` where volumes are made by hand.
        provisioner: Text = 2 "provisioner",
        /// `persistentVolumeReclaimPolicy` of the provisioned volumes; `Delete` where absent.
        reclaim_policy: Text = 4 "reclaimPolicy",
        /// Whether claims of the class may be expanded; false where absent.
        allow_volume_expansion: Option<bool> = 6 "allowVolumeExpansion",
        /// When claims are bound: `Immediate` (also when empty), or `WaitForFirstConsumer`, once a pod that uses the claim
        /// is scheduled.
        volume_binding_mode: Text = 7 "volumeBindingMode",
        /// Terms of which a node must match one, so that a volume can be provisioned for it; empty: any node.
        allowed_topologies: Box<[TopologySelectorTerm]> = 8 "allowedTopologies",
    }
}

view!(StorageClass, "storage.k8s.io", "v1", "StorageClass", "storageclasses", false);

message! {
    /// Requirements on the labels of a node, which must all hold.
    pub struct TopologySelectorTerm("k8s.io.api.core.v1.TopologySelectorTerm") {
        /// Requirements, each on another label.
        match_label_expressions: Box<[TopologySelectorLabelRequirement]> = 1 "matchLabelExpressions",
    }
}

message! {
    /// Requirement that a topology label of a node has one of some values.
    pub struct TopologySelectorLabelRequirement("k8s.io.api.core.v1.TopologySelectorLabelRequirement") {
        /// Key of the label, such as `topology.kubernetes.io/zone`.
        key: Text = 1 "key",
        /// Values of which the label must have one.
        values: Box<[Text]> = 2 "values",
    }
}

message! {
    /// CSI driver that is installed in the cluster.
    pub struct CsiDriver("k8s.io.api.storage.v1.CSIDriver") {
        /// Metadata; the object's name is the name of the driver.
        meta: Meta = 1 "metadata",
        /// Properties of the driver that controllers and the scheduler heed.
        spec: CsiDriverSpec = 2 "spec",
    }
}

view!(CsiDriver, "storage.k8s.io", "v1", "CSIDriver", "csidrivers", false);

message! {
    /// Properties of a CSI driver: attachment, storage capacity tracking, and whether nodes need the driver.
    pub struct CsiDriverSpec("k8s.io.api.storage.v1.CSIDriverSpec") {
        /// Whether volumes are attached to nodes before they are mounted; true where absent.
        attach_required: Option<bool> = 1 "attachRequired",
        /// Whether scheduling considers the driver's CSIStorageCapacities; false where absent.
        storage_capacity: Option<bool> = 4 "storageCapacity",
        /// Whether a pod that uses a volume of the driver is only scheduled to nodes whose CSINode names it; false where
        /// absent.
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

view!(CsiNode, "storage.k8s.io", "v1", "CSINode", "csinodes", false);

message! {
    /// The CSI drivers of one node.
    pub struct CsiNodeSpec("k8s.io.api.storage.v1.CSINodeSpec") {
        /// Drivers that are registered with the node's kubelet.
        drivers: Box<[CsiNodeDriver]> = 1 "drivers",
    }
}

message! {
    /// CSI driver on a node, with the number of volumes that it can attach there.
    pub struct CsiNodeDriver("k8s.io.api.storage.v1.CSINodeDriver") {
        /// Name of the driver, which is the name of its CSIDriver object.
        name: Text = 1 "name",
        /// Volumes that the driver can attach to the node; unlimited where absent.
        allocatable: Option<Box<VolumeNodeResources>> = 4 "allocatable",
    }
}

message! {
    /// Number of volumes that a driver can attach to a node.
    pub struct VolumeNodeResources("k8s.io.api.storage.v1.VolumeNodeResources") {
        /// Maximum number of volumes; unlimited where absent.
        count: Option<i32> = 1 "count",
    }
}

message! {
    /// Free capacity for new volumes of one StorageClass on some nodes, as a driver's external provisioner reports it.
    pub struct CsiStorageCapacity("k8s.io.api.storage.v1.CSIStorageCapacity") {
        /// Metadata; the name is generated.
        meta: Meta = 1 "metadata",
        /// Selector of the nodes that can access the storage; no node where absent.
        node_topology: Option<Selector> = 2 "nodeTopology",
        /// Name of the StorageClass that the capacity is for.
        storage_class_name: Text = 3 "storageClassName",
        /// Free capacity in bytes; unknown where absent.
        capacity: Option<Quantity> = 4 "capacity",
        /// Size of the greatest volume that can be provisioned, in bytes; unknown where absent.
        maximum_volume_size: Option<Quantity> = 5 "maximumVolumeSize",
    }
}

view!(
    CsiStorageCapacity,
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities",
    true
);

message! {
    /// Request of the attach-detach controller to a CSI driver to attach a volume to a node, and the driver's answer.
    pub struct VolumeAttachment("k8s.io.api.storage.v1.VolumeAttachment") {
        /// Metadata; the name is `csi-` and a hash of volume, driver and node.
        meta: Meta = 1 "metadata",
        /// Driver, volume and node.
        spec: VolumeAttachmentSpec = 2 "spec",
        /// Whether the driver has attached the volume, and its last errors; the driver's external attacher writes it.
        status: VolumeAttachmentStatus = 3 "status",
    }
}

view!(VolumeAttachment, "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", false);

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
        /// Last error of detaching; absent where none failed.
        detach_error: Option<Box<VolumeError>> = 4 "detachError",
    }
}

message! {
    /// Error of attaching or detaching, as the driver reports it.
    pub struct VolumeError("k8s.io.api.storage.v1.VolumeError") {
        /// Text for people; it appears in events and must hold no secrets.
        message: Text = 2 "message",
    }
}

message! {
    /// Class of attributes that a driver can change on an existing volume, such as its throughput.
    pub struct VolumeAttributesClass("k8s.io.api.storage.v1.VolumeAttributesClass") {
        /// Metadata; claims refer to the class by name.
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
    false
);
