//! Tests of decisions in tables of cases, and a test that plans converge.

use super::plan::{self, InstanceState, SHUTDOWN_TAINT};
use crate::fixtures::{action_summaries, apply, node, node_view};
use evenkeel_runtime::plan::Action;
use serde_json::{Value, json};

fn with_ready(status: &str) -> Value {
    let mut node = node("n");
    node["status"]["conditions"][0]["status"] = json!(status);
    node["spec"]["taints"] =
        json!([{"key": "other", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]);
    node
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn only_not_ready_nodes_need_an_instance_check() {
    for (status, expected) in [("True", false), ("False", true), ("Unknown", true)] {
        assert_eq!(
            plan::needs_instance_check(&node_view(&with_ready(status))),
            expected,
            "{status}"
        );
    }
    let mut without_condition = node("n");
    without_condition["status"] = json!({});
    assert!(
        plan::needs_instance_check(&node_view(&without_condition)),
        "a node without a Ready condition"
    );
}

#[test]
fn shutdown_taint_follows_the_instance_state() {
    let mut node = with_ready("Unknown");
    assert_eq!(
        apply(&plan::plan_not_ready(&node_view(&node), InstanceState::Running), &mut node),
        0
    );
    assert_eq!(
        apply(&plan::plan_not_ready(&node_view(&node), InstanceState::ShutDown), &mut node),
        1
    );
    assert_eq!(taints(&node), ["other", SHUTDOWN_TAINT]);
    assert_eq!(
        node["spec"]["taints"][0]["timeAdded"], "2026-01-01T00:00:00Z",
        "other taints are unchanged"
    );
    for state in [InstanceState::ShutDown, InstanceState::Running] {
        assert!(plan::plan_not_ready(&node_view(&node), state).is_nothing(), "{state:?}");
    }
    node["status"]["conditions"][0]["status"] = json!("True");
    assert_eq!(apply(&plan::plan_ready(&node_view(&node)), &mut node), 1);
    assert_eq!(taints(&node), ["other"]);
    assert!(plan::plan_ready(&node_view(&node)).is_nothing());
}

#[test]
fn removing_the_last_taint_removes_the_field() {
    let mut only = node("n");
    only["spec"]["taints"] = json!([{"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}]);
    apply(&plan::plan_ready(&node_view(&only)), &mut only);
    assert_eq!(only["spec"], json!({}));
    // The value of a taint does not matter to its removal.
    only["spec"]["taints"] = json!([{"key": SHUTDOWN_TAINT, "value": "x", "effect": "NoSchedule"}]);
    apply(&plan::plan_ready(&node_view(&only)), &mut only);
    assert_eq!(only["spec"], json!({}));
    // A taint with the same key but another effect is not this controller's.
    only["spec"]["taints"] = json!([{"key": SHUTDOWN_TAINT, "effect": "NoExecute"}]);
    assert!(plan::plan_ready(&node_view(&only)).is_nothing());
}

#[test]
fn node_without_an_instance_is_deleted() {
    let plan = plan::plan_not_ready(&node_view(&with_ready("False")), InstanceState::Gone);
    assert_eq!(action_summaries(&plan), ["DeletingNode", "delete n"]);
    let Action::Delete(delete) = &plan.actions[1] else { panic!("{plan:?}") };
    assert_eq!(&*delete.target.uid, "n");
    assert_eq!(delete.failed.as_ref().unwrap().reason, "DeletingNodeFailed");
}

#[test]
fn heartbeats_do_not_enqueue_a_node() {
    let (old, mut new) = (with_ready("False"), with_ready("False"));
    new["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:00:00Z");
    assert!(!plan::needs_sync(&node_view(&old), &node_view(&new)));
    assert!(plan::needs_sync(&node_view(&old), &node_view(&with_ready("True"))));
}
