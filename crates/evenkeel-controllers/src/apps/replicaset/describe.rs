//! What a set's decision looked at, in words.

use super::{
    plan::{Seen, unusable},
    set::{REPLICA_FAILURE, Set},
};
use crate::{pods, wire, words};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::Description;

/// Pods that are named one by one.
const NAMED: usize = 5;

/// What is seen, what is waited for, and the set's pods.
pub(crate) fn describe<S: Set>(seen: &Seen<S>, now: Timestamp) -> Description {
    let (set, mut told) = (&*seen.set, Description::new());
    told.fact("wanted", words::count(i64::from(set.replicas()), "pod"));
    if !set.selects() {
        told.waits("its selector cannot be read: nothing is done until it is mended");
        return told;
    }
    counts(seen, now, &mut told);
    if let Some(failure) = set.conditions().iter().find(|c| &*c.type_ == REPLICA_FAILURE) {
        told.fact("failure", format!("{}: {}", failure.reason, failure.message));
    }
    if set.meta().deleting() {
        told.waits("it is being deleted: pods are neither made nor deleted any more");
    } else if let Some(why) = unusable(set) {
        told.waits(why);
    }
    let min_ready_seconds = set.min_ready_seconds();
    let unavailable =
        || seen.pods.owned.iter().filter(|p| !pods::is_available(p, min_ready_seconds, now));
    for pod in unavailable().take(NAMED) {
        let why = match pods::until_available(pod, min_ready_seconds, now) {
            Some(left) => format!("becomes available in {}", words::time(left)),
            None => pods::unready(pod),
        };
        told.waits(format!("pod {} {why}", pod.meta.name));
    }
    let more = unavailable().count().saturating_sub(NAMED);
    if more > 0 {
        told.waits(format!("{more} more pods are not available"));
    }
    for pod in &seen.pods.owned {
        told.child(&wire::target(&**pod));
    }
    told
}

fn counts<S: Set>(seen: &Seen<S>, now: Timestamp, told: &mut Description) {
    let (owned, min_ready_seconds) = (&seen.pods.owned, seen.set.min_ready_seconds());
    let ready = owned.iter().filter(|pod| pods::is_ready(pod)).count();
    let available =
        owned.iter().filter(|pod| pods::is_available(pod, min_ready_seconds, now)).count();
    let mut text = format!("{} active, {ready} ready, {available} available", owned.len());
    if seen.n_terminating > 0 {
        text.push_str(&format!(", {} ending", seen.n_terminating));
    }
    told.fact("its pods", text);
    if seen.pods.adopt > 0 {
        told.fact("unclaimed", format!("{} that it selects, to be adopted", seen.pods.adopt));
    }
    let released = seen.pods.release.len();
    if released > 0 {
        told.fact(
            "estranged",
            format!("{released} that it does not select any more, to be released"),
        );
    }
}
