//! Objects that a kubelet writes about its node: Node, node status and Lease.

use evenkeel_api::time::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;

use crate::{NodeOptions, pod::status::seconds};

/// Kubelet version in the node status.
const KUBELET_VERSION: &str = "v1.37.1";

/// Conditions of a healthy node: each with type, reason, message and status.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
        "False",
    ),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", "False"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available", "False"),
    ("Ready", "KubeletReady", "kubelet is posting ready status", "True"),
];

/// Returns the Node object to register.
pub(crate) fn object(node: &NodeOptions, now: Timestamp) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".into(), node.name.as_str().into());
    metadata.insert("labels".into(), labels(node));
    metadata.insert(
        "annotations".into(),
        json!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" }),
    );
    let mut spec = Map::new();
    if !node.taints.is_empty() {
        let taints = node
            .taints
            .iter()
            .map(|(key, value, effect)| json!({ "key": key, "value": value, "effect": effect }));
        spec.insert("taints".into(), taints.collect());
    }
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status(node, now, now) })
}

/// Returns the labels of a node: those that every kubelet sets, and those of its options.
pub(crate) fn labels(node: &NodeOptions) -> Value {
    let arch = "amd64";
    let kubelet_labels = [
        ("beta.kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("kubernetes.io/hostname", node.name.as_str()),
        ("kubernetes.io/os", "linux"),
    ];
    let option_labels = node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Value::Object(
        kubelet_labels
            .into_iter()
            .chain(option_labels)
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect(),
    )
}

/// Returns the patch that reports the status; `ready_since` is the last transition time of the conditions. The patch of an
/// existing node has only the conditions.
pub(crate) fn status_patch(node: &NodeOptions, ready_since: Timestamp, now: Timestamp) -> String {
    let status = if node.existing {
        json!({ "conditions": conditions(ready_since, now) })
    } else {
        status(node, ready_since, now)
    };
    json!({ "status": status }).to_string()
}

/// Returns the patch that updates only the heartbeat times of the conditions.
pub(crate) fn heartbeat_patch(now: Timestamp) -> String {
    let heartbeats =
        CONDITIONS.map(|(kind, ..)| json!({ "type": kind, "lastHeartbeatTime": seconds(now) }));
    json!({ "status": { "conditions": heartbeats } }).to_string()
}

/// Returns the conditions of a healthy node, which last changed at `ready_since`.
fn conditions(ready_since: Timestamp, now: Timestamp) -> Value {
    let conditions = CONDITIONS.map(|(kind, reason, message, status)| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": seconds(now), "lastTransitionTime": seconds(ready_since),
        })
    });
    conditions.into_iter().collect()
}

/// Returns the whole node status; `ready_since` is the last transition time of the conditions.
fn status(node: &NodeOptions, ready_since: Timestamp, now: Timestamp) -> Value {
    let resources: Map<String, Value> =
        node.capacity.iter().map(|(name, amount)| (name.clone(), amount.as_str().into())).collect();
    json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": conditions(ready_since, now),
        "addresses": [
            { "type": "InternalIP", "address": node.ip.to_string() },
            { "type": "Hostname", "address": node.name },
        ],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": concat!("sim://", env!("CARGO_PKG_VERSION")),
            "kernelVersion": "simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": node.name,
            "operatingSystem": "linux",
            "osImage": "Evenkeel simulated node",
            "systemUUID": node.name,
        },
    })
}

/// Returns the Lease that the Node with this uid owns. `version` is the resource version that it replaces; empty for a
/// new Lease.
pub(crate) fn lease(
    node: &str,
    uid: &str,
    version: &str,
    duration: Duration,
    now: Timestamp,
) -> Value {
    let mut metadata = json!({
        "name": node,
        "namespace": LEASE_NAMESPACE,
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid }],
    });
    if !version.is_empty() {
        metadata["resourceVersion"] = version.into();
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": duration.as_secs(),
            "renewTime": micro_time(now),
        },
    })
}

/// Returns the patch that renews the Lease of `node`.
pub(crate) fn lease_renewal_patch(node: &str, duration: Duration, now: Timestamp) -> String {
    json!({ "spec": {
        "holderIdentity": node,
        "leaseDurationSeconds": duration.as_secs(),
        "renewTime": micro_time(now),
    } })
    .to_string()
}

/// Namespace of all node Leases.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Formats a time as `metav1.MicroTime` does.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Returns a time this many seconds after an arbitrary one.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn node_registers_ready_with_labels_and_resources() {
        let node = NodeOptions::several(1, "node-", &["a"])[0]
            .clone()
            .with_capacity("example.com/gpu", "4");
        let object = object(&node, at(0));
        assert_eq!(object["metadata"]["labels"]["kubernetes.io/hostname"], "node-0");
        assert_eq!(object["metadata"]["labels"]["topology.kubernetes.io/zone"], "a");
        assert_eq!(object["status"]["allocatable"]["example.com/gpu"], "4");
        assert_eq!(object["status"]["allocatable"]["pods"], "110");
        assert_eq!(object["status"]["conditions"][3]["status"], "True");
        assert_eq!(object["status"]["nodeInfo"]["kubeletVersion"], "v1.37.1");
    }

    #[test]
    fn status_report_updates_heartbeats_but_not_transitions() {
        let node = NodeOptions::new("n", Ipv4Addr::new(172, 18, 0, 2));
        let patch: Value = serde_json::from_str(&status_patch(&node, at(0), at(300))).unwrap();
        let ready = &patch["status"]["conditions"][3];
        assert_eq!(ready["lastTransitionTime"], seconds(at(0)));
        assert_eq!(ready["lastHeartbeatTime"], seconds(at(300)));
    }

    #[test]
    fn status_of_an_existing_node_keeps_its_resources() {
        let mut node = NodeOptions::new("n", Ipv4Addr::new(172, 18, 0, 2));
        node.existing = true;
        let patch: Value = serde_json::from_str(&status_patch(&node, at(0), at(1))).unwrap();
        let fields: Vec<&String> = patch["status"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["conditions"]);
    }

    #[test]
    fn lease_has_its_renew_time_duration_and_owner() {
        let lease = lease("n", "uid-1", "7", Duration::from_secs(40), at(0));
        assert_eq!(lease["metadata"]["resourceVersion"], "7");
        assert_eq!(lease["spec"]["renewTime"], "2027-01-15T08:00:00.000000Z");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    }
}
