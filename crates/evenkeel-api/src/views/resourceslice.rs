//! ResourceSlices: the devices that drivers offer.

use super::affinity::NodeSelector;
use crate::Meta;
use crate::decode::{message, view};
use crate::map::{Map, Unread};
use crate::quantity::Quantity;
use crate::text::Text;

message! {
    /// Part of the devices of a resource pool (dynamic resource allocation).
    pub struct ResourceSlice("k8s.io.api.resource.v1.ResourceSlice") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// The devices.
        spec: ResourceSliceSpec = 2 "spec",
    }
}

view!(ResourceSlice, "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", false);

message! {
    /// Devices of a slice, and the nodes that can use them.
    pub struct ResourceSliceSpec("k8s.io.api.resource.v1.ResourceSliceSpec") {
        /// Driver that publishes the slice.
        driver: Text = 1 "driver",
        /// Pool of the devices.
        pool: ResourcePool = 2 "pool",
        /// From this node only.
        node_name: Text = 3 "nodeName",
        /// From these nodes.
        node_selector: Option<Box<NodeSelector>> = 4 "nodeSelector",
        /// From all nodes.
        all_nodes: bool = 5 "allNodes",
        /// The devices.
        devices: Box<[Device]> = 6 "devices",
        /// Whether each device has its own node selection.
        per_device_node_selection: bool = 7 "perDeviceNodeSelection",
        /// Counters that devices of the pool share; a slice with counters has no devices.
        shared_counters: Box<[CounterSet]> = 8 "sharedCounters",
    }
}

message! {
    /// Pool of a driver's devices, with the generation and number of its slices.
    pub struct ResourcePool("k8s.io.api.resource.v1.ResourcePool") {
        /// Name.
        name: Text = 1 "name",
        /// Slices of an older generation are void.
        generation: i64 = 2 "generation",
        /// How many slices there are of this generation.
        resource_slice_count: i64 = 3 "resourceSliceCount",
    }
}

message! {
    /// Device with its attributes, capacities, consumed counters and taints.
    pub struct Device("k8s.io.api.resource.v1.Device") {
        /// Name within the pool.
        name: Text = 1 "name",
        /// Attributes, by name with or without the driver's domain.
        attributes: Map<DeviceAttribute> = 2 "attributes",
        /// Capacities of the device.
        capacity: Map<DeviceCapacity> = 3 "capacity",
        /// Shared counters that the device consumes.
        consumes_counters: Box<[DeviceCounterConsumption]> = 4 "consumesCounters",
        /// From this node only.
        node_name: Text = 5 "nodeName",
        /// From these nodes.
        node_selector: Option<Box<NodeSelector>> = 6 "nodeSelector",
        /// From all nodes.
        all_nodes: bool = 7 "allNodes",
        /// Taints that a request must tolerate.
        taints: Box<[DeviceTaint]> = 8 "taints",
        /// Once given it can be used from that node only.
        binds_to_node: bool = 9 "bindsToNode",
        /// Binding conditions: they must be true before a pod is bound.
        binding_conditions: Box<[Text]> = 10 "bindingConditions",
        /// Binding failure conditions: none may become true.
        binding_failure_conditions: Box<[Text]> = 11 "bindingFailureConditions",
        /// Whether several may have a share of it.
        allow_multiple_allocations: bool = 12 "allowMultipleAllocations",
    }
}

message! {
    /// Typed value of a device attribute; one field is set.
    pub struct DeviceAttribute("k8s.io.api.resource.v1.DeviceAttribute") {
        /// A number.
        int: Option<i64> = 2 "int",
        /// A truth value.
        bool: Option<bool> = 3 "bool",
        /// A text.
        string: Option<Text> = 4 "string",
        /// A semantic version.
        version: Option<Text> = 5 "version",
    }
}

message! {
    /// Capacity of a device, and the policy of requests for parts of it.
    pub struct DeviceCapacity("k8s.io.api.resource.v1.DeviceCapacity") {
        /// So much.
        value: Quantity = 1 "value",
        /// In which amounts it is given.
        request_policy: Option<Box<CapacityRequestPolicy>> = 2 "requestPolicy",
    }
}

message! {
    /// Default and valid amounts of a request for part of a capacity.
    pub struct CapacityRequestPolicy("k8s.io.api.resource.v1.CapacityRequestPolicy") {
        /// Default capacity of a request without one.
        default: Option<Quantity> = 1 "default",
        /// One of these, which grow.
        valid_values: Box<[Quantity]> = 3 "validValues",
        /// Within these bounds.
        valid_range: Option<Box<CapacityRequestPolicyRange>> = 4 "validRange",
    }
}

message! {
    /// Minimum, maximum and step of a requested amount.
    pub struct CapacityRequestPolicyRange("k8s.io.api.resource.v1.CapacityRequestPolicyRange") {
        /// Minimum per resource.
        min: Option<Quantity> = 1 "min",
        /// Maximum per resource.
        max: Option<Quantity> = 2 "max",
        /// The least and a multiple of this.
        step: Option<Quantity> = 3 "step",
    }
}

message! {
    /// Amounts that a device consumes of a counter set.
    pub struct DeviceCounterConsumption("k8s.io.api.resource.v1.DeviceCounterConsumption") {
        /// Of which set.
        counter_set: Text = 1 "counterSet",
        /// How much of each.
        counters: Map<Counter> = 2 "counters",
        /// With which others it can be had at once; how many, no more.
        compatibility_groups: Box<[Unread]> = 3 "compatibilityGroups",
    }
}

message! {
    /// Counters that several devices of a pool consume.
    pub struct CounterSet("k8s.io.api.resource.v1.CounterSet") {
        /// Name within the pool.
        name: Text = 1 "name",
        /// How much of each.
        counters: Map<Counter> = 2 "counters",
    }
}

message! {
    /// Available or consumed amount of one counter.
    pub struct Counter("k8s.io.api.resource.v1.Counter") {
        /// So much.
        value: Quantity = 1 "value",
    }
}

message! {
    /// Taint of a device, which repels claims that do not tolerate it.
    pub struct DeviceTaint("k8s.io.api.resource.v1.DeviceTaint") {
        /// Key.
        key: Text = 1 "key",
        /// Value of the taint.
        value: Text = 2 "value",
        /// `None`, `NoSchedule` or `NoExecute`.
        effect: Text = 3 "effect",
    }
}

message! {
    /// An administrator's taint of selected devices.
    pub struct DeviceTaintRule("k8s.io.api.resource.v1.DeviceTaintRule") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Which taint, on which devices.
        spec: DeviceTaintRuleSpec = 2 "spec",
    }
}

view!(DeviceTaintRule, "resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", false);

message! {
    /// Taint of a DeviceTaintRule, and the selector of its devices.
    pub struct DeviceTaintRuleSpec("k8s.io.api.resource.v1.DeviceTaintRuleSpec") {
        /// The devices; none where it is absent.
        device_selector: Option<Box<DeviceTaintSelector>> = 1 "deviceSelector",
        /// The taint.
        taint: DeviceTaint = 2 "taint",
    }
}

message! {
    /// Selects devices by driver, pool and device; all given fields must match.
    pub struct DeviceTaintSelector("k8s.io.api.resource.v1.DeviceTaintSelector") {
        /// Of this driver.
        driver: Option<Text> = 2 "driver",
        /// Of this pool.
        pool: Option<Text> = 3 "pool",
        /// With this name.
        device: Option<Text> = 4 "device",
    }
}
