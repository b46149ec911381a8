//! Predicates on a Job's pods: finalizer, success and failure, finish time, completion index.

use crate::pods;
use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::{ContainerStatus, Job, Pod},
};

/// Finalizer of a pod until it is counted (KEP-2307). Upstream: `JobTrackingFinalizer`.
pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label with the completion index. Upstream: `JobCompletionIndexAnnotation`.
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation with the counted failures of the index before this pod. Upstream: `JobIndexFailureCountAnnotation`.
pub(super) const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation with the ignored failures of the index before this pod. Upstream:
/// `JobIndexIgnoredFailureCountAnnotation`.
pub(super) const INDEX_IGNORED_FAILURE_COUNT: &str =
    "batch.kubernetes.io/job-index-ignored-failure-count";

/// Returns whether the pod has the finalizer. Upstream: `hasJobTrackingFinalizer`.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.meta.finalizers.iter().any(|finalizer| &**finalizer == FINALIZER)
}

/// Returns whether the phase is `Succeeded`.
pub(super) fn has_succeeded(pod: &Pod) -> bool {
    &*pod.status.phase == "Succeeded"
}

/// Returns whether the pod failed. A terminating pod counts as failed, unless `podReplacementPolicy` is `Failed`
/// (KEP-3939).
/// Upstream: `isPodFailed`.
pub(super) fn has_failed(pod: &Pod, job: &Job) -> bool {
    match &*pod.status.phase {
        "Failed" => true,
        "Succeeded" => false,
        _ => pod.meta.deleting() && !replaces_only_failed(job),
    }
}

/// Returns whether `podReplacementPolicy` is `Failed`: a terminating pod is replaced only when it has failed. Upstream:
/// `onlyReplaceFailedPods`.
pub(super) fn replaces_only_failed(job: &Job) -> bool {
    &*job.spec.pod_replacement_policy == "Failed"
}

/// Returns whether `completionMode` is `Indexed`. Upstream: `isIndexedJob`.
pub(super) fn is_indexed(job: &Job) -> bool {
    &*job.spec.completion_mode == "Indexed"
}

/// Returns the pod's completion index, if valid. Upstream: `getCompletionIndex`.
pub(super) fn index(pod: &Pod) -> Option<u32> {
    pod.meta.annotations.get(COMPLETION_INDEX)?.parse::<i32>().ok()?.try_into().ok()
}

/// Returns the pod's completion index, if it is below `completions`.
pub(super) fn valid_index(pod: &Pod, job: &Job) -> Option<u32> {
    index(pod).filter(|index| *index < completions(job))
}

/// Returns `completions`, default 0.
pub(super) fn completions(job: &Job) -> u32 {
    job.spec.completions.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

/// Returns whether the pod has a valid index or the Job is not Indexed. Other pods do not count.
pub(super) fn has_needed_index(pod: &Pod, job: &Job) -> bool {
    !is_indexed(job) || valid_index(pod, job).is_some()
}

/// Returns the pod's finish time: the end of its last container, otherwise the time at which `Ready` became `False`, otherwise
/// the deletion time, otherwise the creation time. Upstream: `getFinishedTime`.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    containers_finished_at(pod)
        .or_else(|| not_ready_since(pod))
        .or_else(|| deletion_requested_at(pod))
        .or(pod.meta.creation)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns the time since which the pod has not been ready.
fn not_ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = pod.status.conditions.iter().find(|condition| &*condition.type_ == "Ready")?;
    if &*ready.status == "False" { ready.last_transition_time } else { None }
}

/// Returns the deletion time without the grace period.
fn deletion_requested_at(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.meta.deletion_grace_seconds.unwrap_or(0));
    pod.meta.deletion.map(|end| end.checked_sub(grace).unwrap_or(end))
}

/// Returns the end of the last container, sidecars included, if all have terminated. Upstream:
/// `getFinishTimeFromContainers`.
fn containers_finished_at(pod: &Pod) -> Option<Timestamp> {
    let is_sidecar = |status: &&ContainerStatus| {
        let mut sidecars = pod.spec.init_containers.iter();
        sidecars.any(|container| {
            container.name == status.name && &*container.restart_policy == "Always"
        })
    };
    let sidecars = pod.status.init_container_statuses.iter().filter(is_sidecar);
    let mut last = None;
    for status in pod.status.container_statuses.iter().chain(sidecars) {
        last = last.max(Some(status.state.terminated.as_ref()?.finished_at?));
    }
    last
}

/// Returns the restarts of all containers of a pending or running pod with `restartPolicy: OnFailure`; 0 for
/// others.
pub(super) fn restart_count(pod: &Pod) -> i64 {
    if pods::is_terminal(pod) || &*pod.spec.restart_policy != "OnFailure" {
        return 0;
    }
    let containers =
        pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    containers.map(|status| i64::from(status.restart_count)).sum()
}
