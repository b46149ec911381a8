//! Queueing hint for changes that may satisfy the pod's required terms.

use evenkeel_api::views::{Node, Pod};
use std::sync::Arc;

use crate::{
    framework::{Change, QueueingHint},
    nodes::{RuleKind, Scope, terms},
    pod::PodInfo,
};

/// Returns `Queue` if the change may satisfy the pod's required terms.
pub(super) fn hint(pod: &Pod, change: &Change) -> QueueingHint {
    match change {
        Change::Node(edit) => edit.after().map_or(QueueingHint::Skip, |new| {
            node_changed(pod, edit.before().map(|old| &**old), new)
        }),
        Change::AssignedPod(edit) => {
            let pod_of = |info: Option<&'_ PodInfo>| info.map(|info| Arc::clone(&info.pod));
            let old = pod_of(edit.before());
            let new = pod_of(edit.after());
            pod_changed(pod, old.as_deref(), new.as_deref())
        }
        _ => QueueingHint::Queue,
    }
}

/// Returns the hint for a pod on a node that was added, updated or deleted. Like upstream, matches namespaces only by
/// name.
fn pod_changed(pod: &Pod, old: Option<&Pod>, new: Option<&Pod>) -> QueueingHint {
    let matches_affinity = |other: &Pod| {
        let mut affinity = terms(pod).filter(|(kind, _)| *kind == RuleKind::Affinity).peekable();
        affinity.peek().is_some()
            && affinity.all(|(_, term)| Scope::of_term(term, pod).matches_by_namespace_name(other))
    };
    let matches_anti_affinity = |owner: &Pod, other: &Pod| {
        let mut anti_affinity = terms(owner).filter(|(kind, _)| *kind == RuleKind::AntiAffinity);
        anti_affinity.any(|(_, term)| Scope::of_term(term, owner).matches_by_namespace_name(other))
    };
    QueueingHint::when(match (old, new) {
        (Some(old), Some(new)) => {
            (!matches_affinity(old) && matches_affinity(new))
                || (matches_anti_affinity(pod, old) && !matches_anti_affinity(pod, new))
        }
        (None, Some(new)) => matches_affinity(new),
        (Some(old), None) => matches_anti_affinity(pod, old) || matches_anti_affinity(old, pod),
        (None, None) => false,
    })
}

/// Returns the hint for a node that was added or whose labels changed.
fn node_changed(pod: &Pod, old: Option<&Node>, new: &Node) -> QueueingHint {
    let may_help = |kind: RuleKind, key: &str| {
        let value = |node: &'_ Node| node.meta.labels.get(key).map(Box::<str>::from);
        match (old.map(value), value(new)) {
            // A node without the topology key satisfies any anti-affinity.
            (None, new) => kind == RuleKind::AntiAffinity || new.is_some(),
            (Some(None), new) => kind == RuleKind::Affinity && new.is_some(),
            (Some(Some(_)), None) => kind == RuleKind::AntiAffinity,
            (Some(Some(old)), Some(new)) => old != new,
        }
    };
    let mut required = terms(pod).filter(|(kind, _)| !matches!(kind, RuleKind::Preference(_)));
    QueueingHint::when(required.any(|(kind, term)| may_help(kind, &term.topology_key)))
}
