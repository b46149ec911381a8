//! Maps the difference between two versions of a node or pod to the action types that plugins register for.

use evenkeel_api::views::{Node, NodeCondition, Pod};
use smallvec::SmallVec;

use crate::{framework::ActionType, pod::PodInfo, resources::Resources};

/// Action types of one update; usually a single one.
pub(super) type Actions = SmallVec<[ActionType; 2]>;

/// Returns the action types of a node update. Empty if no scheduling property changed.
///
/// Upstream: `NodeSchedulingPropertiesChange`.
pub(super) fn node_scheduling_properties_change(old: &Node, new: &Node) -> Actions {
    let became_schedulable = old.spec.unschedulable && !new.spec.unschedulable;
    actions_of([
        (became_schedulable || old.spec.taints != new.spec.taints, ActionType::UpdateNodeTaint),
        (old.status.allocatable != new.status.allocatable, ActionType::UpdateNodeAllocatable),
        (old.meta.labels != new.meta.labels, ActionType::UpdateNodeLabel),
        (
            condition_statuses_changed(&old.status.conditions, &new.status.conditions),
            ActionType::UpdateNodeCondition,
        ),
        (old.meta.annotations != new.meta.annotations, ActionType::UpdateNodeAnnotation),
        (
            old.status.declared_features != new.status.declared_features,
            ActionType::UpdateNodeDeclaredFeature,
        ),
    ])
}

/// Returns the action types of a pod update; [`ActionType::Update`] if no scheduling property changed.
///
/// Upstream: `podSchedulingPropertiesChange`.
pub(super) fn pod_scheduling_properties_change(old: &PodInfo, new: &PodInfo) -> Actions {
    let (before, after): (&Pod, &Pod) = (&old.pod, &new.pod);
    let old_requests = &old.requirements.requests;
    let new_requests = &new.requirements.requests;
    let is_gated = |pod: &Pod| !pod.spec.scheduling_gates.is_empty();
    let mut actions = actions_of([
        (before.meta.labels != after.meta.labels, ActionType::UpdatePodLabel),
        (any_exceeds(old_requests, new_requests), ActionType::UpdatePodScaleDown),
        (any_exceeds(new_requests, old_requests), ActionType::UpdatePodScaleUp),
        (is_gated(before) && !is_gated(after), ActionType::UpdatePodSchedulingGatesEliminated),
        (
            before.spec.tolerations.len() != after.spec.tolerations.len(),
            ActionType::UpdatePodToleration,
        ),
        (
            before.status.resource_claim_statuses != after.status.resource_claim_statuses
                || before.status.extended_resource_claim_status
                    != after.status.extended_resource_claim_status,
            ActionType::UpdatePodGeneratedResourceClaim,
        ),
    ]);
    if actions.is_empty() {
        actions.push(ActionType::Update);
    }
    actions
}

/// Returns whether the status of a condition changed, or conditions were added or removed. Their order does not matter.
fn condition_statuses_changed(old: &[NodeCondition], new: &[NodeCondition]) -> bool {
    let is_same = |(old, new): (&NodeCondition, &NodeCondition)| {
        old.type_ == new.type_ && old.status == new.status
    };
    // Most updates are heartbeats, which keep the order.
    if old.len() == new.len() && old.iter().zip(new).all(is_same) {
        return false;
    }
    let sorted = |conditions: &[NodeCondition]| {
        let mut statuses: Vec<_> = conditions
            .iter()
            .map(|condition| (condition.type_.clone(), condition.status.clone()))
            .collect();
        statuses.sort_unstable();
        statuses
    };
    sorted(old) != sorted(new)
}

/// Returns the actions whose part of the object changed.
fn actions_of<const N: usize>(changes: [(bool, ActionType); N]) -> Actions {
    changes.into_iter().filter(|(changed, _)| *changed).map(|(_, action)| action).collect()
}

/// Returns whether `a` has more of at least one resource than `b`.
fn any_exceeds(a: &Resources, b: &Resources) -> bool {
    a.cpu > b.cpu
        || a.memory > b.memory
        || a.ephemeral_storage > b.ephemeral_storage
        || a.scalars.iter().any(|(name, amount)| *amount > b.scalar(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{info, node, with_requests};
    use serde_json::json;

    #[test]
    fn node_updates_map_to_action_types() {
        let ready = |status: &str, heartbeat: &str| {
            json!({ "status": { "conditions": [
            { "type": "Ready", "status": status, "lastHeartbeatTime": heartbeat },
        ] } })
        };
        let (first, second) = ("2027-01-15T08:00:05Z", "2027-01-15T08:00:15Z");
        for (old, new, expected) in [
            (json!({}), json!({}), &[][..]),
            (ready("True", first), ready("True", second), &[]),
            (ready("True", first), ready("False", second), &[ActionType::UpdateNodeCondition]),
            (
                json!({ "spec": { "unschedulable": true } }),
                json!({}),
                &[ActionType::UpdateNodeTaint],
            ),
            (json!({}), json!({ "spec": { "unschedulable": true } }), &[]),
            (
                json!({ "metadata": { "labels": { "a": "b" } } }),
                json!({ "metadata": { "annotations": { "a": "b" } } }),
                &[ActionType::UpdateNodeLabel, ActionType::UpdateNodeAnnotation],
            ),
            (
                json!({}),
                json!({ "status": { "allocatable": { "cpu": "8" } } }),
                &[ActionType::UpdateNodeAllocatable],
            ),
            (
                json!({}),
                json!({ "status": { "declaredFeatures": ["x"] } }),
                &[ActionType::UpdateNodeDeclaredFeature],
            ),
        ] {
            assert_eq!(
                node_scheduling_properties_change(&node("n", &old), &node("n", &new))[..],
                *expected,
                "{old} {new}"
            );
        }
    }

    #[test]
    fn pod_updates_map_to_action_types() {
        let gated = json!({ "spec": { "schedulingGates": [{ "name": "g" }] } });
        for (old, new, expected) in [
            (json!({}), json!({}), &[ActionType::Update][..]),
            (
                with_requests("2", "1Gi"),
                with_requests("1", "1Gi"),
                &[ActionType::UpdatePodScaleDown],
            ),
            (
                with_requests("2", "1Gi"),
                with_requests("1", "2Gi"),
                &[ActionType::UpdatePodScaleDown, ActionType::UpdatePodScaleUp],
            ),
            (gated.clone(), json!({}), &[ActionType::UpdatePodSchedulingGatesEliminated]),
            (json!({}), gated, &[ActionType::Update]),
            (
                json!({}),
                json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } }),
                &[ActionType::UpdatePodToleration],
            ),
            (
                json!({}),
                json!({ "metadata": { "labels": { "a": "b" } } }),
                &[ActionType::UpdatePodLabel],
            ),
            (
                json!({}),
                json!({ "status": { "resourceClaimStatuses": [{ "name": "r", "resourceClaimName": "x" }] } }),
                &[ActionType::UpdatePodGeneratedResourceClaim],
            ),
        ] {
            assert_eq!(
                pod_scheduling_properties_change(&info("p", &old), &info("p", &new))[..],
                *expected,
                "{old} {new}"
            );
        }
    }
}
