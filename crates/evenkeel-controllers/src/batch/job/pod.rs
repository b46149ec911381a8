//! What a Job asks of a pod: is it still to be counted, did it fail, when did it end, which index is it.

use crate::pods;
use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::{ContainerStatus, Job, Pod},
};

/// Holds a pod back until it is counted (KEP-2307).
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The index of a pod, as annotation and as label.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often its index failed before this pod.
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often its index failed before this pod in ways that do not count.
pub(super) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Whether the pod is still to be counted.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.meta.finalizers.iter().any(|finalizer| &**finalizer == FINALIZER)
}

/// Whether it succeeded.
pub(super) fn has_succeeded(pod: &Pod) -> bool {
    &*pod.status.phase == "Succeeded"
}

/// Whether it failed: ended so, or is being deleted, unless `podReplacementPolicy` is `Failed` (KEP-3939).
pub(super) fn has_failed(pod: &Pod, job: &Job) -> bool {
    match &*pod.status.phase {
        "Failed" => true,
        "Succeeded" => false,
        _ => pod.meta.deleting() && !replaces_only_failed(job),
    }
}

/// Whether `podReplacementPolicy` is `Failed`: pods that are being deleted are waited for before they are replaced. With
/// `TerminatingOrFailed` they are not.
pub(super) fn replaces_only_failed(job: &Job) -> bool {
    &*job.spec.pod_replacement_policy == "Failed"
}

/// Whether each pod has an index (`completionMode` is `Indexed`).
pub(super) fn is_indexed(job: &Job) -> bool {
    &*job.spec.completion_mode == "Indexed"
}

/// The pod's index, if it has one that can be read.
pub(super) fn index(pod: &Pod) -> Option<u32> {
    pod.meta.annotations.get(INDEX)?.parse::<i32>().ok()?.try_into().ok()
}

/// The pod's index, if the Job has such a one.
pub(super) fn valid_index(pod: &Pod, job: &Job) -> Option<u32> {
    index(pod).filter(|index| *index < completions(job))
}

/// How many pods must succeed (`completions`); 0 where nobody said.
pub(super) fn completions(job: &Job) -> u32 {
    job.spec.completions.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

/// Whether the pod can be counted: in a Job with indexes only one that has an index is.
pub(super) fn counts(pod: &Pod, job: &Job) -> bool {
    !is_indexed(job) || valid_index(pod, job).is_some()
}

/// When the pod ended, as well as can be known: its last container's end; else since when it is not ready; else when it
/// was told to end; else when it was made.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let condition = pod.status.conditions.iter().find(|c| &*c.type_ == "Ready");
    let not_ready =
        || condition.filter(|c| &*c.status == "False").and_then(|c| c.last_transition_time);
    let told = || {
        let grace = SignedDuration::from_secs(pod.meta.deletion_grace_seconds.unwrap_or(0));
        pod.meta.deletion.map(|end| end.checked_sub(grace).unwrap_or(end))
    };
    let made = || pod.meta.creation.unwrap_or(Timestamp::UNIX_EPOCH);
    containers_ended(pod).or_else(not_ready).or_else(told).unwrap_or_else(made)
}

/// When the last container ended, if all have; sidecars are among them.
fn containers_ended(pod: &Pod) -> Option<Timestamp> {
    let is_sidecar = |status: &&ContainerStatus| {
        let mut sidecars = pod.spec.init_containers.iter();
        sidecars.any(|c| c.name == status.name && &*c.restart_policy == "Always")
    };
    let sidecars = pod.status.init_container_statuses.iter().filter(is_sidecar);
    let mut last = None;
    for status in pod.status.container_statuses.iter().chain(sidecars) {
        last = last.max(Some(status.state.terminated.as_ref()?.finished_at?));
    }
    last
}

/// Restarts of all containers of a pod that restarts them in place and has not ended.
pub(super) fn restarts(pod: &Pod) -> i64 {
    if pods::is_terminal(pod) || &*pod.spec.restart_policy != "OnFailure" {
        return 0;
    }
    let containers =
        pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    containers.map(|status| i64::from(status.restart_count)).sum()
}
