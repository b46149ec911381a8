//! Tests of the default plugins: for a pod and nodes, they check the selected node or the message.

use serde_json::{Value, json};

use crate::{
    fixtures::{info, node, table, with_requests},
    framework::{CycleState, Profile},
    nodes::NodeTable,
    pod::PodInfo,
    schedule::{Nominator, View, schedule},
};

/// Schedules the pod and returns the selected node, or the message.
fn place(nodes: &mut NodeTable, pod: &PodInfo) -> String {
    let profile = Profile::with_defaults("default-scheduler");
    let nominator = Nominator::default();
    let view = View { profile: &profile, nodes, nominator: &nominator, start_node_index: 0 };
    match schedule(view, pod, 7, &mut CycleState::default()).result {
        Ok(choice) => choice.suggested_host.to_string(),
        Err(fit_error) => fit_error.to_string(),
    }
}

#[track_caller]
fn check(nodes: &mut NodeTable, pod: &Value, expected: &str) {
    assert_eq!(place(nodes, &info("p", pod)), expected);
}

#[test]
fn the_message_counts_the_nodes_with_each_reason() {
    let tainted =
        json!({ "spec": { "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }] } });
    let mut nodes = table(&[node("a", &tainted), node("b", &tainted), node("c", &json!({}))]);
    check(
        &mut nodes,
        &with_requests("5", "1Gi"),
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).",
    );
    check(
        &mut nodes,
        &with_requests("5", "9Gi"),
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 2 node(s) had untolerated taint(s).",
    );
}

#[test]
fn a_toleration_matches_by_key_operator_value_and_effect() {
    let taint = |effect: &str| json!({ "spec": { "taints": [{ "key": "k", "value": "v", "effect": effect }] } });
    let rejected = "0/1 nodes are available: 1 node(s) had untolerated taint(s).";
    for (effect, toleration, expected) in [
        ("NoSchedule", json!({}), rejected),
        ("NoExecute", json!({}), rejected),
        ("PreferNoSchedule", json!({}), "a"),
        ("NoSchedule", json!({ "key": "k", "value": "v" }), "a"),
        ("NoSchedule", json!({ "key": "k", "value": "w" }), rejected),
        ("NoSchedule", json!({ "key": "k", "operator": "Exists" }), "a"),
        ("NoSchedule", json!({ "operator": "Exists" }), "a"),
        (
            "NoSchedule",
            json!({ "key": "k", "operator": "Exists", "effect": "NoExecute" }),
            rejected,
        ),
        ("NoSchedule", json!({ "key": "x", "operator": "Exists" }), rejected),
    ] {
        let tolerations = if toleration == json!({}) { json!([]) } else { json!([toleration]) };
        let mut nodes = table(&[node("a", &taint(effect))]);
        check(&mut nodes, &json!({ "spec": { "tolerations": tolerations } }), expected);
    }
}

#[test]
fn nodes_with_fewer_intolerable_soft_taints_are_preferred() {
    let soft = json!({ "spec": { "taints": [{ "key": "k", "value": "v", "effect": "PreferNoSchedule" }] } });
    check(&mut table(&[node("a", &soft), node("b", &json!({}))]), &json!({}), "b");
}

#[test]
fn cordoned_nodes_run_only_pods_that_tolerate_it() {
    let mut nodes = table(&[node("a", &json!({ "spec": { "unschedulable": true } }))]);
    check(&mut nodes, &json!({}), "0/1 nodes are available: 1 node(s) were unschedulable.");
    let tolerations = json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }]);
    check(&mut nodes, &json!({ "spec": { "tolerations": tolerations } }), "a");
}

#[test]
fn each_operator_of_node_affinity_selects_its_nodes() {
    let rejected = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    let mut nodes =
        table(&[node("a", &json!({ "metadata": { "labels": { "disk": "ssd", "cores": "8" } } }))]);
    check(&mut nodes, &json!({ "spec": { "nodeSelector": { "disk": "ssd" } } }), "a");
    check(&mut nodes, &json!({ "spec": { "nodeSelector": { "disk": "hdd" } } }), rejected);
    for (key, operator, values, expected) in [
        ("disk", "In", json!(["hdd", "ssd"]), true),
        ("disk", "In", json!(["hdd"]), false),
        ("disk", "NotIn", json!(["hdd"]), true),
        ("none", "NotIn", json!(["x"]), true),
        ("disk", "Exists", json!([]), true),
        ("none", "Exists", json!([]), false),
        ("none", "DoesNotExist", json!([]), true),
        ("cores", "Gt", json!(["7"]), true),
        ("cores", "Gt", json!(["8"]), false),
        ("cores", "Lt", json!(["9"]), true),
        ("disk", "Lt", json!(["9"]), false),
    ] {
        let term =
            json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        check(&mut nodes, &required(&json!([term])), if expected { "a" } else { rejected });
    }
    check(&mut nodes, &required(&json!([{}])), rejected);
}

fn required(terms: &Value) -> Value {
    json!({ "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
    } } } })
}

#[test]
fn an_affinity_with_node_names_evaluates_only_these_nodes() {
    let mut nodes = table(&[node("a", &json!({})), node("b", &json!({}))]);
    let names = |names: &Value| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": names }] });
    check(&mut nodes, &required(&json!([names(&json!(["b"]))])), "b");
    let conflicting_terms = json!([{ "matchFields": [
        { "key": "metadata.name", "operator": "In", "values": ["a"] },
        { "key": "metadata.name", "operator": "In", "values": ["b"] },
    ] }]);
    check(
        &mut nodes,
        &required(&conflicting_terms),
        "0/2 nodes are available: pod affinity terms conflict.",
    );
}

#[test]
fn preferred_terms_score_by_weight() {
    let mut nodes = table(&[
        node("a", &json!({ "metadata": { "labels": { "disk": "ssd" } } })),
        node("b", &json!({ "metadata": { "labels": { "zone": "near" } } })),
    ]);
    let prefer = |weight: i64, key: &str| json!({ "weight": weight, "preference": { "matchExpressions": [{ "key": key, "operator": "Exists" }] } });
    for (disk, zone, expected) in [(10, 1, "a"), (1, 10, "b")] {
        let terms = json!([prefer(disk, "disk"), prefer(zone, "zone")]);
        let affinity =
            json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": terms } });
        check(&mut nodes, &json!({ "spec": { "affinity": affinity } }), expected);
    }
}

#[test]
fn a_host_port_is_used_once_for_each_address_and_protocol() {
    let port = |port: i64, protocol: &str, ip: &str| {
        let ports =
            json!([{ "containerPort": 80, "hostPort": port, "protocol": protocol, "hostIP": ip }]);
        json!({ "spec": { "containers": [{ "name": "c", "image": "nginx", "ports": ports }] } })
    };
    let rejected =
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    let mut nodes = table(&[node("a", &json!({}))]);
    nodes.place(info("first", &port(80, "TCP", "127.0.0.1")), "a");
    for (pod, expected) in [
        (port(80, "TCP", "127.0.0.1"), rejected),
        (port(80, "TCP", "0.0.0.0"), rejected),
        (port(80, "TCP", ""), rejected),
        (port(80, "UDP", "127.0.0.1"), "a"),
        (port(80, "TCP", "127.0.0.2"), "a"),
        (port(81, "TCP", ""), "a"),
    ] {
        check(&mut nodes, &pod, expected);
    }
    nodes.remove("first");
    check(&mut nodes, &port(80, "TCP", ""), "a");
}

#[test]
fn pods_on_the_node_reduce_its_free_resources() {
    let mut nodes = table(&[node(
        "a",
        &json!({ "status": { "allocatable": { "pods": "2", "example.com/gpu": "1" } } }),
    )]);
    nodes.place(info("first", &with_requests("3", "1Gi")), "a");
    check(&mut nodes, &with_requests("1", "7Gi"), "a");
    check(
        &mut nodes,
        &with_requests("1001m", "1Gi"),
        "0/1 nodes are available: 1 Insufficient cpu.",
    );
    let gpus = |n: &str| {
        let resources = json!({ "requests": { "example.com/gpu": n } });
        json!({ "spec": { "containers": [{ "name": "c", "image": "i", "resources": resources }] } })
    };
    check(&mut nodes, &gpus("1"), "a");
    check(&mut nodes, &gpus("2"), "0/1 nodes are available: 1 Insufficient example.com/gpu.");
    nodes.place(info("second", &json!({})), "a");
    check(&mut nodes, &json!({}), "0/1 nodes are available: 1 Too many pods.");
}

#[test]
fn the_less_allocated_and_better_balanced_node_is_selected() {
    let mut nodes = table(&[node("a", &json!({})), node("b", &json!({}))]);
    nodes.place(info("first", &with_requests("2", "1Gi")), "a");
    check(&mut nodes, &with_requests("1", "2Gi"), "b");
    // b is now as full as a, but only of memory, so a pod that requests CPU balances it.
    nodes.place(info("second", &with_requests("1m", "4Gi")), "b");
    check(&mut nodes, &with_requests("2", "1Mi"), "b");
}

#[test]
fn nodes_that_have_the_image_are_preferred() {
    let image = json!([{ "names": ["nginx:latest"], "sizeBytes": 900_000_000 }]);
    let mut nodes =
        table(&[node("a", &json!({})), node("b", &json!({ "status": { "images": image } }))]);
    check(&mut nodes, &json!({}), "b");
}

#[test]
fn nodes_that_have_mounted_images_are_preferred() {
    let image = json!([{ "names": ["weights:7"], "sizeBytes": 3_000_000_000_u64 }]);
    let mut nodes =
        table(&[node("a", &json!({})), node("b", &json!({ "status": { "images": image } }))]);
    let volumes = json!([{ "name": "w", "image": { "reference": "weights:7" } }]);
    check(&mut nodes, &json!({ "spec": { "volumes": volumes } }), "b");
}
