//! Which `NoExecute` taint a node that is not ready has (KEP-166): `not-ready` where the node says so itself, `unreachable`
//! where it says nothing. Never both. Pods that do not tolerate it are evicted by `core/tainteviction`.

use super::{
    condition_taints::taints_body,
    health::{Ready, ready},
};
use evenkeel_api::{
    time::{Timestamp, seconds},
    views::{Node, Taint},
};
use serde_json::{Value, json};

const NO_EXECUTE: &str = "NoExecute";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// What is to be done about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It has the taints that it should have.
    Nothing,
    /// At once: it is well, or has one of the two taints and should have the other.
    Now,
    /// When its zone's turn comes.
    InTurn,
}

/// What is to be done about a node of which this is known (upstream: `processTaintBaseEviction`).
pub(crate) fn step(node: &Node, ready: Option<Ready>) -> Step {
    let Some((wanted, other)) = taints(ready) else {
        let unwanted = has(node, NOT_READY) || has(node, UNREACHABLE);
        let may_go = matches!(ready, None | Some(Ready::Yes));
        return if unwanted && may_go { Step::Now } else { Step::Nothing };
    };
    match (has(node, wanted), has(node, other)) {
        (_, true) => Step::Now,
        (true, false) => Step::Nothing,
        (false, false) => Step::InTurn,
    }
}

/// The patch after which a node has the taint of its condition and not the other one; `None` where that is so.
pub(crate) fn patch(node: &Node, now: Timestamp) -> Option<String> {
    let wanted = taints(ready(node)).map(|(wanted, _)| wanted);
    let superfluous = |taint: &Taint| {
        &*taint.effect == NO_EXECUTE
            && [NOT_READY, UNREACHABLE].contains(&&*taint.key)
            && wanted != Some(&*taint.key)
    };
    let missing = wanted.filter(|key| !has(node, key));
    if missing.is_none() && !node.spec.taints.iter().any(superfluous) {
        return None;
    }
    let kept = node.spec.taints.iter().filter(|taint| !superfluous(taint));
    let mut all: Vec<Value> = kept.map(Taint::to_json_value).collect();
    all.extend(
        missing.map(|key| json!({"key": key, "effect": NO_EXECUTE, "timeAdded": seconds(now)})),
    );
    Some(taints_body(node, all))
}

/// The patch after which a node has neither taint, whatever it says (upstream: `markNodeAsReachable`); `None` where that is
/// so.
pub(crate) fn without(node: &Node) -> Option<String> {
    let ours = |taint: &&Taint| {
        &*taint.effect == NO_EXECUTE && [NOT_READY, UNREACHABLE].contains(&&*taint.key)
    };
    node.spec.taints.iter().find(ours)?;
    let kept = node.spec.taints.iter().filter(|taint| !ours(taint));
    Some(taints_body(node, kept.map(Taint::to_json_value).collect()))
}

/// The taint that a node should have and the one that it should not, if it should have any.
fn taints(ready: Option<Ready>) -> Option<(&'static str, &'static str)> {
    match ready {
        Some(Ready::No) => Some((NOT_READY, UNREACHABLE)),
        Some(Ready::Unknown) => Some((UNREACHABLE, NOT_READY)),
        Some(Ready::Yes | Ready::Other) | None => None,
    }
}

fn has(node: &Node, key: &str) -> bool {
    node.spec.taints.iter().any(|taint| &*taint.effect == NO_EXECUTE && &*taint.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, meta};
    use evenkeel_api::views::NodeCondition;

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

    fn after(node: &Node) -> Option<Vec<String>> {
        let body: Value = serde_json::from_str(&patch(node, T0)?).expect("JSON");
        let none = Vec::new();
        let all = body["spec"]["taints"].as_array().unwrap_or(&none);
        let text = |taint: &Value| {
            format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap())
        };
        Some(all.iter().map(text).collect())
    }

    const NOT_READY_X: &str = "node.kubernetes.io/not-ready:NoExecute";
    const SCHEDULING: &str = "node.kubernetes.io/not-ready:NoSchedule";
    const UNREACHABLE_X: &str = "node.kubernetes.io/unreachable:NoExecute";

    /// What the node says and its taints; what is to be done, and its taints then.
    type Row = (&'static str, &'static [&'static str], Step, Option<&'static [&'static str]>);

    #[test]
    fn each_condition_has_its_taint() {
        let table: [Row; 11] = [
            ("True", &[], Step::Nothing, None),
            ("True", &["other:NoExecute", SCHEDULING], Step::Nothing, None),
            ("True", &["other:NoExecute", NOT_READY_X], Step::Now, Some(&["other:NoExecute"])),
            ("True", &[UNREACHABLE_X, NOT_READY_X], Step::Now, Some(&[])),
            ("False", &[SCHEDULING], Step::InTurn, Some(&[SCHEDULING, NOT_READY_X])),
            ("False", &[NOT_READY_X], Step::Nothing, None),
            ("False", &[UNREACHABLE_X], Step::Now, Some(&[NOT_READY_X])),
            ("Unknown", &[], Step::InTurn, Some(&[UNREACHABLE_X])),
            (
                "Unknown",
                &[NOT_READY_X, "a:NoSchedule"],
                Step::Now,
                Some(&["a:NoSchedule", UNREACHABLE_X]),
            ),
            ("", &[], Step::Nothing, None),
            ("", &[UNREACHABLE_X], Step::Now, Some(&[])),
        ];
        for (said, taints, want, taints_after) in table {
            let node = node(said, taints);
            assert_eq!(step(&node, ready(&node)), want, "{said} {taints:?}");
            let taints_after: Option<Vec<String>> =
                taints_after.map(|all| all.iter().map(ToString::to_string).collect());
            assert_eq!(after(&node), taints_after, "{said} {taints:?}");
        }
        assert!(without(&node("False", &["a:NoExecute", SCHEDULING])).is_none());
        let body = without(&node("False", &[NOT_READY_X, "a:NoExecute"])).expect("a patch");
        assert!(body.contains(r#""a""#) && !body.contains("not-ready"), "{body}");
    }
}
