//! Predicates on pods: active, ready, available, and since when. Upstream: `pkg/api/v1/pod`, `controller_utils.go`.

use crate::words;
use evenkeel_api::{
    time::{SignedDuration, Timestamp, saturating_add},
    views::Pod,
};
use std::{sync::Arc, time::Duration};

/// Label with the hash of the owner's revision. Upstream: `ControllerRevisionHashLabelKey`.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// Returns the revision label's value, empty without the label.
pub(crate) fn revision_of(pod: &Pod) -> &str {
    pod.meta.labels.get(REVISION_LABEL).unwrap_or_default()
}

/// Returns whether the phase is `Succeeded` or `Failed`. Upstream: `IsPodTerminal`.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(&*pod.status.phase, "Succeeded" | "Failed")
}

/// Returns whether the pod is neither terminal nor being deleted. Upstream: `IsPodActive`.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !pod.meta.deleting()
}

/// Returns whether the pod is being deleted and not terminal. Upstream: `IsPodTerminating`.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.meta.deleting()
}

/// Returns whether an update changes the counts in the owner's status. Most updates (addresses, containers) do not.
pub(crate) fn changes_owner_counts(old: &Pod, new: &Pod) -> bool {
    let counted = |pod: &Pod| (pod.meta.deleting(), is_terminal(pod), ready_since(pod));
    counted(old) != counted(new)
}

/// Returns whether an update changes nothing of its owner but counts of ready and available pods in the status.
pub(crate) fn changes_only_readiness(old: &Pod, new: &Pod) -> bool {
    let lasting = |pod: &Pod| (pod.meta.deleting(), is_terminal(pod));
    lasting(old) == lasting(new)
        && old.meta.controller() == new.meta.controller()
        && old.meta.labels == new.meta.labels
}

/// Returns whether the condition `Ready` is `True`. Upstream: `IsPodReady`.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// Returns the transition time of the condition `Ready`. `None` if the pod is not ready, `Some(None)` if the condition
/// has no time.
pub(crate) fn ready_since(pod: &Pod) -> Option<Option<Timestamp>> {
    let condition = pod.status.conditions.iter().find(|condition| &*condition.type_ == "Ready")?;
    (&*condition.status == "True").then_some(condition.last_transition_time)
}

/// Describes why a pod is not available, as in `becomes available in 10s`.
pub(crate) fn describe_unavailable(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> String {
    if pod.meta.deleting() {
        return "is ending".to_owned();
    }
    match until_available(pod, min_ready_seconds, now) {
        Some(remaining) => format!("becomes available in {}", words::go_duration(remaining)),
        None => describe_unready(pod),
    }
}

/// Describes why a pod is not ready, as in `is not ready (phase Pending)`: by the reason of a condition, or else by the
/// phase.
fn describe_unready(pod: &Pod) -> String {
    let conditions = &pod.status.conditions;
    let not_true = |type_: &str| {
        conditions
            .iter()
            .find(|condition| &*condition.type_ == type_ && &*condition.status != "True")
    };
    if let Some(condition) = not_true("PodScheduled") {
        return format!("is not scheduled: {}: {}", condition.reason, condition.message);
    }
    if pod.spec.node_name.is_empty() {
        return "is not scheduled yet".to_owned();
    }
    let condition = not_true("Ready").filter(|condition| !condition.reason.is_empty());
    let why = condition
        .map(|condition| format!(": {} {}", condition.reason, condition.message))
        .unwrap_or_default();
    format!("is not ready (phase {}){}", pod.status.phase, why.trim_end())
}

/// Returns whether the pod has been ready for `min_ready_seconds`. Upstream: `IsPodAvailable`.
pub(crate) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    ready_since(pod).is_some_and(|since| is_available_since(since, min_ready_seconds, now))
}

/// Returns whether a pod that has been ready since a time is available.
pub(crate) fn is_available_since(
    since: Option<Timestamp>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> bool {
    min_ready_seconds == 0
        || since.is_some_and(|since| available_at(since, min_ready_seconds) <= now)
}

/// Returns the time until the next ready pod becomes available. Without such a pod, returns `min_ready_seconds`.
///
/// Upstream: `FindMinNextPodAvailabilityCheck`.
pub(crate) fn until_next_available<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Duration {
    let remaining = pods.into_iter().filter_map(|pod| until_available(pod, min_ready_seconds, now));
    remaining.min().unwrap_or(Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or(0)))
}

/// Returns the time until a ready pod becomes available, or `None` if it already is, or if the pod is not ready.
/// Upstream: `nextPodAvailabilityCheck`.
pub(crate) fn until_available(
    pod: &Pod,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let remaining = available_at(ready_since(pod)??, min_ready_seconds).duration_since(now);
    Duration::try_from(remaining).ok().filter(|remaining| !remaining.is_zero())
}

/// Returns the time at which a pod that has been ready since `since` becomes available.
fn available_at(since: Timestamp, min_ready_seconds: i32) -> Timestamp {
    saturating_add(since, SignedDuration::from_secs(min_ready_seconds.into()))
}
