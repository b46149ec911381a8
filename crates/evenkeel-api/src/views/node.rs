//! Nodes: taints, CIDRs, capacity, conditions, addresses, images.

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
        /// Metadata; labels name the host, zone, region, architecture and operating system.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: NodeSpec = 2 "spec",
        /// Observed state of the object.
        status: NodeStatus = 3 "status",
    }
}

view!(Node, "", "v1", "Node", "nodes", false);

message! {
    /// Desired state of a node: pod CIDRs, provider ID, taints, unschedulable.
    pub struct NodeSpec("k8s.io.api.core.v1.NodeSpec") {
        /// CIDR of the addresses of its pods; set by the node IPAM controller.
        pod_cidr: Text = 1 "podCIDR",
        /// CIDRs of the addresses of its pods, one for each IP family; the first is `podCIDR`.
        pod_cidrs: Box<[Text]> = 7 "podCIDRs",
        /// Identifier of the node's instance at the cloud provider, as `provider://id`.
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
        /// Total amount of each resource on the node.
        capacity: Map<Quantity> = 1 "capacity",
        /// Amount of each resource that pods may use: the capacity less what the system reserves.
        allocatable: Map<Quantity> = 2 "allocatable",
        /// Conditions such as `Ready`, `MemoryPressure` and `DiskPressure`; set by the kubelet.
        conditions: Box<[NodeCondition]> = 4 "conditions",
        /// Addresses and names by which the node is reached.
        addresses: Box<[NodeAddress]> = 5 "addresses",
        /// Facts about the machine, from the kubelet.
        node_info: NodeSystemInfo = 7 "nodeInfo",
        /// Images that the node has pulled, the largest first; the kubelet reports 50 by default.
        images: Box<[ContainerImage]> = 8 "images",
        /// Unique names of attachable volumes that are mounted; these must not be detached.
        volumes_in_use: Box<[Text]> = 9 "volumesInUse",
        /// Volumes that are attached to the node; set by the attach-detach controller.
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
        /// Time at which the kubelet last reported the condition.
        last_heartbeat_time: Option<Timestamp> = 3 "lastHeartbeatTime",
        /// When the status last changed.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Why, in one CamelCase word.
        reason: Text = 5 "reason",
        /// Details of the last transition, for people.
        message: Text = 6 "message",
    }
}

message! {
    /// Address of a node by type, such as `InternalIP` or `Hostname`.
    pub struct NodeAddress("k8s.io.api.core.v1.NodeAddress") {
        /// `Hostname`, `InternalIP`, `ExternalIP`, `InternalDNS` or `ExternalDNS`.
        type_: Text = 1 "type",
        /// IP address, host name or DNS name, by type.
        address: Text = 2 "address",
    }
}

message! {
    /// Identifiers of a node's machine and boot.
    pub struct NodeSystemInfo("k8s.io.api.core.v1.NodeSystemInfo") {
        /// Identifier of the operating system's installation, from `/etc/machine-id`.
        machine_id: Text = 1 "machineID",
        /// UUID of the machine, or of its hypervisor.
        system_uuid: Text = 2 "systemUUID",
    }
}

message! {
    /// Image on a node, by its names, with its size in bytes.
    pub struct ContainerImage("k8s.io.api.core.v1.ContainerImage") {
        /// References by which the image is known, with tag or digest.
        names: Box<[Text]> = 1 "names",
        /// Its size in bytes.
        size_bytes: i64 = 2 "sizeBytes",
    }
}

message! {
    /// Volume that is attached to a node, and its device path.
    pub struct AttachedVolume("k8s.io.api.core.v1.AttachedVolume") {
        /// Unique name of the volume, such as `kubernetes.io/csi/driver^handle`.
        name: Text = 1 "name",
        /// Device path of the volume.
        device_path: Text = 2 "devicePath",
    }
}

message! {
    /// Taint of a node, which repels pods that do not tolerate it.
    pub struct Taint("k8s.io.api.core.v1.Taint") {
        /// Key of the taint, a qualified name.
        key: Text = 1 "key",
        /// Value of the taint.
        value: Text = 2 "value",
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: Text = 3 "effect",
        /// Time at which the taint was added; the deadline of `tolerationSeconds` counts from it.
        time_added: Option<Timestamp> = 4 "timeAdded",
    }
}

impl Taint {
    /// The taint as JSON, for a patch that writes a node's taints.
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
