//! Description of a DaemonSet for `evenkeel explain`.

use super::{limits::RolloutLimits, observed::Observed, plan::DaemonSetSync};
use crate::{pods, wire, words};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::Description;

/// Maximum number of pods listed by name.
const MAX_LISTED: usize = 5;

/// Describes the observed state, the pending changes and the pods.
pub(super) fn describe(observed: &Observed, now: Timestamp) -> Description {
    let sync = DaemonSetSync::begin(observed, now);
    let mut description = Description::new();
    let set = &*observed.set;
    let desired = sync.desired();
    description.fact(
        "wanted",
        format!(
            "a pod on {} of {}",
            desired,
            words::count(words::signed(observed.nodes.len()), "node")
        ),
    );
    let revision = observed.history.current_hash();
    if !revision.is_empty() {
        description.fact("revision", revision);
    }
    let limits = RolloutLimits::resolve(set, desired);
    description.fact(
        "strategy",
        format!(
            "{}: at most {} without, at most {} with two",
            set.spec.update_strategy.type_,
            words::count(words::signed(limits.max_unavailable), "node"),
            limits.max_surge
        ),
    );
    if set.spec.selector.is_everything() {
        description.waits("it selects all pods: nothing is done until its selector says which");
    } else if let Some(error) = set.spec.selector.error() {
        description.waits(format!("its selector cannot be read: {error}"));
    } else if set.meta.deleting() {
        description.waits("it is being deleted: its pods are left as they are");
    }
    let unavailable = observed.pods.owned.iter().filter(|pod| !sync.is_available(pod));
    for pod in unavailable.take(MAX_LISTED) {
        let state = pods::describe_unavailable(pod, set.spec.min_ready_seconds, now);
        description.waits(format!("pod {} {state}", pod.meta.name));
    }
    for pod in &observed.pods.owned {
        description.child(&wire::target(&**pod));
    }
    description
}
