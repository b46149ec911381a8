//! Drains, added nodes and removed nodes.

use crate::fixtures::{
    budget, cluster, cronjob, deployment, node, nodes, placed, record, run, running, scenario,
};
use evenkeel_whatif::{EventKind, Scenario, SimulateError, report, simulate};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn pods_of_a_copy_stay_where_they_are() {
    let mut objects = running("web", &["a", "a", "a"]);
    objects.extend([node("a", "z1"), node("b", "z2")]);
    let recording = record(&objects, &scenario(60));
    assert_eq!(recording.start.to_string(), "2026-05-01T00:11:00Z");
    let names: Vec<&str> = recording.pods.keys().map(String::as_str).collect();
    assert_eq!(names, ["shop/web-0", "shop/web-1", "shop/web-2"]);
    assert!(recording.pods.values().all(|pod| pod.ready && pod.node == "a"));
    let report = report(&recording);
    assert_eq!(report.settled_after, Some(Duration::ZERO), "{:?}", report.timeline);
    assert_eq!(placed(&report, "ReplicaSet shop/web"), [("a".to_owned(), 3)]);
    assert!(report.text().starts_with("Nothing happens within 1h0m0s."), "{}", report.text());
}

#[test]
fn a_drain_moves_pods_to_other_nodes() {
    let mut objects = running("web", &["a", "b"]);
    objects.extend([node("a", "z1"), node("b", "z2")]);
    let report = run(&objects, &Scenario { drain: nodes("a"), ..scenario(60) });
    assert!(report.parts[0].completed.is_some(), "{}", report.text());
    let evicted: Vec<_> =
        report.evicted.iter().map(|found| (&*found.pod, &*found.reason)).collect();
    assert_eq!(evicted, [("shop/web-0", "EvictionByEvictionAPI")]);
    assert_eq!(placed(&report, "ReplicaSet shop/web"), [("b".to_owned(), 2)]);
    assert_eq!(report.pending, []);
    let shortage = &report.shortages[0];
    assert_eq!((shortage.before, shortage.lowest, shortage.end), (2, 1, 2));
    let creates =
        report.writes.iter().find(|write| write.verb == "create" && write.resource == "pods");
    let creates = creates.expect("a pod was created");
    assert_eq!(creates.count, 1);
    assert!(creates.component.ends_with("replicaset-controller"), "{}", creates.component);
}

#[test]
fn a_budget_blocks_a_drain() {
    let mut objects = running("web", &["a", "b"]);
    objects.extend([node("a", "z1"), node("b", "z2"), budget("web", 2)]);
    let report = run(&objects, &Scenario { drain: nodes("a"), ..scenario(120) });
    let part = &report.parts[0];
    assert_eq!((&*part.description, part.completed, &*part.error), ("drain a", None, ""));
    assert_eq!(report.evicted, []);
    let budget = &report.budgets[0];
    assert_eq!((&*budget.budget, &*budget.refused), ("shop/web", &["shop/web-0".to_owned()][..]));
    assert_eq!((budget.exhausted, budget.before), (Duration::from_hours(2), true));
    assert_eq!(placed(&report, "ReplicaSet shop/web"), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    let text = report.text();
    let blocked = "drain a: not done at the end: the budget shop/web refuses to evict shop/web-0\n";
    assert!(text.contains(blocked), "{text}");
}

#[test]
fn parts_after_a_blocked_drain_are_listed() {
    let mut objects = running("web", &["a", "b"]);
    objects.extend([node("a", "z1"), node("b", "z2"), node("c", "z3"), budget("web", 2)]);
    let drain = nodes("zone in (z1,z2)");
    let report = run(&objects, &Scenario { drain, remove: nodes("c"), ..scenario(60) });
    let parts: Vec<_> =
        report.parts.iter().map(|part| (&*part.description, part.started)).collect();
    assert_eq!(parts, [("drain a", true), ("drain b", false), ("remove c", false)]);
    let text = report.text();
    assert!(text.contains("  drain b: not begun at the end\n  remove c: not begun"), "{text}");
}

#[test]
fn a_change_that_ends_at_once_is_not_nothing() {
    let mut objects = vec![node("a", "z1"), node("b", "z2")];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "gone"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refused = run(&objects, &Scenario { apply: vec![pod], ..scenario(60) });
    assert!(
        refused.text().starts_with("Settled at once (1h0m0s simulated).\n"),
        "{}",
        refused.text()
    );
    let failed: Vec<_> = refused.failed().collect();
    assert_eq!(failed, [("apply Pod p", "namespaces \"gone\" not found")]);
    // A pod without a workload is not replaced after its eviction.
    objects.extend(running("web", &["a"]).into_iter().skip(1).map(|mut pod| {
        pod["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
        pod
    }));
    let drained = run(&objects, &Scenario { drain: nodes("a"), ..scenario(60) });
    assert_eq!(drained.evicted.len(), 1);
    assert!(!drained.text().contains("Nothing happens"), "{}", drained.text());
    assert!(drained.text().contains("\nEvicted: 1 pod\n"), "{}", drained.text());
}

#[test]
fn a_pod_is_applied_right_after_its_namespace_and_a_resource_after_its_definition() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "fresh"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]
        }
    });
    let gadget =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}});
    let apply = vec![definition, namespace, gadget, pod];
    let report = run(&[node("a", "z1")], &Scenario { apply, ..scenario(10) });
    assert_eq!(report.failed().collect::<Vec<_>>(), [], "{}", report.text());
    assert_eq!(placed(&report, "fresh/p"), [("a".to_owned(), 1)]);
}

#[test]
fn pods_that_fit_nowhere_are_pending_for_the_schedulers_reason() {
    let objects = [node("a", "z1"), node("b", "z2"), deployment("web", 2, "1500m")];
    let report = run(&objects, &Scenario { drain: nodes("zone=z1"), ..scenario(60) });
    assert!(report.parts[0].completed.is_some());
    assert_eq!(report.pending.len(), 1, "{}", report.text());
    let pending = &report.pending[0];
    assert_eq!(pending.workload, "Deployment shop/web");
    assert!(
        pending.message.starts_with(
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
        ),
        "{}",
        pending.message
    );
    assert_eq!(report.shortages[0].end, 1);
}

#[test]
fn added_nodes_take_pending_pods() {
    let objects = [node("a", "z1"), deployment("web", 2, "1500m")];
    let alone = run(&objects, &scenario(10));
    assert!(alone.pending[0].before, "{}", alone.text());
    let report = run(&objects, &Scenario { add: Some((1, "a".to_owned())), ..scenario(10) });
    assert_eq!(report.pending, [], "{}", report.text());
    let at = placed(&report, "Deployment shop/web");
    assert_eq!(at, [("a".to_owned(), 1), ("a-added-0".to_owned(), 1)]);
    let unknown = Scenario { add: Some((1, "x".to_owned())), ..scenario(10) };
    let error = simulate(&cluster(&objects), &unknown).expect_err("no such node").to_string();
    assert_eq!(error, "add like: there is no node \"x\"; the nodes are a");
}

#[test]
fn removed_nodes_lose_their_pods() {
    let mut objects = running("web", &["a", "b"]);
    objects.extend([node("a", "z1"), node("b", "z2")]);
    let report = run(&objects, &Scenario { remove: nodes("a"), ..scenario(30) });
    assert!(report.nodes[0].removed);
    let evicted: Vec<_> =
        report.evicted.iter().map(|found| (&*found.pod, &*found.reason)).collect();
    assert_eq!(evicted, [("shop/web-0", "DeletionByPodGC")], "{}", report.text());
    assert_eq!(placed(&report, "ReplicaSet shop/web"), [("b".to_owned(), 2)]);
}

#[test]
fn manifests_are_applied_and_unknown_kinds_are_reported() {
    let objects = [node("a", "z1")];
    let mut more = deployment("web", 1, "100m");
    more["metadata"].as_object_mut().expect("metadata").remove("uid");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let custom =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "x"}});
    let apply = vec![namespace, more, custom];
    let report = run(&objects, &Scenario { apply, ..scenario(10) });
    assert_eq!(placed(&report, "Deployment shop/web"), [("a".to_owned(), 1)]);
    let errors: Vec<&str> = report.parts.iter().map(|part| &*part.error).collect();
    assert_eq!(errors, ["", "", "the cluster has no Gadget of example.com/v1"]);
}

#[test]
fn equal_runs_have_equal_reports() {
    let mut objects = running("web", &["a", "a", "b"]);
    objects.extend([node("a", "z1"), node("b", "z2"), node("c", "z3"), budget("web", 2)]);
    objects.extend([deployment("api", 3, "300m"), deployment("big", 2, "1100m")]);
    objects.push(cronjob("report", "*/7 * * * *"));
    let scenario = |seed| Scenario { drain: nodes("zone in (z1,z2)"), seed, ..scenario(60) };
    let json = |seed| {
        let report = run(&objects, &scenario(seed));
        assert!(report.evicted.len() > 1, "{}", report.text());
        assert!(!report.pending.is_empty(), "{}", report.text());
        serde_json::to_string_pretty(&report).expect("JSON")
    };
    let first = json(7);
    for number in 2..=4 {
        let next = json(7);
        let differs = first.lines().zip(next.lines()).find(|(one, two)| one != two);
        assert!(first == next, "run {number} differs: {differs:?}");
    }
    assert!(first != json(8), "the seed decides nothing");
}

/// A change of one workload does not change the names of another workload's new pods.
#[test]
fn names_of_pods_do_not_depend_on_other_workloads() {
    let created = |more: &[Value]| {
        let mut objects = running("web", &["a", "a"]);
        objects.extend([node("a", "z1"), node("b", "z2")]);
        objects.extend_from_slice(more);
        let recording = record(&objects, &Scenario { drain: nodes("a"), seed: 7, ..scenario(10) });
        let names = recording.happened.iter().filter(|event| {
            matches!(event.what, EventKind::Created { .. }) && event.object.starts_with("shop/web-")
        });
        names.map(|event| event.object.clone()).collect::<Vec<_>>()
    };
    let alone = created(&[]);
    assert_eq!(alone.len(), 2, "{alone:?}");
    assert_eq!(created(&[deployment("api", 3, "100m")]), alone);
}

#[test]
fn a_cluster_without_nodes_is_refused() {
    let error = simulate(&cluster(&[deployment("web", 1, "1")]), &scenario(10));
    assert!(matches!(error, Err(SimulateError::NoNodes)));
}
