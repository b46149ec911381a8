//! What controllers ask of a pod: is it active, ready, available, and since when.

use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::Pod,
};
use std::time::Duration;

/// The label that says from which revision of its owner a pod was made.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// The revision of its owner that the pod was made from, empty if it does not say.
pub(crate) fn revision_of(pod: &Pod) -> &str {
    pod.meta.labels.get(REVISION_LABEL).unwrap_or_default()
}

/// Whether the pod has ended, and will never run again.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(&*pod.status.phase, "Succeeded" | "Failed")
}

/// Whether the pod counts towards what was asked for: neither ended nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !pod.meta.deleting()
}

/// Whether the pod is being deleted and may still run.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.meta.deleting()
}

/// Whether an owner that counts its pods would count this one otherwise than before. Most updates of a pod (its addresses,
/// its containers) are of no concern to its owner.
pub(crate) fn counts_otherwise(old: &Pod, new: &Pod) -> bool {
    let of = |pod: &Pod| (pod.meta.deleting(), is_terminal(pod), ready(pod));
    of(old) != of(new)
}

/// Whether the condition `Ready` holds.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready(pod).is_some()
}

/// When the condition `Ready` came to hold: `None` if it does not, `Some(None)` if nobody wrote since when.
pub(crate) fn ready(pod: &Pod) -> Option<Option<Timestamp>> {
    let condition = pod.status.conditions.iter().find(|c| &*c.type_ == "Ready")?;
    (&*condition.status == "True").then_some(condition.last_transition_time)
}

/// Why a pod is not ready: what its conditions or containers say, else its phase.
pub(crate) fn unready(pod: &Pod) -> String {
    let conditions = &pod.status.conditions;
    let failed = |name: &str| conditions.iter().find(|c| &*c.type_ == name && &*c.status != "True");
    if let Some(condition) = failed("PodScheduled") {
        return format!("is not scheduled: {}: {}", condition.reason, condition.message);
    }
    if pod.spec.node_name.is_empty() {
        return "is not scheduled yet".to_owned();
    }
    let condition = failed("Ready").filter(|c| !c.reason.is_empty());
    let why = condition.map(|c| format!(": {} {}", c.reason, c.message)).unwrap_or_default();
    format!("is not ready (phase {}){}", pod.status.phase, why.trim_end())
}

/// Whether the pod has been ready for `min_ready_seconds`.
pub(crate) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    match ready(pod) {
        None => false,
        Some(_) if min_ready_seconds == 0 => true,
        Some(since) => since.is_some_and(|since| available_at(since, min_ready_seconds) <= now),
    }
}

/// How long until a ready pod becomes available, if time alone will make it so.
pub(crate) fn until_available(
    pod: &Pod,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let left = available_at(ready(pod)??, min_ready_seconds).duration_since(now);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

fn available_at(since: Timestamp, min_ready_seconds: i32) -> Timestamp {
    since.checked_add(SignedDuration::from_secs(min_ready_seconds.into())).unwrap_or(Timestamp::MAX)
}
