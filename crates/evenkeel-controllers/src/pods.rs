//! What controllers ask of a pod: is it active, ready, available, and since when.

use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::Pod,
};
use std::time::Duration;

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

/// Whether the condition `Ready` holds.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready(pod).is_some()
}

/// When the condition `Ready` came to hold: `None` if it does not, `Some(None)` if nobody wrote since when.
pub(crate) fn ready(pod: &Pod) -> Option<Option<Timestamp>> {
    let condition = pod.status.conditions.iter().find(|c| &*c.type_ == "Ready")?;
    (&*condition.status == "True").then_some(condition.last_transition_time)
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
