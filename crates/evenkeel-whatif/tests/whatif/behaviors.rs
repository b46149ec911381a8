//! Annotations and Behaviors that steer the simulation.

use crate::fixtures::{behavior, deployment, node, nodes, placed, record, run, running, scenario};
use evenkeel_api::{Encoding, View as _, time::Timestamp, views::Node};
use evenkeel_nodes::{NodeFaults, SILENT, behavior_definition};
use evenkeel_whatif::{EventKind, Report, Scenario, report};
use serde_json::{Value, json};
use std::time::Duration;

fn shortage(report: &Report) -> Duration {
    report.shortages.first().map_or(Duration::ZERO, |shortage| shortage.duration)
}

#[test]
fn pods_start_as_behaviors_and_annotations_say() {
    let of_web = json!({"selector": {"matchLabels": {"app": "web"}}});
    let drain = |more: &[Value], annotations: Value, ignore_behaviors: bool| {
        // The image is not on the other node.
        let mut objects = running("web", &["a"]);
        objects[0]["spec"]["template"]["metadata"]["annotations"] = annotations;
        objects.extend([node("a", "z1"), node("b", "z2")]);
        objects.extend_from_slice(more);
        let scenario = Scenario { drain: nodes("a"), ignore_behaviors, ..scenario(60) };
        shortage(&run(&objects, &scenario))
    };
    let ready_late = behavior("late", &json!({"pods": of_web, "readyDelay": "5m"}));
    let pulls =
        behavior("pulls", &json!({"pods": of_web, "images": ["web:*"], "imagePullTime": "2m"}));
    let none = || json!({});
    let soon = Duration::from_secs(5);
    let minutes = Duration::from_mins;
    let with_definition = [behavior_definition(), ready_late.clone()];
    let own = json!({"sim.evenkeel.dev/ready-delay": "10m"});
    for (behaviors, annotations, least) in [
        (&[][..], none(), Duration::ZERO),
        (std::slice::from_ref(&ready_late), none(), minutes(5)),
        (&with_definition, none(), minutes(5)),
        (&[pulls], none(), minutes(2)),
        (&[], own.clone(), minutes(10)),
        (std::slice::from_ref(&ready_late), own, minutes(10)),
    ] {
        let found = drain(behaviors, annotations.clone(), false);
        assert!((least..least + soon).contains(&found), "{behaviors:?} {annotations}: {found:?}");
        let ignoring = drain(behaviors, annotations, true);
        assert!(ignoring < soon, "{ignoring:?}");
    }
}

#[test]
fn containers_fail_at_a_rate_by_the_seed() {
    let fails = behavior("fails", &json!({"failureRate": "40%", "runTime": "2m..5m"}));
    let objects = [node("a", "z1"), node("b", "z2"), deployment("web", 4, "100m"), fails];
    let failures = |seed: u64| {
        let recording = record(&objects, &Scenario { seed, ..scenario(60) });
        let mut events = recording.happened.iter();
        let count = events.by_ref().filter(|event| event.what == EventKind::NotReady).count();
        (count, serde_json::to_string(&report(&recording)).expect("JSON"))
    };
    let first = failures(3);
    assert!(first.0 > 4, "{} failures", first.0);
    assert_eq!(first, failures(3));
    assert_ne!(first.1, failures(4).1);
}

/// Returns a Behavior that silences nodes of the zone `z1` from time to time.
fn spot_nodes(seed: u64) -> Value {
    behavior(
        "spot",
        &json!({
            "seed": seed,
            "nodes": {"selector": {"matchLabels": {"topology.kubernetes.io/zone": "z1"}}},
            "nodeFaults": [{"kind": "silent", "meanTimeBetweenFailures": "1h", "meanTimeToRepair": "10m"}]
        }),
    )
}

/// Returns for each second from a time on whether the node is silent.
fn silence(fails: &Value, node: &Value, from: Timestamp, seconds: u64) -> Vec<bool> {
    let faults = NodeFaults::of_objects([fails]);
    let node = Node::decode(node.to_string().as_bytes(), Encoding::Json).expect("a node");
    let is_silent =
        |second| faults.fault(&node, SILENT, from + Duration::from_secs(second)).is_some();
    (0..seconds).map(is_silent).collect()
}

/// The faults are the same as in `evenkeel up`, which draws them from the same Behavior.
#[test]
fn nodes_fail_when_a_behavior_draws_it() {
    let created = "2026-05-01T00:00:00Z".parse().expect("a time");
    // The node is Ready when the recording begins, at 00:11:10.
    let begins_well = |fails: &Value| {
        silence(fails, &node("a", "z1"), created, 900).iter().skip(600).all(|silent| !silent)
    };
    let fails = (0..99).map(spot_nodes).find(begins_well).expect("a seed");
    let objects = [node("a", "z1"), node("b", "z2"), deployment("web", 2, "100m"), fails.clone()];
    let hours = 10;
    let recording = record(&objects, &scenario(hours * 60));
    let summary = report(&recording);
    let silent = silence(&fails, &objects[0], recording.start, hours * 3600);
    // The monitor misses heartbeats after 50 to 55 seconds.
    let spans: Vec<usize> = silent
        .chunk_by(|one, two| one == two)
        .filter(|span| span[0] && span.len() > 60)
        .map(<[bool]>::len)
        .collect();
    assert!(spans.len() > 2, "{spans:?}");
    let longest: usize = spans.iter().map(|span| span - 49).sum();
    let shortest: usize = spans.iter().map(|span| span - 57).sum();
    let found = usize::try_from(summary.nodes[0].not_ready.as_secs()).expect("a number");
    assert!((shortest..=longest).contains(&found), "{found} {shortest}..{longest} {spans:?}");
    assert_eq!(summary.nodes[1].not_ready, Duration::ZERO);
    assert!(!summary.evicted.is_empty(), "{}", summary.text());
    let json = |report: &Report| serde_json::to_string(report).expect("JSON");
    assert_eq!(json(&report(&record(&objects, &scenario(hours * 60)))), json(&summary));
    let other = run(&objects, &Scenario { seed: 1, ..scenario(hours * 60) });
    assert_ne!(other.nodes[0].not_ready, summary.nodes[0].not_ready);
    let ignoring = run(&objects, &Scenario { ignore_behaviors: true, ..scenario(hours * 60) });
    assert_eq!(ignoring.nodes[0].not_ready, Duration::ZERO);
}

#[test]
fn a_behavior_of_the_change_begins_with_it() {
    let fails = json!({
        "apiVersion": "sim.evenkeel.dev/v1alpha1", "kind": "Behavior", "metadata": {"name": "b"},
        "spec": {"nodeFaults": [
            {"kind": "not-ready", "meanTimeBetweenFailures": "20m", "meanTimeToRepair": "20m"}
        ]}
    });
    let objects = [node("a", "z1"), node("b", "z2"), deployment("web", 2, "100m")];
    let report = run(&objects, &Scenario { apply: vec![fails], ..scenario(180) });
    assert_eq!(report.failed().collect::<Vec<_>>(), []);
    for node in &report.nodes {
        let minutes = node.not_ready.as_secs() / 60;
        assert!((10..170).contains(&minutes), "{}: {minutes}", node.node);
    }
}

#[test]
fn autoscalers_follow_the_usage_of_pods() {
    let mut busy = deployment("busy", 1, "200m");
    busy["spec"]["template"]["metadata"]["annotations"] =
        json!({"sim.evenkeel.dev/cpu-load": "600m"});
    let autoscaler = |name: &str| {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-hpa-{name}")},
            "spec": {
                "minReplicas": 1, "maxReplicas": 9,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}
                }}]
            }
        })
    };
    let idle = deployment("idle", 3, "200m");
    let objects =
        [node("a", "z1"), node("b", "z2"), busy, idle, autoscaler("busy"), autoscaler("idle")];
    let pods = |report: &Report, workload: &str| {
        placed(report, workload).into_iter().map(|(_, pods)| pods).sum::<usize>()
    };
    let report = run(&objects, &scenario(30));
    // 600m of load by 60 % of 200m.
    assert_eq!(pods(&report, "Deployment shop/busy"), 5, "{}", report.text());
    assert_eq!(pods(&report, "Deployment shop/idle"), 3);
    let remark = "1 HorizontalPodAutoscaler does not act: the usage of the pods is unknown";
    assert_eq!(report.remarks, [remark]);
    let ignoring = run(&objects, &Scenario { ignore_behaviors: true, ..scenario(30) });
    assert_eq!(pods(&ignoring, "Deployment shop/busy"), 1);
    assert_eq!(ignoring.remarks, [""; 0]);
}
