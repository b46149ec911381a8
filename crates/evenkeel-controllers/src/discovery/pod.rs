//! Rules about pods that Endpoints and EndpointSlices have in common.

use crate::pods;
use evenkeel_api::{
    int_or_string::IntOrString,
    views::{Container, ObjectReference, Pod, Service, ServicePort},
};

/// Effect of a pod's update on Services. Upstream: `podEndpointsChanged`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The update affects no Service.
    Nothing,
    /// The endpoint changed, and the same Services select the pod.
    Endpoint,
    /// The labels changed, so other Services may select the pod.
    Labels,
    /// Both the endpoint and the labels changed.
    Both,
}

/// Returns the effect of a pod's update. It compares deletion, phase, readiness, addresses and labels. A pod's name
/// never changes, and its node does not change once the pod has an address. Upstream: `podEndpointsChanged`.
pub(super) fn pod_change(old: &Pod, new: &Pod) -> Change {
    if old.meta.resource_version == new.meta.resource_version {
        return Change::Nothing;
    }
    let state = |pod: &Pod| (pod.meta.deleting(), pods::is_terminal(pod), pods::is_ready(pod));
    let endpoint_changed = state(old) != state(new) || old.status.pod_ips != new.status.pod_ips;
    let labels_changed = old.meta.labels != new.meta.labels;
    match (endpoint_changed, labels_changed) {
        (false, false) => Change::Nothing,
        (true, false) => Change::Endpoint,
        (false, true) => Change::Labels,
        (true, true) => Change::Both,
    }
}

/// Returns whether the pod is an endpoint, ready or not: it has an address and has not ended. A terminating pod is one
/// too. Slices mark it, and Endpoints omit it. Upstream: `ShouldPodBeInEndpoints`.
pub(super) fn belongs_in_endpoints(pod: &Pod) -> bool {
    let status = &pod.status;
    !pods::is_terminal(pod) && (!status.pod_ip.is_empty() || !status.pod_ips.is_empty())
}

/// Returns the pod's host name in the Service's domain. Empty without one. Upstream: `ShouldSetHostname`.
pub(super) fn hostname<'a>(pod: &'a Pod, service: &Service) -> &'a str {
    if pod.spec.subdomain == service.meta.name { &pod.spec.hostname } else { "" }
}

/// Returns the reference of an endpoint to its pod.
pub(super) fn reference(pod: &Pod) -> Box<ObjectReference> {
    Box::new(ObjectReference {
        kind: "Pod".into(),
        namespace: pod.meta.namespace.clone(),
        name: pod.meta.name.clone(),
        uid: pod.meta.uid.clone(),
        ..ObjectReference::default()
    })
}

/// Returns whether two references are equal, apart from the resource version.
pub(super) fn same_reference(a: Option<&ObjectReference>, b: Option<&ObjectReference>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            a.kind == b.kind
                && a.namespace == b.namespace
                && a.name == b.name
                && a.uid == b.uid
                && a.api_version == b.api_version
                && a.field_path == b.field_path
        }
        _ => false,
    }
}

/// Returns the number of a Service's target port, or `None` if the pod lacks it. Searches a name in the ports of the
/// pod's containers and sidecars. Upstream: `FindPort`.
pub(super) fn find_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        IntOrString::Int(number) => return Some(*number),
        IntOrString::String(name) => name,
    };
    let sidecars = pod.spec.init_containers.iter().filter(|container| is_sidecar(container));
    let mut ports =
        pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    let found = ports.find(|candidate| {
        candidate.name == *name
            && protocol_or_tcp(&candidate.protocol) == protocol_or_tcp(&port.protocol)
    });
    found.map(|found| found.container_port)
}

/// Returns whether an init container is a sidecar, which runs as long as the pod.
fn is_sidecar(container: &Container) -> bool {
    &*container.restart_policy == "Always"
}

/// Returns the protocol; TCP if empty.
pub(super) fn protocol_or_tcp(protocol: &str) -> &str {
    if protocol.is_empty() { "TCP" } else { protocol }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, label, object, pod};
    use serde_json::json;

    #[test]
    fn ports_are_found_by_number_and_by_name() {
        let pod: Pod = object(&json!({"spec": {
            "containers": [
                {"name": "a", "ports": [{"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 5353, "protocol": "UDP"}]},
                {"name": "b", "ports": [{"name": "http", "containerPort": 9090}]},
            ],
            "initContainers": [
                {"name": "once", "ports": [{"name": "early", "containerPort": 1}]},
                {"name": "side", "restartPolicy": "Always", "ports": [{"name": "metrics", "containerPort": 7070}]},
            ],
        }}));
        // Port of the Service, and the container port that it targets.
        let table = [
            (json!({"port": 80, "targetPort": 8081}), Some(8081)),
            (json!({"port": 80, "targetPort": "http", "protocol": "TCP"}), Some(8080)),
            (json!({"port": 80, "targetPort": "dns", "protocol": "UDP"}), Some(5353)),
            (json!({"port": 80, "targetPort": "dns", "protocol": "TCP"}), None),
            (json!({"port": 80, "targetPort": "metrics", "protocol": "TCP"}), Some(7070)),
            (json!({"port": 80, "targetPort": "early", "protocol": "TCP"}), None),
            (json!({"port": 80, "targetPort": "none", "protocol": "TCP"}), None),
        ];
        for (json, want) in table {
            let service: Service = object(&json!({"spec": {"ports": [json]}}));
            assert_eq!(
                find_port(&pod, &service.spec.ports[0]),
                want,
                "{:?}",
                service.spec.ports[0]
            );
        }
    }

    #[test]
    fn only_relevant_updates_are_changes() {
        let old = pod("a", Some(T0));
        /// Name of the update, the update, and the expected change.
        type Row = (&'static str, fn(&mut Pod), Change);
        let table: [Row; 7] = [
            ("a resync", |_| {}, Change::Nothing),
            ("an annotation", |pod| pod.meta.annotations = label("a", "b"), Change::Nothing),
            ("readiness", |pod| pod.status.conditions = Box::default(), Change::Endpoint),
            ("deletion", |pod| pod.meta.deletion = Some(at(1)), Change::Endpoint),
            ("a terminal phase", |pod| pod.status.phase = "Failed".into(), Change::Endpoint),
            ("labels", |pod| pod.meta.labels = label("app", "db"), Change::Labels),
            (
                "labels and readiness",
                |pod| {
                    pod.meta.labels = label("app", "db");
                    pod.status.conditions = Box::default();
                },
                Change::Both,
            ),
        ];
        for (what, edit, want) in table {
            let mut new = old.clone();
            edit(&mut new);
            if what != "a resync" {
                new.meta.resource_version = "2".into();
            }
            assert_eq!(pod_change(&old, &new), want, "{what}");
        }
    }
}
