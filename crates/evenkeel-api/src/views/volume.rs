//! Volumes of a pod. Each type has only the fields that the scheduler and the simulated kubelets (`evenkeel-nodes`)
//! read.

use crate::decode::message;
use crate::map::Unread;
use crate::quantity::Quantity;
use crate::template::EphemeralClaimTemplate;
use crate::text::Text;

// In `message!`, each field has its protobuf number and its JSON name. `=>` marks a field whose own fields upstream
// inlines in JSON.
message! {
    /// Volume of a pod.
    pub struct Volume("k8s.io.api.core.v1.Volume") {
        /// Name within the pod.
        name: Text = 1 "name",
        => /// Source of the volume.
        source: VolumeSource = 2
    }
}

message! {
    /// Source of a volume. All fields are empty if the source has a type without a field here.
    pub struct VolumeSource("k8s.io.api.core.v1.VolumeSource") {
        /// Path in the node's file system.
        host_path: Option<Box<HostPathVolumeSource>> = 1 "hostPath",
        /// Empty directory with the lifetime of the pod.
        empty_dir: Option<Box<EmptyDirVolumeSource>> = 2 "emptyDir",
        /// Persistent disk of Google Compute Engine.
        gce_persistent_disk: Option<Box<GcePersistentDiskVolumeSource>> = 3 "gcePersistentDisk",
        /// Volume of AWS Elastic Block Store.
        aws_elastic_block_store: Option<Box<AwsElasticBlockStoreVolumeSource>> = 4 "awsElasticBlockStore",
        /// Files from the keys of a Secret.
        secret: Option<Box<SecretVolumeSource>> = 6 "secret",
        /// A block device over iSCSI.
        iscsi: Option<Box<IscsiVolumeSource>> = 8 "iscsi",
        /// PersistentVolumeClaim in the pod's namespace.
        persistent_volume_claim: Option<Box<PersistentVolumeClaimVolumeSource>> = 10 "persistentVolumeClaim",
        /// A Ceph block device.
        rbd: Option<Box<RbdVolumeSource>> = 11 "rbd",
        /// Volume of OpenStack Cinder.
        cinder: Option<Box<CinderVolumeSource>> = 13 "cinder",
        /// A block device over Fibre Channel.
        fc: Option<Box<FcVolumeSource>> = 17 "fc",
        /// File share of Azure; only its presence matters.
        azure_file: Option<Unread> = 18 "azureFile",
        /// Files from the keys of a ConfigMap.
        config_map: Option<Box<ConfigMapVolumeSource>> = 19 "configMap",
        /// A vSphere disk.
        vsphere_volume: Option<Box<VsphereVirtualDiskVolumeSource>> = 20 "vsphereVolume",
        /// Data disk of Azure.
        azure_disk: Option<Box<AzureDiskVolumeSource>> = 22 "azureDisk",
        /// A Portworx volume.
        portworx_volume: Option<Box<PortworxVolumeSource>> = 24 "portworxVolume",
        /// Ephemeral volume of a CSI driver.
        csi: Option<Box<CsiVolumeSource>> = 28 "csi",
        /// Claim that is created for the pod and deleted with it.
        ephemeral: Option<Box<EphemeralVolumeSource>> = 29 "ephemeral",
        /// Read-only files of a container image.
        image: Option<Box<ImageVolumeSource>> = 30 "image",
    }
}

message! {
    /// Path in the node's file system.
    pub struct HostPathVolumeSource("k8s.io.api.core.v1.HostPathVolumeSource") {
        /// Path on the node; a symbolic link is followed.
        path: Text = 1 "path",
    }
}

message! {
    /// Empty directory with the lifetime of its pod.
    pub struct EmptyDirVolumeSource("k8s.io.api.core.v1.EmptyDirVolumeSource") {
        /// `Memory`, or empty for the node's default.
        medium: Text = 1 "medium",
        /// Maximum size in bytes; no limit if absent.
        size_limit: Option<Quantity> = 2 "sizeLimit",
    }
}

message! {
    /// Persistent disk of Google Compute Engine.
    pub struct GcePersistentDiskVolumeSource("k8s.io.api.core.v1.GCEPersistentDiskVolumeSource") {
        /// Name of the disk in its project and zone.
        pd_name: Text = 1 "pdName",
        /// Whether the volume is mounted read-only.
        read_only: bool = 4 "readOnly",
    }
}

message! {
    /// Volume of AWS Elastic Block Store.
    pub struct AwsElasticBlockStoreVolumeSource("k8s.io.api.core.v1.AWSElasticBlockStoreVolumeSource") {
        /// Identifier of the volume in EC2.
        volume_id: Text = 1 "volumeID",
        /// Whether the volume is mounted read-only.
        read_only: bool = 4 "readOnly",
    }
}

message! {
    /// Files from the keys of a Secret.
    pub struct SecretVolumeSource("k8s.io.api.core.v1.SecretVolumeSource") {
        /// Name of the Secret, in the pod's namespace.
        secret_name: Text = 1 "secretName",
        /// Whether the Secret may be missing.
        optional: Option<bool> = 4 "optional",
    }
}

message! {
    /// Block device over iSCSI.
    pub struct IscsiVolumeSource("k8s.io.api.core.v1.ISCSIVolumeSource") {
        /// Portal: `ip`, or `ip:port` with a port other than 3260.
        target_portal: Text = 1 "targetPortal",
        /// iSCSI qualified name of the target.
        iqn: Text = 2 "iqn",
        /// Logical unit number on the target.
        lun: i32 = 3 "lun",
        /// Whether the volume is mounted read-only.
        read_only: bool = 6 "readOnly",
    }
}

message! {
    /// Block device over Fibre Channel.
    pub struct FcVolumeSource("k8s.io.api.core.v1.FCVolumeSource") {
        /// World wide names of the target's ports.
        target_wwns: Box<[Text]> = 1 "targetWWNs",
        /// Logical unit number on the target.
        lun: Option<i32> = 2 "lun",
        /// World wide identifiers of the volume, instead of `target_wwns` and `lun`.
        wwids: Box<[Text]> = 5 "wwids",
    }
}

message! {
    /// PersistentVolumeClaim in the pod's namespace.
    pub struct PersistentVolumeClaimVolumeSource("k8s.io.api.core.v1.PersistentVolumeClaimVolumeSource") {
        /// Name of the claim, in the pod's namespace.
        claim_name: Text = 1 "claimName",
        /// Whether the volume is mounted read-only.
        read_only: bool = 2 "readOnly",
    }
}

message! {
    /// Ceph block device.
    pub struct RbdVolumeSource("k8s.io.api.core.v1.RBDVolumeSource") {
        /// Addresses of the Ceph monitors.
        monitors: Box<[Text]> = 1 "monitors",
        /// Name of the image in its pool.
        image: Text = 2 "image",
        /// Pool of the image; `rbd` by default.
        pool: Text = 4 "pool",
        /// Whether the volume is mounted read-only.
        read_only: bool = 8 "readOnly",
    }
}

message! {
    /// Volume of OpenStack Cinder.
    pub struct CinderVolumeSource("k8s.io.api.core.v1.CinderVolumeSource") {
        /// Identifier of the volume in Cinder.
        volume_id: Text = 1 "volumeID",
    }
}

message! {
    /// Data disk of Azure.
    pub struct AzureDiskVolumeSource("k8s.io.api.core.v1.AzureDiskVolumeSource") {
        /// URI of the disk.
        disk_uri: Text = 2 "diskURI",
    }
}

message! {
    /// Virtual disk of vSphere.
    pub struct VsphereVirtualDiskVolumeSource("k8s.io.api.core.v1.VsphereVirtualDiskVolumeSource") {
        /// Path of the disk in the datastore.
        volume_path: Text = 1 "volumePath",
    }
}

message! {
    /// Volume of Portworx.
    pub struct PortworxVolumeSource("k8s.io.api.core.v1.PortworxVolumeSource") {
        /// Identifier of the volume in Portworx.
        volume_id: Text = 1 "volumeID",
    }
}

message! {
    /// Files from the keys of a ConfigMap.
    pub struct ConfigMapVolumeSource("k8s.io.api.core.v1.ConfigMapVolumeSource") {
        /// Whether the ConfigMap may be missing.
        optional: Option<bool> = 4 "optional",
        => /// ConfigMap in the pod's namespace, by name.
        reference: LocalObjectReference = 1
    }
}

message! {
    /// Ephemeral volume of a CSI driver.
    pub struct CsiVolumeSource("k8s.io.api.core.v1.CSIVolumeSource") {
        /// Name of the CSI driver.
        driver: Text = 1 "driver",
    }
}

message! {
    /// Read-only files of a container image.
    pub struct ImageVolumeSource("k8s.io.api.core.v1.ImageVolumeSource") {
        /// Reference of the image, as in a container.
        reference: Text = 1 "reference",
    }
}

message! {
    /// Claim that is created for the pod and deleted with it.
    pub struct EphemeralVolumeSource("k8s.io.api.core.v1.EphemeralVolumeSource") {
        /// Template of the claim.
        volume_claim_template: EphemeralClaimTemplate = 1 "volumeClaimTemplate",
    }
}

message! {
    /// Reference to an object in the same namespace.
    pub struct LocalObjectReference("k8s.io.api.core.v1.LocalObjectReference") {
        /// Name of the object.
        name: Text = 1 "name",
    }
}
