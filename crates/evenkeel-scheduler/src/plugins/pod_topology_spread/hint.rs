//! Queueing hint for changes that may satisfy a hard constraint.

use evenkeel_api::views::{Node, Pod};

use super::constraint::SpreadConstraint;
use crate::framework::{Change, QueueingHint};

/// Returns `Queue` if the change may satisfy one of the pod's hard constraints.
pub(super) fn hint(pod: &Pod, constraints: &[SpreadConstraint], change: &Change) -> QueueingHint {
    match change {
        Change::Node(edit) => node_changed(
            constraints,
            edit.before().map(|old| &**old),
            edit.after().map(|new| &**new),
        ),
        Change::AssignedPod(edit) => {
            let old = edit.before().map(|old| &*old.pod);
            let new = edit.after().map(|new| &*new.pod);
            pod_changed(pod, constraints, old, new)
        }
        Change::TargetPodUpdate { old, new } => {
            let old = &old.pod;
            let new = &new.pod;
            let tolerations_matter = old.spec.tolerations != new.spec.tolerations
                && constraints.iter().any(|constraint| constraint.honors_taints);
            if tolerations_matter {
                QueueingHint::Queue
            } else {
                pod_changed(pod, constraints, Some(old), Some(new))
            }
        }
        Change::Object(_) => QueueingHint::Queue,
    }
}

/// Returns the hint for a pod on a node that was added, updated or deleted.
fn pod_changed(
    pod: &Pod,
    constraints: &[SpreadConstraint],
    old: Option<&Pod>,
    new: Option<&Pod>,
) -> QueueingHint {
    if old.iter().chain(&new).any(|other| other.meta.namespace != pod.meta.namespace) {
        return QueueingHint::Skip;
    }
    let matches = |constraint: &SpreadConstraint, other: Option<&Pod>| {
        other.is_some_and(|other| constraint.selector.matches(&other.meta.labels))
    };
    QueueingHint::when(
        constraints.iter().any(|constraint| matches(constraint, old) != matches(constraint, new)),
    )
}

/// Returns the hint for a node that was added, updated or deleted.
fn node_changed(
    constraints: &[SpreadConstraint],
    old: Option<&Node>,
    new: Option<&Node>,
) -> QueueingHint {
    let has_all_keys = |node: &Node| {
        constraints.iter().all(|constraint| node.meta.labels.contains(&constraint.topology_key))
    };
    // A node without all topology keys affects no constraint.
    QueueingHint::when(match (old, new) {
        (Some(old), Some(new)) if has_all_keys(old) == has_all_keys(new) => {
            let changed_domain = |constraint: &SpreadConstraint| {
                let key = &constraint.topology_key;
                old.meta.labels.get(key) != new.meta.labels.get(key)
            };
            has_all_keys(new)
                && (constraints.iter().any(changed_domain) || old.spec.taints != new.spec.taints)
        }
        (Some(_), Some(_)) => true,
        (old, new) => old.or(new).is_some_and(has_all_keys),
    })
}
