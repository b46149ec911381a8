//! Reconciliation of a Job: creates missing pods, deletes surplus ones, counts finished ones. Upstream: `syncJob`.
//!
//! The finalizer of a pod ensures that each pod is counted once (KEP-2307). First the pod's uid is added to
//! `status.uncountedTerminatedPods`, then the finalizer is removed, then the uid moves to the counters. Each
//! reconciliation takes the next step of each pod and can resume after a crash.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `parallelism`, `completions`, work queues without `completions` | `manage::want_active` |
//! | `completionMode`: `Indexed`, `batch.kubernetes.io/job-completion-index`, `JOB_COMPLETION_INDEX` | `pod::is_indexed`, `manage::first_pending_indexes`, `template::with_index` |
//! | `suspend`, `status.startTime`, condition `Suspended` | `manage::manage_job`, `status::update_suspended_condition` |
//! | `backoffLimit`, restarts in place (`restartPolicy`: `OnFailure`) | `end::failed_by_limit`, `end::past_backoff_limit_on_failure` |
//! | backoff of failed pods: 10 s, 20 s, 40 s, … | `backoff::Failures` |
//! | `activeDeadlineSeconds` | `end::active_deadline_left` |
//! | `backoffLimitPerIndex`, `status.failedIndexes` | `per_index::PerIndexFailures`, `manage::create_by_index` |
//! | `maxFailedIndexes` | `end::failed_by_indexes` |
//! | `podFailurePolicy`: `FailJob`, `FailIndex`, `Ignore`, `Count` | `policy::match_pod_failure_policy` |
//! | `successPolicy` | `policy::match_success_policy` |
//! | `podReplacementPolicy`: `Failed`, `TerminatingOrFailed` | `pod::replaces_only_failed`, `pod::has_failed`, `manage::manage_job` |
//! | `managedBy` | `end::is_managed_elsewhere` |
//! | `status.uncountedTerminatedPods`, finalizer `batch.kubernetes.io/job-tracking` | `record_to_add`, `finalizers_to_remove`, `status::record_finished_pods`, `status::count_recorded_pods` |
//! | conditions `SuccessCriteriaMet`, `FailureTarget`, then `Complete`, `Failed` | `end::finished_condition`, `status::set_final_condition` |
//! | orphan pods, whose Job is deleted | `orphans::is_orphan` |
//! | `ttlSecondsAfterFinished` | `../ttlafterfinished` |

use super::{
    end::{self, FinishedCondition},
    manage::{self, PodChange},
    observed::Observed,
    pod, policy, template,
};
use crate::wire;
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{Job, Pod},
};
use evenkeel_runtime::plan::{
    Action, Create, Delete, EventRecord, OnError, Patch, PatchType, Plan, Target,
};
use std::{sync::Arc, time::Duration};

/// Decision of one reconciliation.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    /// The condition with which the Job finishes, if it does.
    pub(super) end: Option<FinishedCondition>,
    /// Pods whose finalizer the plan removes: the status has counted them, or they do not count.
    pub(super) finalizers_to_remove: Vec<Arc<Pod>>,
    /// Pods to create or delete. `None` if the Job finishes or is being deleted.
    pub(super) pod_change: Option<PodChange>,
}

impl Decision {
    pub(super) fn new(observed: &Observed, now: Timestamp) -> Self {
        let end = end::finished_condition(observed, now);
        let finalizers_to_remove = finalizers_to_remove(observed, end.as_ref());
        let pod_change = if end.is_some() || observed.job.meta.deleting() {
            None
        } else {
            Some(manage::manage_job(observed, now))
        };
        Self { end, finalizers_to_remove, pod_change }
    }

    /// Returns the pods to delete: all active ones when the Job finishes.
    pub(super) fn pods_to_delete<'a>(&'a self, observed: &'a Observed) -> &'a [Arc<Pod>] {
        match &self.pod_change {
            Some(PodChange::Delete(pods)) => pods,
            None if self.end.is_some() => &observed.counts.active,
            _ => &[],
        }
    }
}

/// Returns the pods whose finalizer the plan removes. As long as the status lacks the interim condition, the plan
/// keeps all of them, because the condition may depend on these pods. Upstream: `trackJobStatusAndRemoveFinalizers`.
fn finalizers_to_remove(observed: &Observed, end: Option<&FinishedCondition>) -> Vec<Arc<Pod>> {
    if end.is_some_and(|end| !end.announced) {
        return Vec::new();
    }
    let counted = observed.controlled_pods().iter().filter(|pod| {
        pod::is_tracked(pod)
            && can_remove_finalizer(observed, pod, end)
            && record_to_add(observed, pod, end).is_none()
    });
    counted.cloned().collect()
}

/// Returns whether the finalizer may be removed once the pod is counted. Upstream: `canRemoveFinalizer`.
pub(super) fn can_remove_finalizer(
    observed: &Observed,
    pod: &Pod,
    end: Option<&FinishedCondition>,
) -> bool {
    observed.job.meta.deleting()
        || end.is_some()
        || pod::has_succeeded(pod)
        || (pod::has_failed(pod, &observed.job) && !observed.counts.delays_deletion(pod))
}

/// Record of a pod in the status, before its finalizer is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// As an index of `completedIndexes`.
    Index(u32),
    /// By its uid in `uncountedTerminatedPods.succeeded`.
    Succeeded,
    /// By its uid in `uncountedTerminatedPods.failed`.
    Failed,
}

/// Returns the record to add for the pod, or `None` if the status has it, or if the pod does not count.
pub(super) fn record_to_add(
    observed: &Observed,
    pod: &Pod,
    end: Option<&FinishedCondition>,
) -> Option<Record> {
    let job = &*observed.job;
    let uncounted = &observed.counts.uncounted;
    let uid = &pod.meta.uid;
    if uncounted.failed.contains(uid) || !pod::has_needed_index(pod, job) {
        return None;
    }
    if pod::has_succeeded(pod) {
        let Some(indexes) = &observed.counts.indexes else {
            return (!uncounted.succeeded.contains(uid)).then_some(Record::Succeeded);
        };
        let index = pod::index(pod).filter(|index| !indexes.recorded.contains(*index));
        return index.map(Record::Index);
    }
    let counts_as_failed =
        is_failure(pod, job, end) && policy::match_pod_failure_policy(job, pod).counts_failure();
    counts_as_failed.then_some(Record::Failed)
}

/// Returns whether a pod that did not succeed counts as failed, by the state of the Job:
///
/// | state of the Job | pods that count as failed |
/// |---|---|
/// | active, or complete without the interim condition | failed pods, by `podReplacementPolicy` |
/// | complete (`SuccessCriteriaMet`) | pods of the phase `Failed`: the controller stops the others |
/// | failed, with `FailureTarget` or without | all pods: active ones fail with the Job |
fn is_failure(pod: &Pod, job: &Job, end: Option<&FinishedCondition>) -> bool {
    match end {
        None | Some(FinishedCondition { complete: true, announced: false, .. }) => {
            pod::has_failed(pod, job)
        }
        Some(FinishedCondition { complete: true, announced: true, .. }) => {
            &*pod.status.phase == "Failed"
        }
        Some(FinishedCondition { complete: false, .. }) => true,
    }
}

/// Decides the actions: adoptions and releases, removals of finalizers, then creations or deletions.
pub(super) fn plan(observed: &Observed, decision: &Decision, now: Timestamp) -> Plan {
    let target = wire::target(&*observed.job);
    if !observed.is_completion_mode_known() {
        let message = "Skipped Job sync because completion mode is unknown";
        let event = EventRecord::warning(target, "UnknownCompletionMode", message);
        return Plan::of(vec![Action::Event(event)]);
    }
    let adoptions_and_releases = observed.pods.actions_with_finalizer(&target, pod::FINALIZER);
    let mut plan = Plan::of(adoptions_and_releases.collect());
    for pod in &decision.finalizers_to_remove {
        plan.push(remove_finalizer(pod));
    }
    match &decision.pod_change {
        Some(PodChange::Create(indexes)) => {
            plan.actions.extend(create_pods(observed, &target, indexes));
        }
        Some(PodChange::BackOff(remaining)) => plan.requeue_after(*remaining),
        // Remove the finalizer before the deletion, so that these pods do not count as failed.
        Some(PodChange::Delete(pods)) => {
            for pod in pods.iter().filter(|pod| pod::is_tracked(pod)) {
                plan.push(Patch { on_error: OnError::SkipRest, ..remove_finalizer(pod) });
            }
        }
        Some(PodChange::Nothing) | None => {}
    }
    for pod in decision.pods_to_delete(observed) {
        plan.push(deletion(pod, &target));
    }
    if let Some(remaining) = end::active_deadline_left(&observed.job, now)
        && !remaining.is_zero()
    {
        plan.requeue_after(remaining + Duration::from_millis(1));
    }
    plan
}

/// Returns the creations of pods, one for each entry of `indexes`. Entries of a Job without indexes are `None`.
fn create_pods(observed: &Observed, target: &Target, indexes: &[Option<u32>]) -> Vec<Action> {
    let pod_json = |index: Option<u32>| {
        let replaced = index
            .and_then(|index| observed.counts.indexes.as_ref()?.pod_with_delayed_deletion(index))
            .map(|pod| &**pod);
        template::pod_json(&observed.job, index, replaced)
    };
    let creation = |body: String, count: usize| Create {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        done: Some(EventRecord::normal(target.clone(), "SuccessfulCreate", "Created pod: {name}")),
        failed: Some(EventRecord::warning(
            target.clone(),
            "FailedCreate",
            "Error creating: {error}",
        )),
        ..Create::new(Pod::kind(), &observed.job.meta.namespace, body)
    };
    match indexes {
        // All pods of a NonIndexed Job have the same body.
        [None, ..] => vec![creation(pod_json(None), indexes.len()).into()],
        indexes => indexes.iter().map(|index| creation(pod_json(*index), 1).into()).collect(),
    }
}

/// Returns the patch that removes the finalizer. Upstream: `removeTrackingFinalizerPatch`.
pub(super) fn remove_finalizer(pod: &Pod) -> Patch {
    let finalizer = pod::FINALIZER;
    let body =
        format!(r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":["{finalizer}"]}}}}"#);
    Patch {
        on_error: OnError::Continue,
        ..Patch::new(wire::target(pod), PatchType::Strategic, body)
    }
}

/// Returns the deletion of a pod, with its events.
fn deletion(pod: &Pod, target: &Target) -> Delete {
    let done = format!("Deleted pod: {}", pod.meta.name);
    Delete {
        done: Some(EventRecord::normal(target.clone(), "SuccessfulDelete", done)),
        failed: Some(EventRecord::warning(
            target.clone(),
            "FailedDelete",
            "Error deleting: {error}",
        )),
        ..Delete::new(wire::target(pod))
    }
}
