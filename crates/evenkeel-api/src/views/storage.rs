//! The storage group: classes, drivers, attachments.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Unread;
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::text::Text;

message! {
    /// Class of volumes: provisioner, parameters, binding mode, reclaim policy.
    pub struct StorageClass("k8s.io.api.storage.v1.StorageClass") {
        /// Metadata; an annotation marks the default class.
        meta: Meta = 1 "metadata",
        /// Provisioner of the volumes.
        provisioner: Text = 2 "provisioner",
        /// Reclaim policy of the volumes; `Delete` where absent.
        reclaim_policy: Text = 4 "reclaimPolicy",
        /// Whether claims of the class may be expanded; false where absent.
        allow_volume_expansion: Option<bool> = 6 "allowVolumeExpansion",
        /// `Immediate` (also when empty) or `WaitForFirstConsumer`.
        volume_binding_mode: Text = 7 "volumeBindingMode",
        /// Topologies in which volumes can be provisioned, any one of them; empty for all.
        allowed_topologies: Box<[TopologySelectorTerm]> = 8 "allowedTopologies",
    }
}

view!(StorageClass, "storage.k8s.io", "v1", "StorageClass", "storageclasses", false);

message! {
    /// Requirements on the topology of provisioned volumes, which must all hold.
    pub struct TopologySelectorTerm("k8s.io.api.core.v1.TopologySelectorTerm") {
        /// Requirements on topology labels, all of which must hold.
        match_label_expressions: Box<[TopologySelectorLabelRequirement]> = 1 "matchLabelExpressions",
    }
}

message! {
    /// Allowed values of one topology label.
    pub struct TopologySelectorLabelRequirement("k8s.io.api.core.v1.TopologySelectorLabelRequirement") {
        /// Key of the label.
        key: Text = 1 "key",
        /// Allowed values of the label.
        values: Box<[Text]> = 2 "values",
    }
}

message! {
    /// CSI driver that is installed in the cluster.
    pub struct CsiDriver("k8s.io.api.storage.v1.CSIDriver") {
        /// Metadata; the name is the driver's.
        meta: Meta = 1 "metadata",
        /// Capabilities of the driver.
        spec: CsiDriverSpec = 2 "spec",
    }
}

view!(CsiDriver, "storage.k8s.io", "v1", "CSIDriver", "csidrivers", false);

message! {
    /// Capabilities of a CSI driver: attachment, storage capacity tracking.
    pub struct CsiDriverSpec("k8s.io.api.storage.v1.CSIDriverSpec") {
        /// Whether volumes are attached to nodes before they are mounted; true where absent.
        attach_required: Option<bool> = 1 "attachRequired",
        /// Whether scheduling considers the driver's CSIStorageCapacities; false where absent.
        storage_capacity: Option<bool> = 4 "storageCapacity",
        /// Whether pods with its volumes are only scheduled to nodes that have the driver; false where absent.
        prevent_pod_scheduling_if_missing: Option<bool> = 11 "preventPodSchedulingIfMissing",
    }
}

message! {
    /// CSI drivers that are installed on a node.
    pub struct CsiNode("k8s.io.api.storage.v1.CSINode") {
        /// Metadata; the name is the node's.
        meta: Meta = 1 "metadata",
        /// Drivers on the node.
        spec: CsiNodeSpec = 2 "spec",
    }
}

view!(CsiNode, "storage.k8s.io", "v1", "CSINode", "csinodes", false);

message! {
    /// Drivers of a CSINode.
    pub struct CsiNodeSpec("k8s.io.api.storage.v1.CSINodeSpec") {
        /// Drivers that are registered with the node's kubelet.
        drivers: Box<[CsiNodeDriver]> = 1 "drivers",
    }
}

message! {
    /// CSI driver on a node: topology keys, limit of volumes.
    pub struct CsiNodeDriver("k8s.io.api.storage.v1.CSINodeDriver") {
        /// Name of the CSI driver, as its `CSIDriver` has it.
        name: Text = 1 "name",
        /// Limit of the driver's volumes on the node; unlimited where absent.
        allocatable: Option<Box<VolumeNodeResources>> = 4 "allocatable",
    }
}

message! {
    /// Limit of a driver's volumes on a node.
    pub struct VolumeNodeResources("k8s.io.api.storage.v1.VolumeNodeResources") {
        /// Maximum number of volumes on the node; unlimited where absent.
        count: Option<i32> = 1 "count",
    }
}

message! {
    /// Capacity for volumes of a class in a topology segment, as a driver reports it.
    pub struct CsiStorageCapacity("k8s.io.api.storage.v1.CSIStorageCapacity") {
        /// Metadata; the name has no meaning.
        meta: Meta = 1 "metadata",
        /// Selector of the nodes that can access the storage; absent for none.
        node_topology: Option<Selector> = 2 "nodeTopology",
        /// StorageClass that the capacity is for.
        storage_class_name: Text = 3 "storageClassName",
        /// Available capacity in bytes; unknown where absent.
        capacity: Option<Quantity> = 4 "capacity",
        /// Greatest size of one volume in bytes; unknown where absent.
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
    /// Intent to attach a volume to a node, and its status.
    pub struct VolumeAttachment("k8s.io.api.storage.v1.VolumeAttachment") {
        /// Metadata; the name is derived from volume, driver and node.
        meta: Meta = 1 "metadata",
        /// The volume and the node.
        spec: VolumeAttachmentSpec = 2 "spec",
        /// Progress of attaching.
        status: VolumeAttachmentStatus = 3 "status",
    }
}

view!(VolumeAttachment, "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", false);

message! {
    /// Attacher, node and volume of an attachment.
    pub struct VolumeAttachmentSpec("k8s.io.api.storage.v1.VolumeAttachmentSpec") {
        /// Name of the CSI driver that attaches the volume.
        attacher: Text = 1 "attacher",
        /// Volume to attach.
        source: VolumeAttachmentSource = 2 "source",
        /// Node to which the volume is attached.
        node_name: Text = 3 "nodeName",
    }
}

message! {
    /// Volume of an attachment: a PersistentVolume, or an inline CSI volume.
    pub struct VolumeAttachmentSource("k8s.io.api.storage.v1.VolumeAttachmentSource") {
        /// Name of the PersistentVolume.
        persistent_volume_name: Option<Text> = 1 "persistentVolumeName",
        /// Volume without a PersistentVolume; only for migrated in-tree volumes.
        inline_volume_spec: Option<Unread> = 2 "inlineVolumeSpec",
    }
}

message! {
    /// Whether a volume is attached, and the last errors.
    pub struct VolumeAttachmentStatus("k8s.io.api.storage.v1.VolumeAttachmentStatus") {
        /// Whether the driver has attached the volume.
        attached: bool = 1 "attached",
        /// Last error of attaching; absent after success.
        attach_error: Option<Box<VolumeError>> = 3 "attachError",
        /// Last error of detaching; absent after success.
        detach_error: Option<Box<VolumeError>> = 4 "detachError",
    }
}

message! {
    /// Error of attaching or detaching, with its time.
    pub struct VolumeError("k8s.io.api.storage.v1.VolumeError") {
        /// Error of the driver, for people; it must hold no secrets.
        message: Text = 2 "message",
    }
}

message! {
    /// Class of mutable volume attributes, with its driver and parameters.
    pub struct VolumeAttributesClass("k8s.io.api.storage.v1.VolumeAttributesClass") {
        /// Metadata; claims refer to the class by its name.
        meta: Meta = 1 "metadata",
        /// CSI driver that modifies the volumes.
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
