//! Description of a ReplicaSet or ReplicationController for `evenkeel explain`.

use super::{
    plan::{Observed, template_error},
    set::{REPLICA_FAILURE, Set},
};
use crate::{pods, wire, words};
use evenkeel_api::{time::Timestamp, views::Pod};
use evenkeel_runtime::introspect::Description;
use std::sync::Arc;

/// Maximum number of pods listed by name.
const MAX_LISTED: usize = 5;

/// Describes the observed state, the pending changes and the pods.
pub(crate) fn describe<S: Set>(observed: &Observed<S>, now: Timestamp) -> Description {
    let set = &*observed.set;
    let mut description = Description::new();
    description.fact("wanted", words::count(i64::from(set.replicas()), "pod"));
    if !set.has_valid_selector() {
        description.waits("its selector cannot be read: nothing is done until it is mended");
        return description;
    }
    describe_counts(observed, now, &mut description);
    if let Some(failure) =
        set.conditions().iter().find(|condition| &*condition.type_ == REPLICA_FAILURE)
    {
        description.fact("failure", format!("{}: {}", failure.reason, failure.message));
    }
    if set.meta().deleting() {
        description.waits("it is being deleted: pods are neither made nor deleted any more");
    } else if let Some(error) = template_error(set) {
        description.waits(error);
    }
    let min_ready_seconds = set.min_ready_seconds();
    let is_unavailable = |pod: &&Arc<Pod>| !pods::is_available(pod, min_ready_seconds, now);
    let unavailable: Vec<_> = observed.pods.owned.iter().filter(is_unavailable).collect();
    for pod in unavailable.iter().take(MAX_LISTED) {
        let state = pods::describe_unavailable(pod, min_ready_seconds, now);
        description.waits(format!("pod {} {state}", pod.meta.name));
    }
    let n_unlisted = unavailable.len().saturating_sub(MAX_LISTED);
    if n_unlisted > 0 {
        description.waits(match n_unlisted {
            1 => "1 more pod is not available".to_owned(),
            count => format!("{count} more pods are not available"),
        });
    }
    for pod in &observed.pods.owned {
        description.child(&wire::target(&**pod));
    }
    description
}

/// Adds the counts of owned pods, and of pods to adopt and to release.
fn describe_counts<S: Set>(observed: &Observed<S>, now: Timestamp, description: &mut Description) {
    let owned = &observed.pods.owned;
    let min_ready_seconds = observed.set.min_ready_seconds();
    let ready = owned.iter().filter(|pod| pods::is_ready(pod)).count();
    let available =
        owned.iter().filter(|pod| pods::is_available(pod, min_ready_seconds, now)).count();
    let mut text = format!("{} active, {ready} ready, {available} available", owned.len());
    if observed.n_terminating > 0 {
        text.push_str(&format!(", {} ending", observed.n_terminating));
    }
    description.fact("its pods", text);
    if observed.pods.n_to_adopt > 0 {
        description.fact(
            "unclaimed",
            format!("{} that it selects, to be adopted", observed.pods.n_to_adopt),
        );
    }
    let released = observed.pods.release.len();
    if released > 0 {
        description.fact("no longer selected", format!("{released} of its pods, to be released"));
    }
}
