//! `NoSchedule` taints by node conditions (KEP-382), and the deprecated `beta.kubernetes.io` labels.

use crate::wire;
use evenkeel_api::{
    time::{Timestamp, seconds},
    views::{Node, Taint},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Patch, PatchType, Plan},
};
use serde_json::{Map, Value, json};

/// Effect of the taints that this module manages.
const NO_SCHEDULE: &str = "NoSchedule";

/// Taint of a cordoned node. Upstream: `TaintNodeUnschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Taint of nodes whose condition has a status.
struct ConditionTaint {
    condition: &'static str,
    status: &'static str,
    key: &'static str,
}

/// Returns the taint of nodes whose condition has this status.
const fn taint(condition: &'static str, status: &'static str, key: &'static str) -> ConditionTaint {
    ConditionTaint { condition, status, key }
}

/// Taints by condition and status. Upstream: `nodeConditionToTaintKeyStatusMap`.
const CONDITION_TAINTS: [ConditionTaint; 6] = [
    taint("Ready", "False", "node.kubernetes.io/not-ready"),
    taint("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    taint("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    taint("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    taint("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    taint("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// A label, and its deprecated name.
struct RenamedLabel {
    current: &'static str,
    deprecated: &'static str,
}

/// Labels with a deprecated name. Upstream: `labelReconcileInfo`.
const RENAMED_LABELS: [RenamedLabel; 2] = [
    RenamedLabel { current: "kubernetes.io/os", deprecated: "beta.kubernetes.io/os" },
    RenamedLabel { current: "kubernetes.io/arch", deprecated: "beta.kubernetes.io/arch" },
];

/// Returns the patches of a node's taints and labels.
pub(crate) fn plan(node: &Node, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    for body in taints_patch(node, now).into_iter().chain(labels_patch(node)) {
        plan.push(Patch::new(wire::target(node), PatchType::Strategic, body));
    }
    plan
}

/// Returns the patch that copies the values of current labels to their deprecated names. Upstream:
/// `reconcileNodeLabels`.
fn labels_patch(node: &Node) -> Option<String> {
    let labels = &node.meta.labels;
    let mut outdated = Map::new();
    for RenamedLabel { current, deprecated } in RENAMED_LABELS {
        let value = labels.get(current);
        if value.is_some() && labels.get(deprecated) != value {
            outdated.insert(deprecated.to_owned(), json!(value));
        }
    }
    (!outdated.is_empty()).then(|| json!({"metadata": {"labels": outdated}}).to_string())
}

/// Returns the patch that adds missing taints and removes outdated ones. Other taints stay. Upstream:
/// `doNoScheduleTaintingPass`.
fn taints_patch(node: &Node, now: Timestamp) -> Option<String> {
    let expected_keys = expected_taint_keys(node);
    let is_ours = |taint: &Taint| &*taint.effect == NO_SCHEDULE && is_managed(&taint.key);
    let is_present =
        |key: &str| node.spec.taints.iter().any(|taint| is_ours(taint) && &*taint.key == key);
    let is_outdated = |taint: &Taint| is_ours(taint) && !expected_keys.contains(&&*taint.key);
    if !node.spec.taints.iter().any(is_outdated) && expected_keys.iter().all(|key| is_present(key))
    {
        return None;
    }
    let remaining =
        node.spec.taints.iter().filter(|taint| !is_outdated(taint)).map(Taint::to_json_value);
    let added = expected_keys
        .iter()
        .filter(|key| !is_present(key))
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

/// Returns the keys of the taints that the node must have, by its conditions and `spec.unschedulable`.
fn expected_taint_keys(node: &Node) -> Vec<&'static str> {
    let status = |name: &str| {
        node.status
            .conditions
            .iter()
            .find(|condition| &*condition.type_ == name)
            .map(|condition| &*condition.status)
    };
    let by_condition =
        CONDITION_TAINTS.iter().filter(|taint| status(taint.condition) == Some(taint.status));
    let cordoned = node.spec.unschedulable.then_some(UNSCHEDULABLE);
    by_condition.map(|taint| taint.key).chain(cordoned).collect()
}

/// Returns whether this module manages the taint.
fn is_managed(key: &str) -> bool {
    key == UNSCHEDULABLE || CONDITION_TAINTS.iter().any(|taint| taint.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::views::{NodeCondition, NodeSpec, NodeStatus};
    use evenkeel_runtime::plan::Action;

    const T0: Timestamp = Timestamp::UNIX_EPOCH;

    /// Returns a node with these conditions (type, status) and taints (key, effect).
    fn node(conditions: &[(&str, &str)], taints: &[(&str, &str)]) -> Node {
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
            spec: NodeSpec { taints: taints.iter().map(taint).collect(), ..NodeSpec::default() },
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
        for ConditionTaint { condition, status, key } in CONDITION_TAINTS {
            assert_eq!(
                taints_after_plan(&node(&[(condition, status)], &[])),
                Some(vec![format!("{key}:NoSchedule")])
            );
        }
        let mut cordoned = node(&[("Ready", "True")], &[]);
        cordoned.spec.unschedulable = true;
        assert_eq!(taints_after_plan(&cordoned), Some(vec![format!("{UNSCHEDULABLE}:NoSchedule")]));
    }

    #[test]
    fn healthy_node_loses_only_condition_taints() {
        let not_ready = CONDITION_TAINTS[0].key;
        // Taints of a condition, of a condition with another effect, and of an administrator.
        let taints =
            [(not_ready, NO_SCHEDULE), (not_ready, "NoExecute"), ("dedicated", NO_SCHEDULE)];
        let remaining = taints_after_plan(&node(&[("Ready", "True")], &taints));
        assert_eq!(
            remaining,
            Some(vec![format!("{not_ready}:NoExecute"), "dedicated:NoSchedule".to_owned()])
        );
    }

    #[test]
    fn beta_labels_follow_stable_ones() {
        let labels_after_plan = |labels: &[(&str, &str)]| {
            let mut node = node(&[], &[]);
            node.meta.labels = labels.iter().copied().collect();
            let plan = plan(&node, T0);
            plan.actions.first().map(|action| match action {
                Action::Patch(patch) => {
                    let body: Value = serde_json::from_slice(&patch.body).expect("JSON");
                    body["metadata"]["labels"].clone()
                }
                other => panic!("{other:?}"),
            })
        };
        let RenamedLabel { current: os, deprecated: beta } = RENAMED_LABELS[0];
        assert_eq!(labels_after_plan(&[(os, "linux")]), Some(json!({beta: "linux"})));
        assert_eq!(
            labels_after_plan(&[(os, "linux"), (beta, "windows")]),
            Some(json!({beta: "linux"}))
        );
        assert_eq!(labels_after_plan(&[(os, "linux"), (beta, "linux")]), None);
        assert_eq!(labels_after_plan(&[(beta, "windows")]), None);
    }

    #[test]
    fn unchanged_taints_are_not_written() {
        assert_eq!(
            taints_after_plan(&node(
                &[("Ready", "False")],
                &[(CONDITION_TAINTS[0].key, NO_SCHEDULE)]
            )),
            None
        );
        assert_eq!(taints_after_plan(&node(&[], &[("other", NO_SCHEDULE)])), None);
    }
}
