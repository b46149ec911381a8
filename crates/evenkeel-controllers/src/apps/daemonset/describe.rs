//! What a set's decision looked at, in words.

use super::{budget::Budget, plan::Pass, seen::Seen};
use crate::{pods, wire, words};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::Description;

/// Pods that are named one by one.
const NAMED: usize = 5;

/// What is seen, what is waited for, and the set's pods.
pub(super) fn describe(seen: &Seen, now: Timestamp) -> Description {
    let (pass, mut told) = (Pass::begin(seen, now), Description::new());
    let set = &*seen.set;
    let desired = pass.desired();
    told.fact(
        "wanted",
        format!(
            "a pod on {} of {}",
            desired,
            words::count(words::signed(seen.nodes.len()), "node")
        ),
    );
    told.fact("revision", seen.history.hash());
    let budget = Budget::of(set, desired);
    told.fact(
        "strategy",
        format!(
            "{}: at most {} without, at most {} with two",
            set.spec.update_strategy.type_,
            words::count(words::signed(budget.unavailable), "node"),
            budget.surge
        ),
    );
    if set.spec.selector.is_everything() {
        told.waits("it selects all pods: nothing is done until its selector says which");
    } else if let Some(error) = set.spec.selector.error() {
        told.waits(format!("its selector cannot be read: {error}"));
    } else if set.meta.deleting() {
        told.waits("it is being deleted: its pods are left as they are");
    }
    let unavailable = seen.pods.owned.iter().filter(|pod| !pass.is_available(pod));
    for pod in unavailable.take(NAMED) {
        let why = match pods::until_available(pod, set.spec.min_ready_seconds, now) {
            _ if pod.meta.deleting() => "is ending".to_owned(),
            Some(left) => format!("becomes available in {}", words::time(left)),
            None => pods::unready(pod),
        };
        told.waits(format!("pod {} {why}", pod.meta.name));
    }
    for pod in &seen.pods.owned {
        told.child(&wire::target(&**pod));
    }
    told
}
