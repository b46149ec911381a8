//! `NoExecute` taints of nodes that are not ready (KEP-166): `not-ready` if `Ready` is `False`, `unreachable` if it is
//! `Unknown`, never both. `core/tainteviction` deletes the pods that do not tolerate the taint.

use super::{
    condition_taints::taints_body,
    health::{Ready, ready_status},
};
use evenkeel_api::{
    time::{Timestamp, seconds},
    views::{Node, Taint},
};
use serde_json::{Value, json};

/// Effect of the taints that evict pods.
const NO_EXECUTE: &str = "NoExecute";
/// Key of the taint of nodes whose condition `Ready` is `False`.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Key of the taint of nodes whose condition `Ready` is `Unknown`.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// When to write the node's taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaintAction {
    /// The node's taints agree with its condition.
    None,
    /// At once: remove a taint of a ready node, or replace one taint by the other.
    Immediate,
    /// When the zone's rate limiter allows: add a taint.
    RateLimited,
}

/// Decides when to write a node's taints. Upstream: `processTaintBaseEviction`.
pub(crate) fn taint_action(node: &Node, ready: Option<Ready>) -> TaintAction {
    let Some(TaintSwap { expected, outdated }) = taint_swap(ready) else {
        let may_remove = matches!(ready, None | Some(Ready::Yes));
        let is_tainted = node.spec.taints.iter().any(is_ours);
        return if may_remove && is_tainted { TaintAction::Immediate } else { TaintAction::None };
    };
    if has_taint(node, outdated) {
        TaintAction::Immediate
    } else if has_taint(node, expected) {
        TaintAction::None
    } else {
        TaintAction::RateLimited
    }
}

/// Returns the patch that makes the taints agree with the condition, or `None` if they do. Upstream:
/// `SwapNodeControllerTaint`.
pub(crate) fn taints_patch(node: &Node, now: Timestamp) -> Option<String> {
    let expected = taint_swap(ready_status(node)).map(|swap| swap.expected);
    let is_outdated = |taint: &Taint| is_ours(taint) && expected != Some(&*taint.key);
    let missing = expected.filter(|key| !has_taint(node, key));
    if missing.is_none() && !node.spec.taints.iter().any(is_outdated) {
        return None;
    }
    let remaining = node.spec.taints.iter().filter(|taint| !is_outdated(taint));
    let mut taints: Vec<Value> = remaining.map(Taint::to_json_value).collect();
    taints.extend(
        missing.map(|key| json!({"key": key, "effect": NO_EXECUTE, "timeAdded": seconds(now)})),
    );
    Some(taints_body(node, taints))
}

/// Returns the patch that removes both taints, whatever the condition, or `None` if the node has neither. Upstream:
/// `markNodeAsReachable`.
pub(crate) fn reachable_patch(node: &Node) -> Option<String> {
    if !node.spec.taints.iter().any(is_ours) {
        return None;
    }
    let others = node.spec.taints.iter().filter(|taint| !is_ours(taint));
    Some(taints_body(node, others.map(Taint::to_json_value).collect()))
}

/// The taint that a node should have, and the one that it should lose.
struct TaintSwap {
    expected: &'static str,
    outdated: &'static str,
}

/// Returns the taints for a status of `Ready`, or `None` if the node should have neither.
fn taint_swap(ready: Option<Ready>) -> Option<TaintSwap> {
    match ready {
        Some(Ready::No) => Some(TaintSwap { expected: NOT_READY, outdated: UNREACHABLE }),
        Some(Ready::Unknown) => Some(TaintSwap { expected: UNREACHABLE, outdated: NOT_READY }),
        Some(Ready::Yes | Ready::Other) | None => None,
    }
}

/// Returns whether the taint is one that this controller sets and removes.
fn is_ours(taint: &Taint) -> bool {
    &*taint.effect == NO_EXECUTE && [NOT_READY, UNREACHABLE].contains(&&*taint.key)
}

/// Returns whether the node has the `NoExecute` taint with this key.
fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.taints.iter().any(|taint| &*taint.effect == NO_EXECUTE && &*taint.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, meta};
    use evenkeel_api::views::NodeCondition;

    /// Returns a node with this status of `Ready`, none if empty, and these taints as `key:effect`.
    fn node(ready: &str, taints: &[&str]) -> Node {
        let mut node = Node { meta: meta("n"), ..Node::default() };
        if !ready.is_empty() {
            node.status.conditions = Box::new([NodeCondition {
                type_: "Ready".into(),
                status: ready.into(),
                ..NodeCondition::default()
            }]);
        }
        let taint = |text: &&str| {
            let (key, effect) = text.split_once(':').expect("key:effect");
            Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
        };
        node.spec.taints = taints.iter().map(taint).collect();
        node
    }

    fn taints_after_patch(node: &Node) -> Option<Vec<String>> {
        let body: Value = serde_json::from_str(&taints_patch(node, T0)?).expect("JSON");
        let text = |taint: &Value| {
            format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap())
        };
        Some(body["spec"]["taints"].as_array().into_iter().flatten().map(text).collect())
    }

    const NOT_READY_NO_EXECUTE: &str = "node.kubernetes.io/not-ready:NoExecute";
    const NOT_READY_NO_SCHEDULE: &str = "node.kubernetes.io/not-ready:NoSchedule";
    const UNREACHABLE_NO_EXECUTE: &str = "node.kubernetes.io/unreachable:NoExecute";

    /// Ready status and taints of a node; the expected action, and the taints after it.
    type Row =
        (&'static str, &'static [&'static str], TaintAction, Option<&'static [&'static str]>);

    #[test]
    fn ready_status_decides_the_no_execute_taint() {
        let table: [Row; 11] = [
            ("True", &[], TaintAction::None, None),
            ("True", &["other:NoExecute", NOT_READY_NO_SCHEDULE], TaintAction::None, None),
            (
                "True",
                &["other:NoExecute", NOT_READY_NO_EXECUTE],
                TaintAction::Immediate,
                Some(&["other:NoExecute"]),
            ),
            (
                "True",
                &[UNREACHABLE_NO_EXECUTE, NOT_READY_NO_EXECUTE],
                TaintAction::Immediate,
                Some(&[]),
            ),
            (
                "False",
                &[NOT_READY_NO_SCHEDULE],
                TaintAction::RateLimited,
                Some(&[NOT_READY_NO_SCHEDULE, NOT_READY_NO_EXECUTE]),
            ),
            ("False", &[NOT_READY_NO_EXECUTE], TaintAction::None, None),
            (
                "False",
                &[UNREACHABLE_NO_EXECUTE],
                TaintAction::Immediate,
                Some(&[NOT_READY_NO_EXECUTE]),
            ),
            ("Unknown", &[], TaintAction::RateLimited, Some(&[UNREACHABLE_NO_EXECUTE])),
            (
                "Unknown",
                &[NOT_READY_NO_EXECUTE, "a:NoSchedule"],
                TaintAction::Immediate,
                Some(&["a:NoSchedule", UNREACHABLE_NO_EXECUTE]),
            ),
            ("", &[], TaintAction::None, None),
            ("", &[UNREACHABLE_NO_EXECUTE], TaintAction::Immediate, Some(&[])),
        ];
        for (status, taints, want, taints_after) in table {
            let node = node(status, taints);
            assert_eq!(taint_action(&node, ready_status(&node)), want, "{status} {taints:?}");
            let taints_after: Option<Vec<String>> =
                taints_after.map(|all| all.iter().map(ToString::to_string).collect());
            assert_eq!(taints_after_patch(&node), taints_after, "{status} {taints:?}");
        }
        assert!(reachable_patch(&node("False", &["a:NoExecute", NOT_READY_NO_SCHEDULE])).is_none());
        let body = reachable_patch(&node("False", &[NOT_READY_NO_EXECUTE, "a:NoExecute"]))
            .expect("a patch");
        assert!(body.contains(r#""a""#) && !body.contains("not-ready"), "{body}");
    }
}
