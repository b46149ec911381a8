//! PersistentVolumes: source, claim, class, reclaim policy, node affinity and phase.

use super::affinity::NodeSelector;
use super::config::ObjectReference;
use super::volume::{
    AwsElasticBlockStoreVolumeSource, AzureDiskVolumeSource, FcVolumeSource,
    GcePersistentDiskVolumeSource, HostPathVolumeSource, PortworxVolumeSource,
    VsphereVirtualDiskVolumeSource,
};
use crate::Meta;
use crate::decode::{message, view};
use crate::map::{Map, Unread};
use crate::quantity::Quantity;
use crate::text::Text;

message! {
    /// PersistentVolume: storage of the cluster that can be bound to a claim.
    pub struct PersistentVolume("k8s.io.api.core.v1.PersistentVolume") {
        /// Metadata; volumes are cluster-scoped.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PersistentVolumeSpec = 2 "spec",
        /// Observed state of the object.
        status: PersistentVolumeStatus = 3 "status",
    }
}

view!(PersistentVolume, "", "v1", "PersistentVolume", "persistentvolumes", cluster_scoped);

message! {
    /// Specification of a volume.
    pub struct PersistentVolumeSpec("k8s.io.api.core.v1.PersistentVolumeSpec") {
        /// Capacity, under the resource name `storage`.
        capacity: Map<Quantity> = 1 "capacity",
        /// `ReadWriteOnce`, `ReadOnlyMany`, `ReadWriteMany` or `ReadWriteOncePod`.
        access_modes: Box<[Text]> = 3 "accessModes",
        /// Reference to the bound claim.
        claim_ref: Option<Box<ObjectReference>> = 4 "claimRef",
        /// `Retain`, `Delete` or `Recycle`.
        persistent_volume_reclaim_policy: Text = 5 "persistentVolumeReclaimPolicy",
        /// StorageClass; empty for none.
        storage_class_name: Text = 6 "storageClassName",
        /// `Filesystem` (also when empty) or `Block`.
        volume_mode: Text = 8 "volumeMode",
        /// Nodes from which the volume is accessible.
        node_affinity: Option<Box<VolumeNodeAffinity>> = 9 "nodeAffinity",
        /// VolumeAttributesClass; empty for none.
        volume_attributes_class_name: Text = 10 "volumeAttributesClassName",
        => /// Source of the volume.
        source: PersistentVolumeSource = 2
    }
}

message! {
    /// Source of a volume. Exactly one field is set.
    pub struct PersistentVolumeSource("k8s.io.api.core.v1.PersistentVolumeSource") {
        /// GCE persistent disk.
        gce_persistent_disk: Option<Box<GcePersistentDiskVolumeSource>> = 1 "gcePersistentDisk",
        /// AWS EBS volume.
        aws_elastic_block_store: Option<Box<AwsElasticBlockStoreVolumeSource>> = 2 "awsElasticBlockStore",
        /// Path in the node's file system.
        host_path: Option<Box<HostPathVolumeSource>> = 3 "hostPath",
        /// An export over NFS.
        nfs: Option<Box<NfsVolumeSource>> = 5 "nfs",
        /// A block device over iSCSI.
        iscsi: Option<Box<IscsiPersistentVolumeSource>> = 7 "iscsi",
        /// Cinder volume of OpenStack.
        cinder: Option<Box<CinderPersistentVolumeSource>> = 8 "cinder",
        /// A block device over Fibre Channel.
        fc: Option<Box<FcVolumeSource>> = 10 "fc",
        /// Azure Files share.
        azure_file: Option<Unread> = 13 "azureFile",
        /// A vSphere disk.
        vsphere_volume: Option<Box<VsphereVirtualDiskVolumeSource>> = 14 "vsphereVolume",
        /// Azure managed disk.
        azure_disk: Option<Box<AzureDiskVolumeSource>> = 16 "azureDisk",
        /// A Portworx volume.
        portworx_volume: Option<Box<PortworxVolumeSource>> = 18 "portworxVolume",
        /// A path or device of one node.
        local: Option<Unread> = 20 "local",
        /// A volume of a CSI driver.
        csi: Option<Box<CsiPersistentVolumeSource>> = 22 "csi",
    }
}

message! {
    /// A block device over iSCSI.
    pub struct IscsiPersistentVolumeSource("k8s.io.api.core.v1.ISCSIPersistentVolumeSource") {
        /// Portal: `ip`, or `ip:port` with a port other than 3260.
        target_portal: Text = 1 "targetPortal",
        /// iSCSI qualified name of the target.
        iqn: Text = 2 "iqn",
        /// Logical unit number.
        lun: i32 = 3 "lun",
    }
}

message! {
    /// Cinder volume of OpenStack.
    pub struct CinderPersistentVolumeSource("k8s.io.api.core.v1.CinderPersistentVolumeSource") {
        /// Volume ID in Cinder.
        volume_id: Text = 1 "volumeID",
    }
}

message! {
    /// An export over NFS.
    pub struct NfsVolumeSource("k8s.io.api.core.v1.NFSVolumeSource") {
        /// Host name or address of the server.
        server: Text = 1 "server",
        /// Path that the server exports.
        path: Text = 2 "path",
        /// Whether the export is mounted read-only.
        read_only: bool = 3 "readOnly",
    }
}

message! {
    /// A volume of a CSI driver.
    pub struct CsiPersistentVolumeSource("k8s.io.api.core.v1.CSIPersistentVolumeSource") {
        /// Name of the CSI driver.
        driver: Text = 1 "driver",
        /// The driver's handle for the volume.
        volume_handle: Text = 2 "volumeHandle",
    }
}

message! {
    /// Nodes from which a volume is accessible.
    pub struct VolumeNodeAffinity("k8s.io.api.core.v1.VolumeNodeAffinity") {
        /// Selector of the nodes from which the volume is accessible.
        required: Option<Box<NodeSelector>> = 1 "required",
    }
}

message! {
    /// Status of a PersistentVolume.
    pub struct PersistentVolumeStatus("k8s.io.api.core.v1.PersistentVolumeStatus") {
        /// `Pending`, `Available`, `Bound`, `Released` or `Failed`.
        phase: Text = 1 "phase",
        /// Description of the phase for people.
        message: Text = 2 "message",
    }
}
