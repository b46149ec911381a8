//! Tests of scores by strategy, ignored resources, and queueing hints.

use evenkeel_api::{Encoding, View as _, views::DeviceClass};
use serde_json::{Value, json};
use std::sync::Arc;

use super::{Args, NodeResourcesFit, ResourceWeight, Strategy};
use crate::{
    fixtures::{info, merge, node, table, with_requests},
    framework::{Change, Delta, ObjectChange, Plugin, QueueingHint},
    nodes::NodeTable,
    plugins::{
        random_cluster::{filter_results, scores},
        shape::Shape,
    },
};

fn weights(resources: &[(&str, i64)]) -> Vec<ResourceWeight> {
    let weighted =
        |(name, weight): &(&str, i64)| ResourceWeight { name: (*name).into(), weight: *weight };
    resources.iter().map(weighted).collect()
}

/// Returns two nodes with 4 CPUs and 8 GiB. Pods on the first request 2 CPUs and 2 GiB.
fn nodes() -> NodeTable {
    let gpus = json!({ "status": { "allocatable": { "example.com/gpu": "4" } } });
    let mut nodes = table(&[node("a", &gpus), node("b", &json!({}))]);
    nodes.place(info("first", &with_requests("2", "2Gi")), "a");
    nodes
}

/// Adds a request for `n` GPUs.
fn with_gpus(mut pod: Value, n: &str) -> Value {
    pod["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!(n);
    pod
}

#[test]
fn each_strategy_scores_nodes_by_utilization() {
    let args = |strategy, resources: &[(&str, i64)]| Args {
        strategy,
        resources: weights(resources),
        ..Args::default()
    };
    let equal_weights: &[(&str, i64)] = &[("cpu", 1), ("memory", 1)];
    let ratio = |points| Strategy::RequestedToCapacityRatio(Shape::new(points));
    for (name, args, pod, expected) in [
        // Mean of the free fractions of CPU and memory: (4-3)/4 and (8-4)/8 on a, (4-1)/4 and (8-2)/8 on b.
        (
            "least",
            args(Strategy::LeastAllocated, equal_weights),
            with_requests("1", "2Gi"),
            [37, 75],
        ),
        (
            "least, CPU has three times the weight",
            args(Strategy::LeastAllocated, &[("cpu", 3), ("memory", 1)]),
            with_requests("1", "2Gi"),
            [31, 75],
        ),
        ("most", args(Strategy::MostAllocated, equal_weights), with_requests("1", "2Gi"), [62, 25]),
        (
            "pod requests more than a node has",
            args(Strategy::MostAllocated, equal_weights),
            with_requests("9", "2Gi"),
            [75, 62],
        ),
        (
            "ratio up",
            args(ratio(&[(0, 0), (100, 10)]), equal_weights),
            with_requests("1", "2Gi"),
            [63, 25],
        ),
        (
            "ratio, zero at low utilization",
            args(ratio(&[(0, 0), (30, 0), (100, 10)]), equal_weights),
            with_requests("1", "2Gi"),
            [46, 0],
        ),
        // A container without requests counts as 100m CPU and 200 MiB of memory.
        ("default requests", args(Strategy::LeastAllocated, &[("cpu", 1)]), json!({}), [47, 97]),
        (
            "pod does not request the resource",
            args(Strategy::LeastAllocated, &[("example.com/gpu", 1)]),
            with_requests("1", "2Gi"),
            [0, 0],
        ),
        (
            "pod requests the resource",
            args(Strategy::LeastAllocated, &[("example.com/gpu", 1)]),
            with_gpus(with_requests("1", "2Gi"), "1"),
            [75, 0],
        ),
    ] {
        let scores = scores(&NodeResourcesFit::new(args), &nodes(), &info("p", &pod)).unwrap();
        assert_eq!(scores.into_values().collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn pod_level_requests_count_in_filter_but_not_in_score() {
    let mut pod = with_requests("1", "2Gi");
    merge(&mut pod, &json!({ "spec": { "resources": { "requests": { "cpu": "3" } } } }));
    let (plugin, pod) = (NodeResourcesFit::default(), info("p", &pod));
    let rejections: Vec<String> = filter_results(&plugin, &nodes(), &pod).into_values().collect();
    assert_eq!(rejections, ["Insufficient cpu", ""]);
    let scores = scores(&plugin, &nodes(), &pod).unwrap();
    assert_eq!(scores.into_values().collect::<Vec<_>>(), [37, 75]);
}

#[test]
fn the_filter_ignores_configured_resources() {
    let pod = info("p", &with_gpus(with_requests("1", "1Gi"), "9"));
    let check = |resources: &[&str], groups: &[&str], expected: &str| {
        let boxed = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
        let plugin = NodeResourcesFit::new(Args {
            ignored_resources: boxed(resources),
            ignored_resource_groups: boxed(groups),
            ..Args::default()
        });
        assert_eq!(
            filter_results(&plugin, &nodes(), &pod)["a"],
            expected,
            "{resources:?} {groups:?}"
        );
    };
    check(&[], &[], "Insufficient example.com/gpu");
    check(&["example.com/gpu"], &[], "");
    check(&[], &["example.com"], "");
    check(&["cpu"], &["example"], "Insufficient example.com/gpu");
}

fn class(name: &str, resource: &str) -> Arc<DeviceClass> {
    let class = json!({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}});
    Arc::new(DeviceClass::decode(class.to_string().as_bytes(), Encoding::Json).unwrap())
}

#[test]
fn devices_may_provide_resources_that_a_node_does_not_advertise() {
    let plugin = NodeResourcesFit::default();
    let devices = plugin.device_classes.as_ref().unwrap();
    let node_with_gpus = |n: &str| {
        node(
            n,
            &json!({ "status": { "allocatable": { "example.com/gpu": n, "example.com/nic": n } } }),
        )
    };
    let mut nodes = table(&[node_with_gpus("0"), node_with_gpus("2"), node("none", &json!({}))]);
    nodes.place(info("first", &with_gpus(with_requests("1", "1Gi"), "1")), "2");
    let pod = info("p", &with_gpus(with_requests("1", "1Gi"), "2"));
    let insufficient = "Insufficient example.com/gpu";
    let rejections = || filter_results(&plugin, &nodes, &pod).into_values().collect::<Vec<_>>();
    assert_eq!(rejections(), [insufficient, insufficient, insufficient]);
    devices.set(class("gpus", "example.com/nic"));
    assert_eq!(
        rejections(),
        [insufficient, insufficient, insufficient],
        "the class provides another resource"
    );
    devices.set(class("gpus", "example.com/gpu"));
    assert_eq!(
        rejections(),
        ["", insufficient, ""],
        "a node that advertises the resource must have enough of it"
    );
    let implicit = json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": {
        "deviceclass.resource.kubernetes.io/gpus": "1" } } }] } });
    assert!(filter_results(&plugin, &nodes, &info("p", &implicit)).values().all(String::is_empty));
    // Without the feature gate, devices provide no extended resource.
    let plugin_without_gate =
        NodeResourcesFit::new(Args { extended_resources: false, ..Args::default() });
    assert!(plugin_without_gate.device_classes.is_none());
    assert_eq!(filter_results(&plugin_without_gate, &nodes, &pod)["none"], insufficient);
    assert_eq!(
        (plugin_without_gate.events_to_register().len(), plugin.events_to_register().len()),
        (3, 4)
    );
}

#[test]
fn hints_queue_pods_whose_resource_a_device_class_provides() {
    let plugin = NodeResourcesFit::default();
    let waiting = info("p", &with_gpus(with_requests("1", "1Gi"), "1"));
    let implicit = info(
        "p",
        &json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": {
        "deviceclass.resource.kubernetes.io/a": "1" } } }] } }),
    );
    let updated = |old, new| Delta::Updated { old, new };
    let (without_resource, gpus) = (class("a", ""), class("a", "example.com/gpu"));
    for (n, (pod, edit, expected)) in [
        (&waiting, Delta::Added(Arc::clone(&gpus)), QueueingHint::Queue),
        (&waiting, Delta::Added(class("a", "example.com/nic")), QueueingHint::Skip),
        (&waiting, Delta::Added(Arc::clone(&without_resource)), QueueingHint::Skip),
        (&waiting, updated(Arc::clone(&without_resource), Arc::clone(&gpus)), QueueingHint::Queue),
        (&waiting, updated(Arc::clone(&gpus), Arc::clone(&gpus)), QueueingHint::Skip),
        (&waiting, updated(Arc::clone(&gpus), Arc::clone(&without_resource)), QueueingHint::Skip),
        (&implicit, Delta::Added(Arc::clone(&without_resource)), QueueingHint::Queue),
        (&implicit, updated(without_resource, Arc::clone(&gpus)), QueueingHint::Skip),
        (&implicit, Delta::Added(class("b", "")), QueueingHint::Skip),
    ]
    .into_iter()
    .enumerate()
    {
        let change = Change::Object(ObjectChange::DeviceClass(edit));
        assert_eq!(plugin.queueing_hint(pod, &change), expected, "{n}");
    }
    // Once devices provide the resource, the pod may fit on a node that does not advertise it.
    let node_added = || Change::Node(Delta::Added(node("a", &json!({}))));
    assert_eq!(plugin.queueing_hint(&waiting, &node_added()), QueueingHint::Skip);
    plugin.device_classes.as_ref().unwrap().set(gpus);
    assert_eq!(plugin.queueing_hint(&waiting, &node_added()), QueueingHint::Queue);
    let (old, new) = (node("a", &json!({})), node("a", &json!({})));
    let unchanged = Change::Node(Delta::Updated { old, new });
    assert_eq!(plugin.queueing_hint(&waiting, &unchanged), QueueingHint::Queue);
}

#[test]
fn hints_queue_pods_after_changes_that_may_free_resources() {
    let plugin = NodeResourcesFit::default();
    let waiting = info("p", &with_requests("2", "1Gi"));
    let node_with = |cpu: &str, pods: &str, memory: &str| {
        node(
            "a",
            &json!({ "status": { "allocatable": { "cpu": cpu, "pods": pods, "memory": memory } } }),
        )
    };
    let updated = |old, new| Delta::Updated { old, new };
    for (n, (edit, expected)) in [
        (Delta::Added(node_with("2", "1", "1Gi")), QueueingHint::Queue),
        (Delta::Added(node_with("1", "1", "1Gi")), QueueingHint::Skip),
        (Delta::Added(node_with("2", "0", "1Gi")), QueueingHint::Skip),
        (updated(node_with("1", "1", "1Gi"), node_with("2", "1", "1Gi")), QueueingHint::Queue),
        (updated(node_with("3", "1", "1Gi"), node_with("2", "1", "1Gi")), QueueingHint::Skip),
        (updated(node_with("2", "1", "1Gi"), node_with("2", "2", "1Gi")), QueueingHint::Queue),
        (updated(node_with("2", "1", "1Gi"), node_with("2", "1", "2Gi")), QueueingHint::Queue),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(plugin.queueing_hint(&waiting, &Change::Node(edit)), expected, "{n}");
    }
    let pod_updated =
        |old: &Value, new: &Value| Delta::Updated { old: info("o", old), new: info("o", new) };
    let only_cpu = info(
        "p",
        &json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] } }),
    );
    for (n, (edit, expected)) in [
        (Delta::Deleted(info("o", &with_requests("1m", "1"))), QueueingHint::Queue),
        (pod_updated(&with_requests("2", "1Gi"), &with_requests("1", "1Gi")), QueueingHint::Queue),
        (pod_updated(&with_requests("2", "2Gi"), &with_requests("2", "1Gi")), QueueingHint::Skip),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(plugin.queueing_hint(&only_cpu, &Change::AssignedPod(edit)), expected, "{n}");
    }
}
