//! Table tests of plans, and a property test that plans converge.

use super::plan::{Observed, plan};
use crate::{
    discovery::trigger::{TRIGGER_TIME_ANNOTATION, TriggerTimes},
    fixtures::{T0, object},
};
use evenkeel_api::views::{EndpointSubset, Endpoints, Pod, Service};
use evenkeel_runtime::plan::{Action, Key};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the Service `web`; the fields of `spec` override its own.
fn service(spec: &Value) -> Service {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "s", "labels": {"team": "a"}, "creationTimestamp": T0.to_string()},
        "spec": {
            "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        service["spec"][key] = value.clone();
    }
    object(&service)
}

/// Returns a pod of the Service, with the container port `http` 8080.
fn pod_json(name: &str, ip: &str, ready: bool) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}]},
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": T0.to_string()}],
        },
    })
}

/// Returns the observed state without a new trigger time.
fn observed(service: Service, pods: &[Value], endpoints: Option<Endpoints>) -> Observed {
    let pods: Vec<Arc<Pod>> = pods.iter().map(|pod| Arc::new(object(pod))).collect();
    let times = Arc::new(TriggerTimes::of(&service, &pods));
    Observed {
        key: Key::new("ns", "web"),
        service: Some(Arc::new(service)),
        pods,
        endpoints: endpoints.map(Arc::new),
        previous_trigger_times: Some(Arc::clone(&times)),
        trigger_times: Some(times),
    }
}

/// Returns the Endpoints after the plan was executed.
fn endpoints_after(observed: &Observed) -> Option<Endpoints> {
    let mut endpoints = observed.endpoints.as_deref().cloned();
    for action in plan(observed).actions {
        let body = match action {
            Action::Create(create) => create.body,
            Action::Update(update) => update.body,
            Action::Delete(_) => {
                endpoints = None;
                continue;
            }
            other => panic!("{other:?}"),
        };
        let mut made: Endpoints = object(&serde_json::from_slice(&body).unwrap());
        made.meta.uid = "e".into();
        made.meta.resource_version = "2".into();
        endpoints = Some(made);
    }
    endpoints
}

/// Formats each subset as `ready addresses|unready addresses:ports`.
fn formatted(subsets: &[EndpointSubset]) -> String {
    let ips = |addresses: &[evenkeel_api::views::EndpointAddress]| {
        addresses.iter().map(|address| &*address.ip).collect::<Vec<_>>().join(",")
    };
    let ports = |subset: &EndpointSubset| {
        let mut ports: Vec<String> =
            subset.ports.iter().map(|port| port.port.to_string()).collect();
        ports.sort_unstable();
        ports.join(",")
    };
    let format = |subset: &EndpointSubset| {
        let (ready, unready) = (ips(&subset.addresses), ips(&subset.not_ready_addresses));
        format!("{ready}|{unready}:{}", ports(subset))
    };
    let mut formatted: Vec<String> = subsets.iter().map(format).collect();
    formatted.sort_unstable();
    formatted.join(" ")
}

#[test]
fn pods_are_grouped_into_subsets_by_readiness_and_ports() {
    let (a, b) = (pod_json("a", "10.0.0.2", true), pod_json("b", "10.0.0.1", true));
    let replace = |pod: &Value, path: &str, value: Value| {
        let mut pod = pod.clone();
        *pod.pointer_mut(path).unwrap() = value;
        pod
    };
    let terminating = {
        let mut pod = a.clone();
        pod["metadata"]["deletionTimestamp"] = T0.to_string().into();
        pod
    };
    let dual = replace(&a, "/status/podIPs", json!([{"ip": "10.0.0.2"}, {"ip": "fd00::2"}]));
    let unready = pod_json("a", "10.0.0.2", false);
    let headless = json!({"clusterIP": "None"});
    // Name of the case, changes of the Service's spec, its pods, and its formatted subsets.
    let table: [(&str, Value, Vec<Value>, &str); 14] = [
        ("two ready", json!({}), vec![a.clone(), b.clone()], "10.0.0.1,10.0.0.2|:8080"),
        ("one unready", json!({}), vec![unready.clone(), b.clone()], "10.0.0.1|10.0.0.2:8080"),
        (
            "publishNotReadyAddresses",
            json!({"publishNotReadyAddresses": true}),
            vec![unready],
            "10.0.0.2|:8080",
        ),
        ("terminating", json!({}), vec![terminating.clone(), b.clone()], "10.0.0.1|:8080"),
        (
            "terminating, publishNotReadyAddresses",
            json!({"publishNotReadyAddresses": true}),
            vec![terminating],
            "10.0.0.2|:8080",
        ),
        ("finished", json!({}), vec![replace(&a, "/status/phase", "Succeeded".into())], ""),
        (
            "another port",
            json!({}),
            vec![replace(&a, "/spec/containers/0/ports/0/containerPort", 9090.into()), b.clone()],
            "10.0.0.1|:8080 10.0.0.2|:9090",
        ),
        (
            "no such port",
            json!({}),
            vec![replace(&a, "/spec/containers/0/ports/0/name", "x".into()), b.clone()],
            "10.0.0.1|:8080",
        ),
        ("no ports", json!({"ports": []}), vec![a.clone()], ""),
        (
            "headless without ports",
            json!({"ports": [], "clusterIP": "None"}),
            vec![a.clone(), b.clone()],
            "10.0.0.1,10.0.0.2|:",
        ),
        ("headless", headless, vec![a.clone()], "10.0.0.2|:8080"),
        (
            "secondary pod IP family",
            json!({"ipFamilies": ["IPv6", "IPv4"]}),
            vec![dual.clone(), b.clone()],
            "fd00::2|:8080",
        ),
        (
            "family of the pod",
            json!({"ipFamilies": [], "clusterIP": ""}),
            vec![dual],
            "10.0.0.2|:8080",
        ),
        ("no pods", json!({}), vec![], ""),
    ];
    for (what, spec, pods, want) in table {
        let made = endpoints_after(&observed(service(&spec), &pods, None)).unwrap();
        assert_eq!(formatted(&made.subsets), want, "{what}");
    }
}

#[test]
fn endpoints_get_the_labels_of_the_service_and_the_trigger_time() {
    let headless = service(&json!({"clusterIP": "None"}));
    let mut observed = observed(headless, &[pod_json("a", "10.0.0.2", true)], None);
    observed.previous_trigger_times = None;
    let made = endpoints_after(&observed).unwrap();
    let labels: Vec<_> = made.meta.labels.iter().collect();
    assert_eq!(
        labels,
        [
            ("endpoints.kubernetes.io/managed-by", "endpoint-controller"),
            ("service.kubernetes.io/headless", ""),
            ("team", "a")
        ]
    );
    assert_eq!(made.meta.annotations.get(TRIGGER_TIME_ANNOTATION), Some("2026-09-21T14:13:20Z"));
    // A change without a trigger time removes the previous trigger time.
    observed.previous_trigger_times = observed.trigger_times.clone();
    observed.endpoints = Some(Arc::new(made));
    observed.pods.clear();
    assert!(endpoints_after(&observed).unwrap().meta.annotations.is_empty());
}

#[test]
fn only_services_with_a_selector_have_endpoints() {
    for spec in [json!({"selector": {}}), json!({"type": "ExternalName"})] {
        assert!(
            plan(&observed(service(&spec), &[pod_json("a", "10.0.0.2", true)], None)).is_nothing(),
            "{spec}"
        );
    }
    let mut gone = observed(
        service(&json!({})),
        &[],
        Some(object(&json!({"metadata": {"name": "web", "namespace": "ns", "uid": "e"}}))),
    );
    gone.service = None;
    assert_eq!(endpoints_after(&gone), None);
    gone.endpoints = None;
    assert!(plan(&gone).is_nothing());
}

#[test]
fn order_of_addresses_is_no_change() {
    let pods = [pod_json("a", "10.0.0.2", true), pod_json("b", "10.0.0.1", true)];
    let mut made = endpoints_after(&observed(service(&json!({})), &pods, None)).unwrap();
    made.subsets[0].addresses.reverse();
    assert!(plan(&observed(service(&json!({})), &pods, Some(made.clone()))).is_nothing());
    made.meta.labels = made.meta.labels.with("team", "b");
    assert!(
        !plan(&observed(service(&json!({})), &pods, Some(made.clone()))).is_nothing(),
        "labels"
    );
    made.meta.labels = [("team", "a")].into_iter().collect();
    assert!(
        !plan(&observed(service(&json!({})), &pods, Some(made))).is_nothing(),
        "the managed-by label"
    );
}

#[test]
fn endpoints_are_truncated_to_1000_addresses() {
    let pods: Vec<Value> = (0..1100)
        .map(|n| pod_json(&format!("p{n}"), &format!("10.0.{}.{}", n / 256, n % 256), n % 2 == 0))
        .collect();
    let made = endpoints_after(&observed(service(&json!({})), &pods, None)).unwrap();
    assert_eq!(
        made.meta.annotations.get("endpoints.kubernetes.io/over-capacity"),
        Some("truncated")
    );
    assert_eq!(
        (made.subsets[0].addresses.len(), made.subsets[0].not_ready_addresses.len()),
        (550, 450)
    );
    assert!(
        plan(&observed(service(&json!({})), &pods, Some(made.clone()))).is_nothing(),
        "truncated once"
    );
    let fewer = endpoints_after(&observed(service(&json!({})), &pods[..1000], Some(made))).unwrap();
    assert!(fewer.meta.annotations.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn one_plan_converges(first in pods(), second in pods()) {
        let spec = json!({"ports": [
            {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"},
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        ]});
        let made = endpoints_after(&observed(service(&spec), &first, None));
        let made = endpoints_after(&observed(service(&spec), &second, made));
        prop_assert!(plan(&observed(service(&spec), &second, made.clone())).is_nothing());
        let rebuilt = endpoints_after(&observed(service(&spec), &second, None));
        prop_assert_eq!(made.unwrap().subsets, rebuilt.unwrap().subsets);
    }
}

/// Strategy for up to 12 pods, ready or not, with one of two container ports.
fn pods() -> impl Strategy<Value = Vec<Value>> {
    let numbers = (0u8..12, any::<bool>(), prop_oneof![Just(8080), Just(9090)]);
    proptest::collection::vec(numbers, 0..12).prop_map(|generated| {
        let mut pods: std::collections::BTreeMap<u8, Value> = std::collections::BTreeMap::new();
        for (n, ready, port) in generated {
            let mut pod = pod_json(&format!("p{n}"), &format!("10.0.0.{n}"), ready);
            pod["spec"]["containers"][0]["ports"][0]["containerPort"] = port.into();
            pods.insert(n, pod);
        }
        pods.into_values().collect()
    })
}
