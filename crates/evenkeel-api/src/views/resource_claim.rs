//! ResourceClaims and DeviceClasses: which devices are asked for, and which were given.

use super::affinity::NodeSelector;
use super::disruption::MetaCondition;
use crate::Meta;
use crate::decode::{message, view};
use crate::map::{Map, RawJson, Unread};
use crate::quantity::Quantity;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// A claim to devices.
    pub struct ResourceClaim("k8s.io.api.resource.v1.ResourceClaim") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// What is asked for.
        spec: ResourceClaimSpec = 2 "spec",
        /// What was given, and to whom.
        status: ResourceClaimStatus = 3 "status",
    }
}

view!(ResourceClaim, "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true);

message! {
    /// Desired state of a ResourceClaim.
    pub struct ResourceClaimSpec("k8s.io.api.resource.v1.ResourceClaimSpec") {
        /// Devices.
        devices: DeviceClaim = 1 "devices",
    }
}

message! {
    /// Device requests of a ResourceClaim, with constraints and configuration.
    pub struct DeviceClaim("k8s.io.api.resource.v1.DeviceClaim") {
        /// All of which are wanted.
        requests: Box<[DeviceRequest]> = 1 "requests",
        /// What must hold between them.
        constraints: Box<[DeviceConstraint]> = 2 "constraints",
        /// What their drivers are told.
        config: Box<[DeviceClaimConfiguration]> = 3 "config",
    }
}

message! {
    /// Devices of one sort.
    pub struct DeviceRequest("k8s.io.api.resource.v1.DeviceRequest") {
        /// Its name within the claim.
        name: Text = 1 "name",
        /// Just these.
        exactly: Option<Box<ExactDeviceRequest>> = 2 "exactly",
        /// The first of these that can be had.
        first_available: Box<[DeviceSubRequest]> = 3 "firstAvailable",
    }
}

message! {
    /// Devices of a class.
    pub struct ExactDeviceRequest("k8s.io.api.resource.v1.ExactDeviceRequest") {
        /// The class.
        device_class_name: Text = 1 "deviceClassName",
        /// What the devices must be like beside that.
        selectors: Box<[DeviceSelector]> = 2 "selectors",
        /// `ExactCount` or `All`.
        allocation_mode: Text = 3 "allocationMode",
        /// How many.
        count: i64 = 4 "count",
        /// Whether they are for looking after them, beside those who use them.
        admin_access: Option<bool> = 5 "adminAccess",
        /// Taints that are borne.
        tolerations: Box<[DeviceToleration]> = 6 "tolerations",
        /// How much of each.
        capacity: Option<Box<CapacityRequirements>> = 7 "capacity",
        /// Attributes worked out from others; how many, no more.
        derived_attributes: Box<[Unread]> = 8 "derivedAttributes",
    }
}

message! {
    /// Devices of a class, as one choice of several.
    pub struct DeviceSubRequest("k8s.io.api.resource.v1.DeviceSubRequest") {
        /// Its name within the request.
        name: Text = 1 "name",
        /// The class.
        device_class_name: Text = 2 "deviceClassName",
        /// What the devices must be like beside that.
        selectors: Box<[DeviceSelector]> = 3 "selectors",
        /// `ExactCount` or `All`.
        allocation_mode: Text = 4 "allocationMode",
        /// How many.
        count: i64 = 5 "count",
        /// Taints that are borne.
        tolerations: Box<[DeviceToleration]> = 6 "tolerations",
        /// How much of each.
        capacity: Option<Box<CapacityRequirements>> = 7 "capacity",
        /// Attributes worked out from others; how many, no more.
        derived_attributes: Box<[Unread]> = 8 "derivedAttributes",
    }
}

message! {
    /// What a device must be like.
    pub struct DeviceSelector("k8s.io.api.resource.v1.DeviceSelector") {
        /// What this comes to for it.
        cel: Option<Box<CelDeviceSelector>> = 1 "cel",
    }
}

message! {
    /// An expression about a device.
    pub struct CelDeviceSelector("k8s.io.api.resource.v1.CELDeviceSelector") {
        /// In CEL.
        expression: Text = 1 "expression",
    }
}

message! {
    /// How much of a device.
    pub struct CapacityRequirements("k8s.io.api.resource.v1.CapacityRequirements") {
        /// By name.
        requests: Map<Quantity> = 1 "requests",
    }
}

message! {
    /// What is borne of a device.
    pub struct DeviceToleration("k8s.io.api.resource.v1.DeviceToleration") {
        /// Key; any when empty.
        key: Text = 1 "key",
        /// `Exists`, or `Equal` (also when empty).
        operator: Text = 2 "operator",
        /// Value.
        value: Text = 3 "value",
        /// Effect; any when empty.
        effect: Text = 4 "effect",
        /// How long.
        toleration_seconds: Option<i64> = 5 "tolerationSeconds",
    }
}

message! {
    /// What must hold between devices.
    pub struct DeviceConstraint("k8s.io.api.resource.v1.DeviceConstraint") {
        /// Those of these requests; of all where it names none.
        requests: Box<[Text]> = 1 "requests",
        /// They are all the same in this.
        match_attribute: Option<Text> = 2 "matchAttribute",
        /// No two are the same in this.
        distinct_attribute: Option<Text> = 3 "distinctAttribute",
    }
}

message! {
    /// What the driver of some requests' devices is told.
    pub struct DeviceClaimConfiguration("k8s.io.api.resource.v1.DeviceClaimConfiguration") {
        /// Which requests; all where it names none.
        requests: Box<[Text]> = 1 "requests",
        => /// What.
        what: DeviceConfiguration = 2
    }
}

message! {
    /// What the driver of a class's devices is told.
    pub struct DeviceClassConfiguration("k8s.io.api.resource.v1.DeviceClassConfiguration") {
        => /// What.
        what: DeviceConfiguration = 1
    }
}

message! {
    /// What a driver is told.
    pub struct DeviceConfiguration("k8s.io.api.resource.v1.DeviceConfiguration") {
        /// In words of its own.
        opaque: Option<Box<OpaqueDeviceConfiguration>> = 1 "opaque",
    }
}

message! {
    /// What only a driver understands.
    pub struct OpaqueDeviceConfiguration("k8s.io.api.resource.v1.OpaqueDeviceConfiguration") {
        /// Which driver.
        driver: Text = 1 "driver",
        /// What.
        parameters: RawJson = 2 "parameters",
    }
}

message! {
    /// What was given, and to whom.
    pub struct ResourceClaimStatus("k8s.io.api.resource.v1.ResourceClaimStatus") {
        /// The devices.
        allocation: Option<Box<AllocationResult>> = 1 "allocation",
        /// Who may use them.
        reserved_for: Box<[ResourceClaimConsumerReference]> = 2 "reservedFor",
        /// How they are.
        devices: Box<[AllocatedDeviceStatus]> = 4 "devices",
    }
}

message! {
    /// Devices that were given.
    pub struct AllocationResult("k8s.io.api.resource.v1.AllocationResult") {
        /// Which.
        devices: DeviceAllocationResult = 1 "devices",
        /// From where they can be used; from anywhere where it says nothing.
        node_selector: Option<Box<NodeSelector>> = 3 "nodeSelector",
        /// When.
        allocation_timestamp: Option<Timestamp> = 5 "allocationTimestamp",
    }
}

message! {
    /// Which devices were given.
    pub struct DeviceAllocationResult("k8s.io.api.resource.v1.DeviceAllocationResult") {
        /// The devices.
        results: Box<[DeviceRequestAllocationResult]> = 1 "results",
    }
}

message! {
    /// A device that was given.
    pub struct DeviceRequestAllocationResult("k8s.io.api.resource.v1.DeviceRequestAllocationResult") {
        /// For which request; for one of several choices, `request/choice`.
        request: Text = 1 "request",
        /// Its driver.
        driver: Text = 2 "driver",
        /// Its pool.
        pool: Text = 3 "pool",
        /// Its name.
        device: Text = 4 "device",
        /// Whether it was given for looking after it.
        admin_access: Option<bool> = 5 "adminAccess",
        /// What must be true of it before the pod is bound.
        binding_conditions: Box<[Text]> = 7 "bindingConditions",
        /// What must not become true of it.
        binding_failure_conditions: Box<[Text]> = 8 "bindingFailureConditions",
        /// Tells this share of it from others.
        share_id: Option<Text> = 9 "shareID",
        /// How much of it.
        consumed_capacity: Map<Quantity> = 10 "consumedCapacity",
    }
}

message! {
    /// Who may use the devices of a claim.
    pub struct ResourceClaimConsumerReference("k8s.io.api.resource.v1.ResourceClaimConsumerReference") {
        /// Its API group.
        api_group: Text = 1 "apiGroup",
        /// Its resource, such as `pods`.
        resource: Text = 3 "resource",
        /// Its name.
        name: Text = 4 "name",
        /// Its uid.
        uid: Text = 5 "uid",
    }
}

message! {
    /// How a device is that was given.
    pub struct AllocatedDeviceStatus("k8s.io.api.resource.v1.AllocatedDeviceStatus") {
        /// Its driver.
        driver: Text = 1 "driver",
        /// Its pool.
        pool: Text = 2 "pool",
        /// Its name.
        device: Text = 3 "device",
        /// What its driver says of it.
        conditions: Box<[MetaCondition]> = 4 "conditions",
    }
}

message! {
    /// A class of devices.
    pub struct DeviceClass("k8s.io.api.resource.v1.DeviceClass") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// What it is.
        spec: DeviceClassSpec = 2 "spec",
    }
}

view!(DeviceClass, "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", false);

message! {
    /// What a class is.
    pub struct DeviceClassSpec("k8s.io.api.resource.v1.DeviceClassSpec") {
        /// What its devices are like.
        selectors: Box<[DeviceSelector]> = 1 "selectors",
        /// What their drivers are told.
        config: Box<[DeviceClassConfiguration]> = 2 "config",
        /// Extended resource by which containers may ask for its devices; empty for none.
        extended_resource_name: Text = 4 "extendedResourceName",
    }
}
