//! Outages of zones.

use crate::fixtures::{deployment, node, nodes, placed, record, run, scenario};
use evenkeel_whatif::{Outage, Scenario};
use serde_json::{Value, json};
use std::time::Duration;

fn outage(minutes: Option<u64>) -> Option<Outage> {
    let nodes = nodes("zone=z1").remove(0);
    Some(Outage { nodes, duration: minutes.map(Duration::from_mins) })
}

#[test]
fn an_outage_evicts_pods_after_their_toleration() {
    let objects = [node("a", "z1"), node("b", "z2"), deployment("web", 2, "500m")];
    let report = run(&objects, &Scenario { outage: outage(None), ..scenario(120) });
    assert_eq!(report.evicted.len(), 1, "{}", report.text());
    let eviction = &report.evicted[0];
    assert_eq!((&*eviction.node, &*eviction.reason), ("a", "DeletionByTaintManager"));
    // Unreachable after 50 seconds, then tolerated for five minutes.
    let expected = Duration::from_secs(340)..Duration::from_secs(370);
    assert!(expected.contains(&eviction.after), "{:?}", eviction.after);
    let not_ready = report.nodes[0].not_ready;
    assert!(not_ready > Duration::from_mins(118), "{not_ready:?}");
    assert_eq!(report.nodes[1].not_ready, Duration::ZERO);
    assert!(placed(&report, "Deployment shop/web").contains(&("b".to_owned(), 2)));
}

#[test]
fn a_short_outage_evicts_nothing() {
    let objects = [node("a", "z1"), node("b", "z2"), deployment("web", 2, "500m")];
    let report = run(&objects, &Scenario { outage: outage(Some(4)), ..scenario(60) });
    assert_eq!(report.evicted, [], "{}", report.text());
    assert!(report.parts[0].completed.is_some());
    let not_ready = report.nodes[0].not_ready;
    assert!((Duration::from_mins(3)..Duration::from_mins(4)).contains(&not_ready), "{not_ready:?}");
    let shortage = &report.shortages[0];
    assert_eq!((shortage.before, shortage.lowest, shortage.end), (2, 1, 2));
}

#[test]
fn a_node_that_is_silent_but_ready_in_the_copy_becomes_not_ready() {
    let mut silent = node("a", "z1");
    silent["metadata"]["annotations"] = json!({"sim.evenkeel.dev/silent": "true"});
    let objects = [silent, node("b", "z2"), deployment("web", 1, "500m")];
    // The cluster settles only once the node is lost.
    let recording = record(&objects, &scenario(10));
    assert!(!recording.nodes["a"].ready, "{:?}", recording.nodes);
    assert!(recording.nodes["b"].ready);
    let objects = [node("a", "z1"), node("b", "z2"), deployment("web", 1, "500m")];
    let change = |value: &str| Scenario { apply: vec![silenced(value)], ..scenario(60) };
    let report = run(&objects, &change("true"));
    assert!(report.nodes[0].not_ready > Duration::from_mins(57), "{}", report.text());
    assert_eq!(report.nodes[1].not_ready, Duration::ZERO);
    // The change is made at 00:11:10, and the fault ends by itself.
    let report = run(&objects, &change("until 2026-05-01T00:20:00Z"));
    let not_ready = report.nodes[0].not_ready;
    assert!(
        (Duration::from_secs(470)..Duration::from_mins(8)).contains(&not_ready),
        "{not_ready:?}"
    );
}

/// Returns the change that partitions a node.
fn silenced(value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "a", "annotations": {"sim.evenkeel.dev/silent": value}},
    })
}

#[test]
fn a_node_that_comes_without_a_kubelet_is_not_ready() {
    let objects = [node("a", "z1"), node("b", "z2")];
    let mut ghost = node("ghost", "z1");
    ghost["metadata"].as_object_mut().expect("metadata").remove("uid");
    let apply = vec![silenced("false"), ghost];
    let report = run(&objects, &Scenario { apply, ..scenario(10) });
    let not_ready: Vec<_> =
        report.nodes.iter().map(|node| (&*node.node, node.not_ready.is_zero())).collect();
    assert_eq!(not_ready, [("a", true), ("b", true), ("ghost", false)], "{}", report.text());
}
