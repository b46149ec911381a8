//! PersistentVolumeClaims: request, class, selector, bound volume and phase.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Map;
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// A user's claim for storage.
    pub struct PersistentVolumeClaim("k8s.io.api.core.v1.PersistentVolumeClaim") {
        /// Metadata; annotations record the binding and the chosen node.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PersistentVolumeClaimSpec = 2 "spec",
        /// Observed state of the object.
        status: PersistentVolumeClaimStatus = 3 "status",
    }
}

view!(
    PersistentVolumeClaim,
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    namespaced
);

message! {
    /// Desired state of a claim: class, size, access modes, volume.
    pub struct PersistentVolumeClaimSpec("k8s.io.api.core.v1.PersistentVolumeClaimSpec") {
        /// Access modes that the volume must support, such as `ReadWriteOnce`.
        access_modes: Box<[Text]> = 1 "accessModes",
        /// Label selector of volumes; matches all volumes if absent.
        selector: Option<Selector> = 4 "selector",
        /// Requested size, under the name `storage`.
        resources: VolumeResourceRequirements = 2 "resources",
        /// PersistentVolume that the claim is bound to; empty if it is not bound.
        volume_name: Text = 3 "volumeName",
        /// StorageClass; absent for the default class, empty for none.
        storage_class_name: Option<Text> = 5 "storageClassName",
        /// `Filesystem` (also when empty) or `Block`.
        volume_mode: Text = 6 "volumeMode",
        /// VolumeAttributesClass of the volume; empty for none.
        volume_attributes_class_name: Text = 9 "volumeAttributesClassName",
    }
}

message! {
    /// Requested and maximum size of a claim.
    pub struct VolumeResourceRequirements("k8s.io.api.core.v1.VolumeResourceRequirements") {
        /// Limits by resource name.
        limits: Map<Quantity> = 1 "limits",
        /// Requests by resource name.
        requests: Map<Quantity> = 2 "requests",
    }
}

message! {
    /// Observed state of a claim: phase, capacity, resizing, conditions.
    pub struct PersistentVolumeClaimStatus("k8s.io.api.core.v1.PersistentVolumeClaimStatus") {
        /// `Pending`, `Bound` or `Lost`.
        phase: Text = 1 "phase",
        /// Access modes of the bound volume.
        access_modes: Box<[Text]> = 2 "accessModes",
        /// Size of the bound volume, under the name `storage`.
        capacity: Map<Quantity> = 3 "capacity",
        /// Conditions of the claim.
        conditions: Box<[PersistentVolumeClaimCondition]> = 4 "conditions",
        /// Size that a pending expansion has allocated.
        allocated_resources: Map<Quantity> = 5 "allocatedResources",
        /// VolumeAttributesClass in force; empty for none.
        current_volume_attributes_class_name: Text = 8 "currentVolumeAttributesClassName",
        /// Progress of a change of the VolumeAttributesClass; absent without a change.
        modify_volume_status: Option<Box<ModifyVolumeStatus>> = 9 "modifyVolumeStatus",
    }
}

message! {
    /// Progress of a change of the VolumeAttributesClass.
    pub struct ModifyVolumeStatus("k8s.io.api.core.v1.ModifyVolumeStatus") {
        /// VolumeAttributesClass that the volume changes to.
        target_volume_attributes_class_name: Text = 1 "targetVolumeAttributesClassName",
    }
}

message! {
    /// Condition of a claim, such as `Resizing`.
    pub struct PersistentVolumeClaimCondition("k8s.io.api.core.v1.PersistentVolumeClaimCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// Time at which the condition was last checked.
        last_probe_time: Option<Timestamp> = 3 "lastProbeTime",
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 5 "reason",
        /// Details of the last transition, for people.
        message: Text = 6 "message",
    }
}
