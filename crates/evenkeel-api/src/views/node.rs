//! Nodes: taints, CIDRs, capacity, conditions, addresses, images.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Map;
use crate::quantity::Quantity;
use crate::text::Text;
use crate::time::Timestamp;
use serde_json::{Value, json};

message! {
    /// Node with the fields that the scheduler and node controllers read.
    pub struct Node("k8s.io.api.core.v1.Node") {
        /// Metadata; labels have the host name, zone, region, architecture and operating system.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: NodeSpec = 2 "spec",
        /// Observed state of the object.
        status: NodeStatus = 3 "status",
    }
}

view!(Node, "", "v1", "Node", "nodes", cluster_scoped);

message! {
    /// Desired state of a node: pod CIDRs, provider ID, taints, and whether it is cordoned.
    pub struct NodeSpec("k8s.io.api.core.v1.NodeSpec") {
        /// CIDR of the pod IPs, set by the node IPAM controller.
        pod_cidr: Text = 1 "podCIDR",
        /// CIDRs of the pod IPs, one per IP family; the first is `podCIDR`.
        pod_cidrs: Box<[Text]> = 7 "podCIDRs",
        /// Identifier of the node's instance at the cloud provider: `provider://id`.
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
        /// Amount of each resource for pods: the capacity without the system's reservations.
        allocatable: Map<Quantity> = 2 "allocatable",
        /// Conditions such as `Ready`, `MemoryPressure` and `DiskPressure`, set by the kubelet.
        conditions: Box<[NodeCondition]> = 4 "conditions",
        /// Addresses and names of the node.
        addresses: Box<[NodeAddress]> = 5 "addresses",
        /// Information about the machine, set by the kubelet.
        node_info: NodeSystemInfo = 7 "nodeInfo",
        /// Pulled images, largest first; by default the kubelet reports 50.
        images: Box<[ContainerImage]> = 8 "images",
        /// Unique names of mounted attachable volumes, which must not be detached.
        volumes_in_use: Box<[Text]> = 9 "volumesInUse",
        /// Volumes attached to the node, set by the attach-detach controller.
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
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
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
        /// IP address, host name or DNS name, depending on the type.
        address: Text = 2 "address",
    }
}

message! {
    /// Identifiers of a node's machine.
    pub struct NodeSystemInfo("k8s.io.api.core.v1.NodeSystemInfo") {
        /// Identifier of the operating system's installation, from `/etc/machine-id`.
        machine_id: Text = 1 "machineID",
        /// UUID of the machine, or the one that its hypervisor assigned.
        system_uuid: Text = 2 "systemUUID",
    }
}

message! {
    /// Image on a node, with its names and size.
    pub struct ContainerImage("k8s.io.api.core.v1.ContainerImage") {
        /// References to the image, with tag or digest.
        names: Box<[Text]> = 1 "names",
        /// Size of the image in bytes.
        size_bytes: i64 = 2 "sizeBytes",
    }
}

message! {
    /// Volume that is attached to a node.
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
        /// Time at which the taint was added; `tolerationSeconds` counts from it.
        time_added: Option<Timestamp> = 4 "timeAdded",
    }
}

impl Taint {
    /// Encodes the taint as JSON, for a patch of a node's taints.
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
