//! ResourceClaims and DeviceClasses: which devices are asked for, and which were given.

use super::affinity::NodeSelector;
use super::poddisruptionbudget::MetaCondition;
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
        /// Requested devices.
        spec: ResourceClaimSpec = 2 "spec",
        /// Allocation and reservations.
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
        /// Constraints between the requested devices.
        constraints: Box<[DeviceConstraint]> = 2 "constraints",
        /// Configuration for the drivers.
        config: Box<[DeviceClaimConfiguration]> = 3 "config",
    }
}

message! {
    /// Devices of one sort.
    pub struct DeviceRequest("k8s.io.api.resource.v1.DeviceRequest") {
        /// Its name within the claim.
        name: Text = 1 "name",
        /// A request for one device class.
        exactly: Option<Box<ExactDeviceRequest>> = 2 "exactly",
        /// The first of these that can be had.
        first_available: Box<[DeviceSubRequest]> = 3 "firstAvailable",
    }
}

message! {
    /// Devices of a class.
    pub struct ExactDeviceRequest("k8s.io.api.resource.v1.ExactDeviceRequest") {
        /// Name of the DeviceClass.
        device_class_name: Text = 1 "deviceClassName",
        /// Selectors that the devices must match in addition to their class.
        selectors: Box<[DeviceSelector]> = 2 "selectors",
        /// `ExactCount` or `All`.
        allocation_mode: Text = 3 "allocationMode",
        /// Number of devices.
        count: i64 = 4 "count",
        /// `adminAccess`: access for administration, beside the devices' users.
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
        /// Name of the DeviceClass.
        device_class_name: Text = 2 "deviceClassName",
        /// Selectors that the devices must match in addition to their class.
        selectors: Box<[DeviceSelector]> = 3 "selectors",
        /// `ExactCount` or `All`.
        allocation_mode: Text = 4 "allocationMode",
        /// Number of devices.
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
    /// A condition on devices.
    pub struct DeviceSelector("k8s.io.api.resource.v1.DeviceSelector") {
        /// CEL expression over a device.
        cel: Option<Box<CelDeviceSelector>> = 1 "cel",
    }
}

message! {
    /// An expression about a device.
    pub struct CelDeviceSelector("k8s.io.api.resource.v1.CELDeviceSelector") {
        /// CEL expression.
        expression: Text = 1 "expression",
    }
}

message! {
    /// How much of a device.
    pub struct CapacityRequirements("k8s.io.api.resource.v1.CapacityRequirements") {
        /// Requested capacities, by name.
        requests: Map<Quantity> = 1 "requests",
    }
}

message! {
    /// A toleration of device taints.
    pub struct DeviceToleration("k8s.io.api.resource.v1.DeviceToleration") {
        /// Key; any when empty.
        key: Text = 1 "key",
        /// `Exists`, or `Equal` (also when empty).
        operator: Text = 2 "operator",
        /// Value of the taint.
        value: Text = 3 "value",
        /// Effect; any when empty.
        effect: Text = 4 "effect",
        /// Seconds until eviction; absent, the taint is tolerated forever.
        toleration_seconds: Option<i64> = 5 "tolerationSeconds",
    }
}

message! {
    /// A constraint between devices.
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
    /// Configuration for the driver of some requests' devices.
    pub struct DeviceClaimConfiguration("k8s.io.api.resource.v1.DeviceClaimConfiguration") {
        /// Which requests; all where it names none.
        requests: Box<[Text]> = 1 "requests",
        => /// Driver configuration.
        what: DeviceConfiguration = 2
    }
}

message! {
    /// Configuration for the driver of a class' devices.
    pub struct DeviceClassConfiguration("k8s.io.api.resource.v1.DeviceClassConfiguration") {
        => /// Driver configuration.
        what: DeviceConfiguration = 1
    }
}

message! {
    /// Configuration for a driver.
    pub struct DeviceConfiguration("k8s.io.api.resource.v1.DeviceConfiguration") {
        /// In words of its own.
        opaque: Option<Box<OpaqueDeviceConfiguration>> = 1 "opaque",
    }
}

message! {
    /// Opaque configuration, which only the driver interprets.
    pub struct OpaqueDeviceConfiguration("k8s.io.api.resource.v1.OpaqueDeviceConfiguration") {
        /// Name of the driver.
        driver: Text = 1 "driver",
        /// Parameters, interpreted by the driver.
        parameters: RawJson = 2 "parameters",
    }
}

message! {
    /// Observed state of a claim: allocation and reservations.
    pub struct ResourceClaimStatus("k8s.io.api.resource.v1.ResourceClaimStatus") {
        /// Allocation of devices; absent until the claim is allocated.
        allocation: Option<Box<AllocationResult>> = 1 "allocation",
        /// Consumers for which the claim is reserved.
        reserved_for: Box<[ResourceClaimConsumerReference]> = 2 "reservedFor",
        /// Status of the allocated devices.
        devices: Box<[AllocatedDeviceStatus]> = 4 "devices",
    }
}

message! {
    /// Devices that were given.
    pub struct AllocationResult("k8s.io.api.resource.v1.AllocationResult") {
        /// Allocated devices.
        devices: DeviceAllocationResult = 1 "devices",
        /// Nodes from which the devices are accessible; all where absent.
        node_selector: Option<Box<NodeSelector>> = 3 "nodeSelector",
        /// Time of the allocation.
        allocation_timestamp: Option<Timestamp> = 5 "allocationTimestamp",
    }
}

message! {
    /// Which devices were given.
    pub struct DeviceAllocationResult("k8s.io.api.resource.v1.DeviceAllocationResult") {
        /// Allocated devices, one entry per device.
        results: Box<[DeviceRequestAllocationResult]> = 1 "results",
    }
}

message! {
    /// A device that was given.
    pub struct DeviceRequestAllocationResult("k8s.io.api.resource.v1.DeviceRequestAllocationResult") {
        /// For which request; for one of several choices, `request/choice`.
        request: Text = 1 "request",
        /// Name of the driver.
        driver: Text = 2 "driver",
        /// Name of the pool.
        pool: Text = 3 "pool",
        /// Name of the device.
        device: Text = 4 "device",
        /// Whether it was given for looking after it.
        admin_access: Option<bool> = 5 "adminAccess",
        /// Binding conditions: they must be true before the pod is bound.
        binding_conditions: Box<[Text]> = 7 "bindingConditions",
        /// Binding failure conditions: none may become true.
        binding_failure_conditions: Box<[Text]> = 8 "bindingFailureConditions",
        /// Tells this share of it from others.
        share_id: Option<Text> = 9 "shareID",
        /// How much of it.
        consumed_capacity: Map<Quantity> = 10 "consumedCapacity",
    }
}

message! {
    /// A consumer for which a claim is reserved.
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
        /// Name of the driver.
        driver: Text = 1 "driver",
        /// Name of the pool.
        pool: Text = 2 "pool",
        /// Name of the device.
        device: Text = 3 "device",
        /// Status of the device, from its driver.
        conditions: Box<[MetaCondition]> = 4 "conditions",
    }
}

message! {
    /// A class of devices.
    pub struct DeviceClass("k8s.io.api.resource.v1.DeviceClass") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Specification of the class.
        spec: DeviceClassSpec = 2 "spec",
    }
}

view!(DeviceClass, "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", false);

message! {
    /// Specification of a device class.
    pub struct DeviceClassSpec("k8s.io.api.resource.v1.DeviceClassSpec") {
        /// Selectors that the devices match.
        selectors: Box<[DeviceSelector]> = 1 "selectors",
        /// Configuration for the drivers.
        config: Box<[DeviceClassConfiguration]> = 2 "config",
        /// Extended resource by which containers may ask for its devices; empty for none.
        extended_resource_name: Text = 4 "extendedResourceName",
    }
}
