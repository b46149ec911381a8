//! `NoSchedule` taints by node conditions (KEP-382), and the deprecated `beta.kubernetes.io` labels.

use crate::wire;
use evenkeel_api::{
    time::{Timestamp, seconds},
    views::{Node, Taint},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Patch, PatchForm, Plan},
};
use serde_json::{Map, Value, json};

const NO_SCHEDULE: &str = "NoSchedule";

/// Taint of a cordoned node. Upstream: `TaintNodeUnschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Node condition, its status, and the key of the resulting taint. Upstream: `nodeConditionToTaintKeyStatusMap`.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Labels and their deprecated names. Upstream: `labelReconcileInfo`.
const OLD_NAMES: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// Returns the patches of a node's taints and labels.
pub(crate) fn plan(node: &Node, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    for body in taints(node, now).into_iter().chain(labels(node)) {
        plan.push(Patch::new(wire::target(node), PatchForm::Strategic, body));
    }
    plan
}

/// Returns the patch that copies the values of current labels to their deprecated names. Upstream:
/// `reconcileNodeLabels`.
fn labels(node: &Node) -> Option<String> {
    let labels = &node.meta.labels;
    let missing: Map<String, Value> = OLD_NAMES
        .iter()
        .filter_map(|(name, old)| Some((*old, labels.get(name)?)))
        .filter(|(old, value)| labels.get(old) != Some(value))
        .map(|(old, value)| (old.to_owned(), json!(value)))
        .collect();
    (!missing.is_empty()).then(|| json!({"metadata": {"labels": missing}}).to_string())
}

/// Returns the patch that adds missing taints and removes outdated ones; other taints stay. Upstream:
/// `doNoScheduleTaintingPass`.
fn taints(node: &Node, now: Timestamp) -> Option<String> {
    let expected_taints = expected_taints(node);
    let is_ours = |taint: &Taint| &*taint.effect == NO_SCHEDULE && managed(&taint.key);
    let present =
        |key: &str| node.spec.taints.iter().any(|taint| is_ours(taint) && &*taint.key == key);
    let superfluous = node
        .spec
        .taints
        .iter()
        .any(|taint| is_ours(taint) && !expected_taints.contains(&&*taint.key));
    if !superfluous && expected_taints.iter().all(|key| present(key)) {
        return None;
    }
    let remaining = node
        .spec
        .taints
        .iter()
        .filter(|taint| !is_ours(taint) || expected_taints.contains(&&*taint.key))
        .map(Taint::to_json_value);
    let added = expected_taints
        .iter()
        .filter(|key| !present(key))
        .map(|key| json!({"key": key, "effect": NO_SCHEDULE, "timeAdded": seconds(now)}));
    let taints: Vec<Value> = remaining.chain(added).collect();
    Some(taints_body(node, taints))
}

/// Returns a patch that sets the taints, with the resource version as precondition.
pub(crate) fn taints_body(node: &Node, taints: Vec<Value>) -> String {
    let taints = if taints.is_empty() { Value::Null } else { Value::Array(taints) };
    json!({
        "metadata": {"resourceVersion": &*node.meta.resource_version},
        "spec": {"taints": taints},
    })
    .to_string()
}

/// Describes the node for `evenkeel explain`.
pub(crate) fn describe(node: &Node) -> Description {
    let mut description = Description::new();
    for condition in &node.status.conditions {
        description.fact(&condition.type_, &condition.status);
    }
    if node.spec.unschedulable {
        description.fact("cordoned", "yes");
    }
    for taint in &node.spec.taints {
        description.fact("taint", format!("{}:{}", taint.key, taint.effect));
    }
    description
}

fn expected_taints(node: &Node) -> Vec<&'static str> {
    let status =
        |name: &str| node.status.conditions.iter().find(|c| &*c.type_ == name).map(|c| &*c.status);
    let by_condition =
        TAINTS.iter().filter(|(condition, value, _)| status(condition) == Some(value));
    let cordoned = node.spec.unschedulable.then_some(UNSCHEDULABLE);
    by_condition.map(|(.., taint)| *taint).chain(cordoned).collect()
}

fn managed(key: &str) -> bool {
    key == UNSCHEDULABLE || TAINTS.iter().any(|(.., taint)| *taint == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::views::{NodeCondition, NodeSpec, NodeStatus};
    use evenkeel_runtime::plan::Action;

    const T0: Timestamp = Timestamp::UNIX_EPOCH;

    /// Returns a node with these conditions (type, status) and taints (key, effect).
    fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)], unschedulable: bool) -> Node {
        let condition = |(type_, status): &(&str, &str)| NodeCondition {
            type_: (*type_).into(),
            status: (*status).into(),
            ..NodeCondition::default()
        };
        let taint = |(key, effect): &(&str, &str)| Taint {
            key: (*key).into(),
            effect: (*effect).into(),
            ..Taint::default()
        };
        Node {
            spec: NodeSpec {
                unschedulable,
                taints: taints.iter().map(taint).collect(),
                ..NodeSpec::default()
            },
            status: NodeStatus {
                conditions: conditions.iter().map(condition).collect(),
                ..NodeStatus::default()
            },
            ..Node::default()
        }
    }

    /// Returns the taints after the plan, as `key:effect`; `None` if the plan does nothing.
    fn taints_after_plan(node: &Node) -> Option<Vec<String>> {
        let plan = plan(node, T0);
        let Some(Action::Patch(patch)) = plan.actions.first() else { return None };
        let body: Value = serde_json::from_slice(&patch.body).expect("JSON");
        let taints = body["spec"]["taints"].as_array().cloned().unwrap_or_default();
        Some(
            taints
                .iter()
                .map(|taint| {
                    format!(
                        "{}:{}",
                        taint["key"].as_str().expect("key"),
                        taint["effect"].as_str().expect("effect")
                    )
                })
                .collect(),
        )
    }

    #[test]
    fn conditions_become_no_schedule_taints() {
        for (condition, status, taint) in TAINTS {
            assert_eq!(
                taints_after_plan(&node(&[(condition, status)], &[], false)),
                Some(vec![format!("{taint}:NoSchedule")])
            );
        }
        assert_eq!(
            taints_after_plan(&node(&[("Ready", "True")], &[], true)),
            Some(vec![format!("{UNSCHEDULABLE}:NoSchedule")])
        );
    }

    #[test]
    fn healthy_node_loses_only_condition_taints() {
        // Taints of a condition, of a condition with another effect, and of an administrator.
        let taints =
            [(TAINTS[0].2, NO_SCHEDULE), (TAINTS[0].2, "NoExecute"), ("dedicated", NO_SCHEDULE)];
        let remaining = taints_after_plan(&node(&[("Ready", "True")], &taints, false));
        assert_eq!(
            remaining,
            Some(vec![format!("{}:NoExecute", TAINTS[0].2), "dedicated:NoSchedule".to_owned()])
        );
    }

    #[test]
    fn beta_labels_follow_stable_ones() {
        let labelled = |all: &[(&str, &str)]| {
            let mut node = node(&[], &[], false);
            node.meta.labels = all.iter().copied().collect();
            let plan = plan(&node, T0);
            plan.actions.first().map(|action| match action {
                Action::Patch(patch) => {
                    let body: Value = serde_json::from_slice(&patch.body).expect("JSON");
                    body["metadata"]["labels"].clone()
                }
                other => panic!("{other:?}"),
            })
        };
        let (os, beta) = OLD_NAMES[0];
        assert_eq!(labelled(&[(os, "linux")]), Some(json!({beta: "linux"})));
        assert_eq!(labelled(&[(os, "linux"), (beta, "windows")]), Some(json!({beta: "linux"})));
        assert_eq!(labelled(&[(os, "linux"), (beta, "linux")]), None);
        assert_eq!(labelled(&[(beta, "windows")]), None);
    }

    #[test]
    fn unchanged_taints_are_not_written() {
        assert_eq!(
            taints_after_plan(&node(&[("Ready", "False")], &[(TAINTS[0].2, NO_SCHEDULE)], false)),
            None
        );
        assert_eq!(taints_after_plan(&node(&[], &[("other", NO_SCHEDULE)], false)), None);
    }
}
