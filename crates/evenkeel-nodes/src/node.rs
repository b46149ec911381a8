//! Objects that a kubelet writes about its node: Node, node status and Lease.

use evenkeel_api::time::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;

use crate::{NodeOptions, faults::Health, pod::status::seconds};

/// Kubelet version in the node status.
const KUBELET_VERSION: &str = "v1.37.1";

/// A condition that a kubelet reports.
struct Condition {
    kind: &'static str,
    /// Status, reason and message on a healthy node.
    healthy: [&'static str; 3],
    /// Status, reason and message with the fault.
    faulty: [&'static str; 3],
    /// Whether the node has the fault.
    has_fault: fn(&Health) -> bool,
}

/// Conditions of a node, in upstream's order and with upstream's words.
const CONDITIONS: [Condition; 4] = [
    Condition {
        kind: "MemoryPressure",
        healthy: ["False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
        faulty: [
            "True",
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ],
        has_fault: |health| health.memory_pressure,
    },
    Condition {
        kind: "DiskPressure",
        healthy: ["False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
        faulty: ["True", "KubeletHasDiskPressure", "kubelet has disk pressure"],
        has_fault: |health| health.disk_pressure,
    },
    Condition {
        kind: "PIDPressure",
        healthy: ["False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"],
        faulty: ["True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
        has_fault: |health| health.pid_pressure,
    },
    Condition {
        kind: "Ready",
        healthy: ["True", "KubeletReady", "kubelet is posting ready status"],
        faulty: ["False", "KubeletNotReady", "container runtime is down"],
        has_fault: |health| health.not_ready,
    },
];

/// Returns the last transition time of the condition of this type with this status.
pub(crate) type Since<'a> = &'a dyn Fn(&str, &str) -> Timestamp;

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
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status(node, Health::default(), &|_, _| now, now) })
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

/// Returns the patch that reports the status. The patch of an existing node has only the conditions.
pub(crate) fn status_patch(
    node: &NodeOptions,
    health: Health,
    since: Since<'_>,
    now: Timestamp,
) -> String {
    let status = if node.existing {
        json!({ "conditions": conditions(health, since, now) })
    } else {
        status(node, health, since, now)
    };
    json!({ "status": status }).to_string()
}

/// Returns the patch that updates only the heartbeat times of the conditions.
pub(crate) fn heartbeat_patch(now: Timestamp) -> String {
    let heartbeats = CONDITIONS
        .map(|condition| json!({ "type": condition.kind, "lastHeartbeatTime": seconds(now) }));
    json!({ "status": { "conditions": heartbeats } }).to_string()
}

/// Returns the conditions of a node with this health.
fn conditions(health: Health, since: Since<'_>, now: Timestamp) -> Value {
    let conditions = CONDITIONS.map(|condition| {
        let has_fault = (condition.has_fault)(&health);
        let [status, reason, message] =
            if has_fault { condition.faulty } else { condition.healthy };
        json!({
            "type": condition.kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": seconds(now),
            "lastTransitionTime": seconds(since(condition.kind, status)),
        })
    });
    conditions.into_iter().collect()
}

/// Returns the whole node status.
fn status(node: &NodeOptions, health: Health, since: Since<'_>, now: Timestamp) -> Value {
    let resources: Map<String, Value> =
        node.capacity.iter().map(|(name, amount)| (name.clone(), amount.as_str().into())).collect();
    json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": conditions(health, since, now),
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

    /// Returns the status patch of a healthy node whose conditions last changed at `since`.
    fn healthy_patch(node: &NodeOptions, since: Timestamp, now: Timestamp) -> String {
        status_patch(node, Health::default(), &|_, _| since, now)
    }

    #[test]
    fn faults_change_their_conditions() {
        let node = NodeOptions::new("n", Ipv4Addr::new(172, 18, 0, 2));
        let health = Health { not_ready: true, disk_pressure: true, ..Health::default() };
        let since = |kind: &str, _: &str| if kind == "Ready" { at(7) } else { at(0) };
        let patch: Value =
            serde_json::from_str(&status_patch(&node, health, &since, at(9))).unwrap();
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        let statuses: Vec<_> = conditions.iter().map(|condition| &condition["status"]).collect();
        assert_eq!(statuses, ["False", "True", "False", "False"]);
        assert_eq!(conditions[3]["reason"], "KubeletNotReady");
        assert_eq!(conditions[3]["lastTransitionTime"], seconds(at(7)));
        assert_eq!(conditions[1]["lastTransitionTime"], seconds(at(0)));
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
        let patch: Value = serde_json::from_str(&healthy_patch(&node, at(0), at(300))).unwrap();
        let ready = &patch["status"]["conditions"][3];
        assert_eq!(ready["lastTransitionTime"], seconds(at(0)));
        assert_eq!(ready["lastHeartbeatTime"], seconds(at(300)));
    }

    #[test]
    fn status_of_an_existing_node_keeps_its_resources() {
        let mut node = NodeOptions::new("n", Ipv4Addr::new(172, 18, 0, 2));
        node.existing = true;
        let patch: Value = serde_json::from_str(&healthy_patch(&node, at(0), at(1))).unwrap();
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
