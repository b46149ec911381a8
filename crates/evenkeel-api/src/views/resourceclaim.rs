//! ResourceClaims and DeviceClasses: requested and allocated devices.

use super::affinity::NodeSelector;
use super::poddisruptionbudget::MetaCondition;
use crate::Meta;
use crate::decode::{message, view};
use crate::map::{Map, RawJson, Unread};
use crate::quantity::Quantity;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// ResourceClaim: a claim for devices, with their allocation (`resource.k8s.io/v1`).
    pub struct ResourceClaim("k8s.io.api.resource.v1.ResourceClaim") {
        /// Metadata; the owner of a generated claim is its pod.
        meta: Meta = 1 "metadata",
        /// Requested devices; immutable.
        spec: ResourceClaimSpec = 2 "spec",
        /// Allocation and reservations.
        status: ResourceClaimStatus = 3 "status",
    }
}

view!(ResourceClaim, "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", namespaced);

message! {
    /// Desired state of a ResourceClaim.
    pub struct ResourceClaimSpec("k8s.io.api.resource.v1.ResourceClaimSpec") {
        /// Requests, constraints and configuration of devices.
        devices: DeviceClaim = 1 "devices",
    }
}

message! {
    /// Device requests of a ResourceClaim, with constraints and configuration.
    pub struct DeviceClaim("k8s.io.api.resource.v1.DeviceClaim") {
        /// Requests, which must all be satisfied; at most 32.
        requests: Box<[DeviceRequest]> = 1 "requests",
        /// Constraints between the requested devices.
        constraints: Box<[DeviceConstraint]> = 2 "constraints",
        /// Configuration for the drivers.
        config: Box<[DeviceClaimConfiguration]> = 3 "config",
    }
}

message! {
    /// Request for devices: an exact request, or a list of alternatives. The first available alternative is used.
    pub struct DeviceRequest("k8s.io.api.resource.v1.DeviceRequest") {
        /// Name within the claim, for references by containers and constraints.
        name: Text = 1 "name",
        /// A request for devices of one class.
        exactly: Option<Box<ExactDeviceRequest>> = 2 "exactly",
        /// Alternatives in order of preference; the scheduler allocates the first possible one.
        first_available: Box<[DeviceSubRequest]> = 3 "firstAvailable",
    }
}

message! {
    /// Request for devices of one class.
    pub struct ExactDeviceRequest("k8s.io.api.resource.v1.ExactDeviceRequest") {
        /// Name of the DeviceClass.
        device_class_name: Text = 1 "deviceClassName",
        /// Selectors that the devices must match in addition to their class.
        selectors: Box<[DeviceSelector]> = 2 "selectors",
        /// `ExactCount` or `All`.
        allocation_mode: Text = 3 "allocationMode",
        /// Number of devices.
        count: i64 = 4 "count",
        /// Whether the devices are for administrative access, which other claims can have at the same time; false by
        /// default.
        admin_access: Option<bool> = 5 "adminAccess",
        /// Tolerations of device taints.
        tolerations: Box<[DeviceToleration]> = 6 "tolerations",
        /// Amounts that each device must have available; absent for any.
        capacity: Option<Box<CapacityRequirements>> = 7 "capacity",
        /// Attributes derived from others, decoded only to their number.
        derived_attributes: Box<[Unread]> = 8 "derivedAttributes",
    }
}

message! {
    /// Alternative of a request: devices of one class.
    pub struct DeviceSubRequest("k8s.io.api.resource.v1.DeviceSubRequest") {
        /// Name within the request, for references as `request/subrequest`.
        name: Text = 1 "name",
        /// Name of the DeviceClass.
        device_class_name: Text = 2 "deviceClassName",
        /// Selectors that the devices must match in addition to their class.
        selectors: Box<[DeviceSelector]> = 3 "selectors",
        /// `ExactCount` or `All`.
        allocation_mode: Text = 4 "allocationMode",
        /// Number of devices.
        count: i64 = 5 "count",
        /// Tolerations of device taints.
        tolerations: Box<[DeviceToleration]> = 6 "tolerations",
        /// Amounts that each device must have available; absent for any.
        capacity: Option<Box<CapacityRequirements>> = 7 "capacity",
        /// Attributes derived from others, decoded only to their number.
        derived_attributes: Box<[Unread]> = 8 "derivedAttributes",
    }
}

message! {
    /// Selector of devices.
    pub struct DeviceSelector("k8s.io.api.resource.v1.DeviceSelector") {
        /// CEL expression over a device.
        cel: Option<Box<CelDeviceSelector>> = 1 "cel",
    }
}

message! {
    /// CEL expression that selects devices.
    pub struct CelDeviceSelector("k8s.io.api.resource.v1.CELDeviceSelector") {
        /// CEL expression over `device`, which is true for matching devices.
        expression: Text = 1 "expression",
    }
}

message! {
    /// Requested amounts of a device's capacities.
    pub struct CapacityRequirements("k8s.io.api.resource.v1.CapacityRequirements") {
        /// Requested capacities, by name.
        requests: Map<Quantity> = 1 "requests",
    }
}

message! {
    /// Toleration of matching device taints.
    pub struct DeviceToleration("k8s.io.api.resource.v1.DeviceToleration") {
        /// Key of the taint; empty for all keys.
        key: Text = 1 "key",
        /// `Exists`, or `Equal` (also when empty).
        operator: Text = 2 "operator",
        /// Value of the taint.
        value: Text = 3 "value",
        /// Effect of the taint; empty for all effects.
        effect: Text = 4 "effect",
        /// Seconds until eviction; if absent, the taint is tolerated forever.
        toleration_seconds: Option<i64> = 5 "tolerationSeconds",
    }
}

message! {
    /// A constraint between devices.
    pub struct DeviceConstraint("k8s.io.api.resource.v1.DeviceConstraint") {
        /// Names of the requests that the constraint covers; empty for all.
        requests: Box<[Text]> = 1 "requests",
        /// Attribute that must have the same value on all devices.
        match_attribute: Option<Text> = 2 "matchAttribute",
        /// Attribute that must have a different value on each device.
        distinct_attribute: Option<Text> = 3 "distinctAttribute",
    }
}

message! {
    /// Configuration for the drivers of the devices of some requests.
    pub struct DeviceClaimConfiguration("k8s.io.api.resource.v1.DeviceClaimConfiguration") {
        /// Names of the requests that the configuration covers; empty for all.
        requests: Box<[Text]> = 1 "requests",
        => /// Parameters for the driver of the devices.
        configuration: DeviceConfiguration = 2
    }
}

message! {
    /// Configuration for the driver of a class's devices.
    pub struct DeviceClassConfiguration("k8s.io.api.resource.v1.DeviceClassConfiguration") {
        => /// Parameters for the driver of the devices.
        configuration: DeviceConfiguration = 1
    }
}

message! {
    /// Configuration for a driver.
    pub struct DeviceConfiguration("k8s.io.api.resource.v1.DeviceConfiguration") {
        /// Configuration in the driver's own format.
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
        /// Consumers that the claim is reserved for.
        reserved_for: Box<[ResourceClaimConsumerReference]> = 2 "reservedFor",
        /// Status of the allocated devices.
        devices: Box<[AllocatedDeviceStatus]> = 4 "devices",
    }
}

message! {
    /// Allocated devices, and the nodes that can access them.
    pub struct AllocationResult("k8s.io.api.resource.v1.AllocationResult") {
        /// Allocated devices and their configuration.
        devices: DeviceAllocationResult = 1 "devices",
        /// Nodes from which the devices are accessible; all if absent.
        node_selector: Option<Box<NodeSelector>> = 3 "nodeSelector",
        /// Time of the allocation.
        allocation_timestamp: Option<Timestamp> = 5 "allocationTimestamp",
    }
}

message! {
    /// Allocated devices, one result per device.
    pub struct DeviceAllocationResult("k8s.io.api.resource.v1.DeviceAllocationResult") {
        /// Allocated devices, one entry per device.
        results: Box<[DeviceRequestAllocationResult]> = 1 "results",
    }
}

message! {
    /// Allocated device, and the request that it satisfies.
    pub struct DeviceRequestAllocationResult("k8s.io.api.resource.v1.DeviceRequestAllocationResult") {
        /// Name of the satisfied request; for an alternative, `request/subrequest`.
        request: Text = 1 "request",
        /// Name of the driver.
        driver: Text = 2 "driver",
        /// Name of the pool.
        pool: Text = 3 "pool",
        /// Name of the device.
        device: Text = 4 "device",
        /// Whether the device was allocated for administration.
        admin_access: Option<bool> = 5 "adminAccess",
        /// Conditions that must be true before the pod is bound.
        binding_conditions: Box<[Text]> = 7 "bindingConditions",
        /// Conditions that must not become true before the pod is bound.
        binding_failure_conditions: Box<[Text]> = 8 "bindingFailureConditions",
        /// Identifier of this share of a device that multiple claims can share.
        share_id: Option<Text> = 9 "shareID",
        /// Amounts of the device's capacities that the share consumes.
        consumed_capacity: Map<Quantity> = 10 "consumedCapacity",
    }
}

message! {
    /// A consumer that a claim is reserved for.
    pub struct ResourceClaimConsumerReference("k8s.io.api.resource.v1.ResourceClaimConsumerReference") {
        /// API group of the consumer; empty for the core group.
        api_group: Text = 1 "apiGroup",
        /// Plural resource name of the consumer, such as `pods`.
        resource: Text = 3 "resource",
        /// Name of the consumer, in the claim's namespace.
        name: Text = 4 "name",
        /// Uid of the consumer, which distinguishes it from a later object with the same name.
        uid: Text = 5 "uid",
    }
}

message! {
    /// Status of an allocated device, set by its driver.
    pub struct AllocatedDeviceStatus("k8s.io.api.resource.v1.AllocatedDeviceStatus") {
        /// Name of the driver.
        driver: Text = 1 "driver",
        /// Name of the pool.
        pool: Text = 2 "pool",
        /// Name of the device.
        device: Text = 3 "device",
        /// Conditions of the device, set by its driver.
        conditions: Box<[MetaCondition]> = 4 "conditions",
    }
}

message! {
    /// DeviceClass: a class of devices.
    pub struct DeviceClass("k8s.io.api.resource.v1.DeviceClass") {
        /// Metadata; classes are cluster-scoped, and requests reference them by name.
        meta: Meta = 1 "metadata",
        /// Desired state of the class.
        spec: DeviceClassSpec = 2 "spec",
    }
}

view!(DeviceClass, "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", cluster_scoped);

message! {
    /// Desired state of a DeviceClass.
    pub struct DeviceClassSpec("k8s.io.api.resource.v1.DeviceClassSpec") {
        /// Selectors that the devices must match.
        selectors: Box<[DeviceSelector]> = 1 "selectors",
        /// Configuration for the drivers.
        config: Box<[DeviceClassConfiguration]> = 2 "config",
        /// Extended resource that containers can request to get devices of the class; empty for none.
        extended_resource_name: Text = 4 "extendedResourceName",
    }
}
