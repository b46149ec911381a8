//! What a Job does about its pods: it makes them, deletes those that are too many, and lets go of those that are counted.
//!
//! No pod is lost and none counted twice. A pod of a Job has a finalizer, so that it stays when it ends or is deleted. First
//! its uid goes into the status as uncounted, then the finalizer is taken off it, then it moves to the status' numbers:
//! whatever is interrupted can be read off what stands there. Each pass does the next step of each pod.
//!
//! | documented | where |
//! |---|---|
//! | `parallelism`, `completions`, work queues without `completions` | `manage::wanted` |
//! | `completionMode`: `Indexed`, `batch.kubernetes.io/job-completion-index`, `JOB_COMPLETION_INDEX` | `pod::is_indexed`, `manage::pending`, `template::with_index` |
//! | `suspend`, `status.startTime`, condition `Suspended` | `manage::manage`, `status::tell_suspension` |
//! | `backoffLimit`, restarts in place (`restartPolicy`: `OnFailure`) | `end::failed_by_limit`, `end::restarted_too_often` |
//! | the back-off of 10 s, 20 s, 40 s, … | `backoff::Failures` |
//! | `activeDeadlineSeconds` | `end::active_deadline_left` |
//! | `backoffLimitPerIndex`, `status.failedIndexes` | `per_index::PerIndex`, `manage::replace_by_index` |
//! | `maxFailedIndexes` | `end::failed_by_indexes` |
//! | `podFailurePolicy`: `FailJob`, `FailIndex`, `Ignore`, `Count` | `policy::meaning` |
//! | `successPolicy` | `policy::success` |
//! | `podReplacementPolicy`: `Failed`, `TerminatingOrFailed` | `pod::replaces_only_failed`, `pod::has_failed`, `manage::manage` |
//! | `managedBy` | `end::is_managed_elsewhere` |
//! | `status.uncountedTerminatedPods`, finalizer `batch.kubernetes.io/job-tracking` | `to_record`, `let_go`, `status::record`, `status::count` |
//! | conditions `SuccessCriteriaMet`, `FailureTarget`, then `Complete`, `Failed` | `end::end`, `status::finish` |
//! | pods of a Job that is gone | `orphans::is_orphan` |
//! | `ttlSecondsAfterFinished` | `../ttlafterfinished` |

use super::{
    end::{self, End},
    manage::{self, Manage},
    pod, policy,
    seen::Seen,
    template,
};
use crate::wire;
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{Job, Pod},
};
use evenkeel_runtime::plan::{
    Action, Create, Delete, Note, OnError, Patch, PatchForm, Plan, Target,
};
use std::{sync::Arc, time::Duration};

/// What is done in one pass.
#[derive(Debug)]
pub(super) struct Decision {
    /// How the Job ends, if it does.
    pub(super) end: Option<End>,
    /// Pods that are counted, or need not be: the finalizer is taken off them.
    pub(super) let_go: Vec<Arc<Pod>>,
    /// What is done about the number of pods; `None` where that is not looked at, as the Job ends or is being deleted.
    pub(super) manage: Option<Manage>,
}

impl Decision {
    pub(super) fn new(seen: &Seen, now: Timestamp) -> Self {
        let end = end::end(seen, now);
        let manage =
            (end.is_none() && !seen.job.meta.deleting()).then(|| manage::manage(seen, now));
        Self { let_go: let_go(seen, end.as_ref()), end, manage }
    }

    /// Pods that are deleted.
    pub(super) fn deletes<'a>(&'a self, seen: &'a Seen) -> &'a [Arc<Pod>] {
        match &self.manage {
            Some(Manage::Delete(pods)) => pods,
            None if self.end.is_some() => &seen.tally.active,
            _ => &[],
        }
    }
}

/// Pods that need no more counting. While an end is still to be announced, none: it may be read off these pods alone.
fn let_go(seen: &Seen, end: Option<&End>) -> Vec<Arc<Pod>> {
    if end.is_some_and(|end| !end.announced) {
        return Vec::new();
    }
    let counted = seen.own().iter().filter(|pod| {
        pod::is_tracked(pod) && may_go(seen, pod, end) && to_record(seen, pod, end).is_none()
    });
    counted.cloned().collect()
}

/// Whether the finalizer may be taken off the pod once it is counted.
pub(super) fn may_go(seen: &Seen, pod: &Pod, end: Option<&End>) -> bool {
    seen.job.meta.deleting()
        || end.is_some()
        || pod::has_succeeded(pod)
        || (pod::has_failed(pod, &seen.job) && !seen.tally.holds(pod))
}

/// How a pod is still to be recorded before it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// By its index, as succeeded.
    Index(u32),
    /// By its uid, as succeeded.
    Succeeded,
    /// By its uid, as failed.
    Failed,
}

/// How the pod is still to be recorded, if it is.
pub(super) fn to_record(seen: &Seen, pod: &Pod, end: Option<&End>) -> Option<Record> {
    let (job, uncounted) = (&*seen.job, &seen.tally.uncounted);
    let uid = &pod.meta.uid;
    if uncounted.failed.contains(uid) || !pod::counts(pod, job) {
        return None;
    }
    if pod::has_succeeded(pod) {
        let Some(indexes) = &seen.tally.indexes else {
            return (!uncounted.succeeded.contains(uid)).then_some(Record::Succeeded);
        };
        let index = pod::index(pod).filter(|index| !indexes.recorded.has(*index));
        return index.map(Record::Index);
    }
    let fails = is_failure(pod, job, end) && policy::meaning(job, pod).counts();
    fails.then_some(Record::Failed)
}

/// Whether a pod that did not succeed is a failure, which depends on how the Job stands:
///
/// | the Job | failures are |
/// |---|---|
/// | goes on, or is about to be announced as complete | pods that have failed, by `podReplacementPolicy` |
/// | is announced as complete (`SuccessCriteriaMet`) | pods that ended so: others are only stopped for it |
/// | fails, announced (`FailureTarget`) or not | all pods: those at work fail with it |
fn is_failure(pod: &Pod, job: &Job, end: Option<&End>) -> bool {
    match end {
        None | Some(End { complete: true, announced: false, .. }) => pod::has_failed(pod, job),
        Some(End { complete: true, announced: true, .. }) => &*pod.status.phase == "Failed",
        Some(End { complete: false, .. }) => true,
    }
}

/// What to do: claims, then pods that are let go, then pods made or deleted.
pub(super) fn plan(seen: &Seen, now: Timestamp) -> Plan {
    let target = wire::target(&*seen.job);
    if !seen.mode_is_known() {
        let message = "Skipped Job sync because completion mode is unknown";
        let note = Note::warning(target, "UnknownCompletionMode", message);
        return Plan { actions: vec![Action::Event(note)], requeue: None };
    }
    let decision = seen.decision(now);
    let claims = seen.pods.actions_with_finalizer(&target, pod::FINALIZER);
    let mut plan = Plan { actions: claims.collect(), requeue: None };
    plan.actions.extend(decision.let_go.iter().map(|pod| untrack(pod).into()));
    match &decision.manage {
        Some(Manage::Make(slots)) => plan.actions.extend(make(seen, &target, slots)),
        Some(Manage::Wait(time)) => plan.requeue_after(*time),
        // These pods are not to be counted at all, so that the finalizer goes first: one that was deleted with it would count
        // as failed.
        Some(Manage::Delete(pods)) => {
            let tracked = pods.iter().filter(|pod| pod::is_tracked(pod));
            plan.actions.extend(
                tracked.map(|pod| Patch { on_error: OnError::SkipRest, ..untrack(pod) }.into()),
            );
        }
        Some(Manage::Keep) | None => {}
    }
    plan.actions.extend(decision.deletes(seen).iter().map(|pod| delete(pod, &target).into()));
    if let Some(left) = end::active_deadline_left(&seen.job, now).filter(|left| !left.is_zero()) {
        plan.requeue_after(left + Duration::from_millis(1));
    }
    plan
}

fn make(seen: &Seen, target: &Target, slots: &[Option<u32>]) -> Vec<Action> {
    let body = |index: Option<u32>| {
        let replaced = index
            .and_then(|index| seen.tally.indexes.as_ref()?.to_replace(index))
            .map(|pod| &**pod);
        template::pod(&seen.job, index, replaced)
    };
    let create = |body: String, count: usize| Create {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        done: Some(Note::normal(target.clone(), "SuccessfulCreate", "Created pod: {name}")),
        failed: Some(Note::warning(target.clone(), "FailedCreate", "Error creating: {error}")),
        ..Create::new(Pod::kind(), &seen.job.meta.namespace, body)
    };
    match slots {
        [None, ..] => vec![create(body(None), slots.len()).into()],
        slots => slots.iter().map(|index| create(body(*index), 1).into()).collect(),
    }
}

/// Takes the finalizer off a pod.
pub(super) fn untrack(pod: &Pod) -> Patch {
    let finalizer = pod::FINALIZER;
    let body =
        format!(r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":["{finalizer}"]}}}}"#);
    Patch {
        on_error: OnError::Continue,
        ..Patch::new(wire::target(pod), PatchForm::Strategic, body)
    }
}

fn delete(pod: &Pod, target: &Target) -> Delete {
    let done = format!("Deleted pod: {}", pod.meta.name);
    Delete {
        done: Some(Note::normal(target.clone(), "SuccessfulDelete", done)),
        failed: Some(Note::warning(target.clone(), "FailedDelete", "Error deleting: {error}")),
        ..Delete::new(wire::target(pod))
    }
}
