//! Scheduler configurations side by side.

use crate::fixtures::{deployment, node, run, scenario};
use evenkeel_kube_scheduler::{Registry, profiles};
use evenkeel_scheduler::SchedulerOptions;
use evenkeel_whatif::{Report, Scenario, compare};
use serde_json::json;

/// Runs the scheduler with a scoring strategy on three nodes, and applies a Deployment.
fn with_strategy(strategy: &str) -> Report {
    let config = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    score:
      disabled: [{{name: '*'}}]
      enabled: [{{name: NodeResourcesFit, weight: 1}}]
  pluginConfig:
  - name: NodeResourcesFit
    args: {{scoringStrategy: {{type: {strategy}, resources: [{{name: cpu, weight: 1}}]}}}}
"
    );
    let profiles = profiles(&config, &Registry::in_tree()).expect("profiles");
    let scheduler = SchedulerOptions { profiles, ..SchedulerOptions::default() };
    let objects = ["a", "b", "c"].map(|name| node(name, "z1"));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let mut web = deployment("web", 3, "500m");
    web["metadata"].as_object_mut().expect("metadata").remove("uid");
    run(&objects, &Scenario { scheduler, apply: vec![namespace, web], ..scenario(10) })
}

#[test]
fn two_scheduler_configurations_differ() {
    let reports = [with_strategy("LeastAllocated"), with_strategy("MostAllocated")];
    let [spread, packed] = reports.each_ref().map(|report| report.placements.len());
    assert_eq!((spread, packed), (3, 1), "{:?}", reports[1].placements);
    let comparison = compare(reports.each_ref());
    let nodes = comparison.figures.iter().find(|figure| figure.name == "nodes with pods");
    assert_eq!(nodes.expect("they differ").values, [Some(3.0), Some(1.0)]);
    let text = comparison.text(["spread", "packed"]);
    assert!(text.contains("packed instead of spread\n"), "{text}");
    let same = compare([&reports[0], &reports[0]]);
    assert_eq!(same.text(["a", "b"]), "a and b do not differ.\n");
}
