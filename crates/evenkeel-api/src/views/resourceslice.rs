//! ResourceSlices: the devices that drivers publish.

use super::affinity::NodeSelector;
use crate::Meta;
use crate::decode::{message, view};
use crate::map::{Map, Unread};
use crate::quantity::Quantity;
use crate::text::Text;

message! {
    /// ResourceSlice, with a part of the devices of a resource pool (dynamic resource allocation).
    pub struct ResourceSlice("k8s.io.api.resource.v1.ResourceSlice") {
        /// Metadata; slices are cluster-scoped, and the driver chooses the name.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ResourceSliceSpec = 2 "spec",
    }
}

view!(ResourceSlice, "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", cluster_scoped);

message! {
    /// Devices of a slice, and the nodes that can use them.
    pub struct ResourceSliceSpec("k8s.io.api.resource.v1.ResourceSliceSpec") {
        /// Driver that publishes the slice.
        driver: Text = 1 "driver",
        /// Pool of the devices.
        pool: ResourcePool = 2 "pool",
        /// Name of the only node that can access the devices.
        node_name: Text = 3 "nodeName",
        /// Selector of the nodes that can access the devices.
        node_selector: Option<Box<NodeSelector>> = 4 "nodeSelector",
        /// Whether all nodes can access the devices.
        all_nodes: bool = 5 "allNodes",
        /// Devices of the slice.
        devices: Box<[Device]> = 6 "devices",
        /// Whether each device has its own node selection.
        per_device_node_selection: bool = 7 "perDeviceNodeSelection",
        /// Counters that devices of the pool share. A slice with counters has no devices.
        shared_counters: Box<[CounterSet]> = 8 "sharedCounters",
    }
}

message! {
    /// Pool of a driver's devices, with the generation and number of its slices.
    pub struct ResourcePool("k8s.io.api.resource.v1.ResourcePool") {
        /// Name of the pool.
        name: Text = 1 "name",
        /// Generation of the pool; slices of an older generation are obsolete.
        generation: i64 = 2 "generation",
        /// Number of slices in this generation.
        resource_slice_count: i64 = 3 "resourceSliceCount",
    }
}

message! {
    /// Device with its attributes, capacities, consumed counters and taints.
    pub struct Device("k8s.io.api.resource.v1.Device") {
        /// Name within the pool.
        name: Text = 1 "name",
        /// Attributes by name, with or without the driver's domain.
        attributes: Map<DeviceAttribute> = 2 "attributes",
        /// Capacities of the device.
        capacity: Map<DeviceCapacity> = 3 "capacity",
        /// Shared counters that the device consumes.
        consumes_counters: Box<[DeviceCounterConsumption]> = 4 "consumesCounters",
        /// Name of the only node that can access the device.
        node_name: Text = 5 "nodeName",
        /// Selector of the nodes that can access the device.
        node_selector: Option<Box<NodeSelector>> = 6 "nodeSelector",
        /// Whether all nodes can access the device.
        all_nodes: bool = 7 "allNodes",
        /// Taints that a request must tolerate.
        taints: Box<[DeviceTaint]> = 8 "taints",
        /// Whether an allocated device is accessible only from the node of the allocation.
        binds_to_node: bool = 9 "bindsToNode",
        /// Conditions that must be true before a pod is bound.
        binding_conditions: Box<[Text]> = 10 "bindingConditions",
        /// Conditions that must not become true before a pod is bound.
        binding_failure_conditions: Box<[Text]> = 11 "bindingFailureConditions",
        /// Whether multiple claims can share the device, each with a part of its capacity.
        allow_multiple_allocations: bool = 12 "allowMultipleAllocations",
    }
}

message! {
    /// Value of a device attribute. Exactly one field is set.
    pub struct DeviceAttribute("k8s.io.api.resource.v1.DeviceAttribute") {
        /// An integer value.
        int: Option<i64> = 2 "int",
        /// A boolean value.
        bool: Option<bool> = 3 "bool",
        /// A string value.
        string: Option<Text> = 4 "string",
        /// A semantic version.
        version: Option<Text> = 5 "version",
    }
}

message! {
    /// Capacity of a device, and the policy for requests of parts of it.
    pub struct DeviceCapacity("k8s.io.api.resource.v1.DeviceCapacity") {
        /// Total amount of the device.
        value: Quantity = 1 "value",
        /// Policy for requests of parts; if absent, the capacity is only available as a whole.
        request_policy: Option<Box<CapacityRequestPolicy>> = 2 "requestPolicy",
    }
}

message! {
    /// Default and valid amounts for requests of a part of a capacity.
    pub struct CapacityRequestPolicy("k8s.io.api.resource.v1.CapacityRequestPolicy") {
        /// Amount of a request that specifies none.
        default: Option<Quantity> = 1 "default",
        /// Valid amounts, in ascending order.
        valid_values: Box<[Quantity]> = 3 "validValues",
        /// Range of valid amounts.
        valid_range: Option<Box<CapacityRequestPolicyRange>> = 4 "validRange",
    }
}

message! {
    /// Minimum, maximum and step of a requested amount.
    pub struct CapacityRequestPolicyRange("k8s.io.api.resource.v1.CapacityRequestPolicyRange") {
        /// Minimum amount; smaller requests are rounded up to it.
        min: Option<Quantity> = 1 "min",
        /// Maximum amount; the device's capacity if absent.
        max: Option<Quantity> = 2 "max",
        /// Difference between successive valid amounts, which start at the minimum.
        step: Option<Quantity> = 3 "step",
    }
}

message! {
    /// Amounts of a counter set that a device consumes.
    pub struct DeviceCounterConsumption("k8s.io.api.resource.v1.DeviceCounterConsumption") {
        /// Name of the counter set.
        counter_set: Text = 1 "counterSet",
        /// Consumed amount of each counter.
        counters: Map<Counter> = 2 "counters",
        /// Compatibility groups of the device, decoded only to their number.
        compatibility_groups: Box<[Unread]> = 3 "compatibilityGroups",
    }
}

message! {
    /// Counters that multiple devices of a pool consume.
    pub struct CounterSet("k8s.io.api.resource.v1.CounterSet") {
        /// Name within the pool.
        name: Text = 1 "name",
        /// Amount of each counter.
        counters: Map<Counter> = 2 "counters",
    }
}

message! {
    /// Available or consumed amount of one counter.
    pub struct Counter("k8s.io.api.resource.v1.Counter") {
        /// Amount of the counter.
        value: Quantity = 1 "value",
    }
}

message! {
    /// Taint of a device, which repels claims that do not tolerate it.
    pub struct DeviceTaint("k8s.io.api.resource.v1.DeviceTaint") {
        /// Key of the taint.
        key: Text = 1 "key",
        /// Value of the taint.
        value: Text = 2 "value",
        /// `None`, `NoSchedule` or `NoExecute`.
        effect: Text = 3 "effect",
    }
}

message! {
    /// DeviceTaintRule: an administrator's taint of selected devices.
    pub struct DeviceTaintRule("k8s.io.api.resource.v1.DeviceTaintRule") {
        /// Metadata; rules are cluster-scoped.
        meta: Meta = 1 "metadata",
        /// The taint and the selector of its devices.
        spec: DeviceTaintRuleSpec = 2 "spec",
    }
}

view!(
    DeviceTaintRule,
    "resource.k8s.io",
    "v1",
    "DeviceTaintRule",
    "devicetaintrules",
    cluster_scoped
);

message! {
    /// Taint of a DeviceTaintRule, and selector of its devices.
    pub struct DeviceTaintRuleSpec("k8s.io.api.resource.v1.DeviceTaintRuleSpec") {
        /// Selector of the devices; selects none if absent.
        device_selector: Option<Box<DeviceTaintSelector>> = 1 "deviceSelector",
        /// The taint to apply.
        taint: DeviceTaint = 2 "taint",
    }
}

message! {
    /// Selector of devices by driver, pool and device; all specified fields must match.
    pub struct DeviceTaintSelector("k8s.io.api.resource.v1.DeviceTaintSelector") {
        /// Name of the driver.
        driver: Option<Text> = 2 "driver",
        /// Name of the pool.
        pool: Option<Text> = 3 "pool",
        /// Name of the device.
        device: Option<Text> = 4 "device",
    }
}
