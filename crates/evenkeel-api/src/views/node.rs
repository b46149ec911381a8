//! Nodes.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Map;
use crate::quantity::Quantity;
use crate::text::Text;
use crate::time::Timestamp;
use serde_json::{Value, json};

message! {
    /// Node, with the fields that scheduling and node controllers read.
    pub struct Node("k8s.io.api.core.v1.Node") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// How it should be used.
        spec: NodeSpec = 2 "spec",
        /// Observed state of the object.
        status: NodeStatus = 3 "status",
    }
}

view!(Node, "", "v1", "Node", "nodes", false);

message! {
    /// Desired state of a node: pod CIDRs, provider ID, taints, unschedulable.
    pub struct NodeSpec("k8s.io.api.core.v1.NodeSpec") {
        /// Range of its pods' addresses.
        pod_cidr: Text = 1 "podCIDR",
        /// Ranges of its pods' addresses, one for each family.
        pod_cidrs: Box<[Text]> = 7 "podCIDRs",
        /// The cloud provider's id of the node.
        provider_id: Text = 3 "providerID",
        /// Whether the node is cordoned.
        unschedulable: bool = 4 "unschedulable",
        /// Taints of the node.
        taints: Box<[Taint]> = 5 "taints",
    }
}

message! {
    /// Observed state of a node: capacity, conditions, addresses, images, volumes.
    pub struct NodeStatus("k8s.io.api.core.v1.NodeStatus") {
        /// Capacity of the node.
        capacity: Map<Quantity> = 1 "capacity",
        /// Allocatable resources.
        allocatable: Map<Quantity> = 2 "allocatable",
        /// Conditions.
        conditions: Box<[NodeCondition]> = 4 "conditions",
        /// Addresses.
        addresses: Box<[NodeAddress]> = 5 "addresses",
        /// Facts about the machine, from the kubelet.
        node_info: NodeSystemInfo = 7 "nodeInfo",
        /// Images on it.
        images: Box<[ContainerImage]> = 8 "images",
        /// Attached volumes that are in use.
        volumes_in_use: Box<[Text]> = 9 "volumesInUse",
        /// Attached volumes.
        volumes_attached: Box<[AttachedVolume]> = 10 "volumesAttached",
        /// Features that the node declares.
        declared_features: Box<[Text]> = 14 "declaredFeatures",
    }
}

message! {
    /// Condition of a node, such as `Ready` or `MemoryPressure`.
    pub struct NodeCondition("k8s.io.api.core.v1.NodeCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// When it was last reported.
        last_heartbeat_time: Option<Timestamp> = 3 "lastHeartbeatTime",
        /// When the status last changed.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Why, in one CamelCase word.
        reason: Text = 5 "reason",
        /// Human-readable message.
        message: Text = 6 "message",
    }
}

message! {
    /// Address of a node by type, such as `InternalIP` or `Hostname`.
    pub struct NodeAddress("k8s.io.api.core.v1.NodeAddress") {
        /// `Hostname`, `InternalIP`, …
        type_: Text = 1 "type",
        /// The address.
        address: Text = 2 "address",
    }
}

message! {
    /// Identifiers of a node's machine and boot.
    pub struct NodeSystemInfo("k8s.io.api.core.v1.NodeSystemInfo") {
        /// Of the operating system.
        machine_id: Text = 1 "machineID",
        /// UUID of the machine, or of its hypervisor.
        system_uuid: Text = 2 "systemUUID",
    }
}

message! {
    /// Image on a node, by its names, with its size in bytes.
    pub struct ContainerImage("k8s.io.api.core.v1.ContainerImage") {
        /// Its names.
        names: Box<[Text]> = 1 "names",
        /// Its size in bytes.
        size_bytes: i64 = 2 "sizeBytes",
    }
}

message! {
    /// Volume that is attached to a node, and its device path.
    pub struct AttachedVolume("k8s.io.api.core.v1.AttachedVolume") {
        /// Its name.
        name: Text = 1 "name",
        /// Device path of the volume.
        device_path: Text = 2 "devicePath",
    }
}

message! {
    /// Taint of a node, which repels pods that do not tolerate it.
    pub struct Taint("k8s.io.api.core.v1.Taint") {
        /// Key.
        key: Text = 1 "key",
        /// Value of the taint.
        value: Text = 2 "value",
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: Text = 3 "effect",
        /// When it was set.
        time_added: Option<Timestamp> = 4 "timeAdded",
    }
}

impl Taint {
    /// The taint as it came, for a patch that writes a node's taints.
    pub fn to_json_value(&self) -> Value {
        let mut written = json!({"key": &*self.key, "effect": &*self.effect});
        if !self.value.is_empty() {
            written["value"] = json!(&*self.value);
        }
        if let Some(time) = self.time_added {
            written["timeAdded"] = json!(crate::time::seconds(time));
        }
        written
    }
}
