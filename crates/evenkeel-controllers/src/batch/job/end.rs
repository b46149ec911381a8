//! Conditions under which a Job completes or fails.
//!
//! A Job finishes in two steps: first an interim condition (`FailureTarget`, `SuccessCriteriaMet`), then the final one
//! (`Failed`, `Complete`), when all pods are counted and terminal.

use super::{observed::Observed, pod, policy, policy::PodFailurePolicyAction};
use evenkeel_api::{
    Text,
    time::{SignedDuration, Timestamp},
    views::{Job, JobCondition},
};
use std::time::Duration;

/// Condition with which a Job finishes. Upstream: `finishedCondition`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FinishedCondition {
    /// `Complete` rather than `Failed`.
    pub(super) complete: bool,
    /// The condition's reason.
    pub(super) reason: Text,
    /// The condition's message.
    pub(super) message: Text,
    /// Whether the status has the interim condition.
    pub(super) announced: bool,
}

impl FinishedCondition {
    /// Returns the type of the interim condition.
    pub(super) fn interim(&self) -> &'static str {
        if self.complete { "SuccessCriteriaMet" } else { "FailureTarget" }
    }

    /// Returns the type of the final condition.
    pub(super) fn last(&self) -> &'static str {
        if self.complete { "Complete" } else { "Failed" }
    }

    /// Returns the condition of a Job that reached `completions`.
    pub(super) fn completed() -> Self {
        Self::success("CompletionsReached", "Reached expected number of succeeded pods")
    }

    fn success(reason: &str, message: &str) -> Self {
        Self { complete: true, ..Self::failure(reason, message) }
    }

    fn failure(reason: &str, message: &str) -> Self {
        Self { complete: false, reason: reason.into(), message: message.into(), announced: false }
    }

    fn of_condition(complete: bool, condition: &JobCondition) -> Self {
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        Self { complete, reason, message, announced: true }
    }
}

/// Whether the status has a final condition. Upstream: `IsJobFinished`.
pub(crate) fn is_finished(job: &Job) -> bool {
    finished(job).is_some()
}

/// Whether the controller ignores the Job: it is finished, another controller manages it, or its selector is invalid.
pub(super) fn is_ignored(job: &Job) -> bool {
    is_finished(job) || is_managed_elsewhere(job) || job.spec.selector.error().is_some()
}

/// Whether `managedBy` names another controller (KEP-4368). Upstream: `JobControllerName`.
pub(super) fn is_managed_elsewhere(job: &Job) -> bool {
    !matches!(&*job.spec.managed_by, "" | "kubernetes.io/job-controller")
}

/// Returns the final condition.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    true_condition(job, "Complete").or_else(|| true_condition(job, "Failed"))
}

fn true_condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    job.status.conditions.iter().find(|c| &*c.type_ == type_ && &*c.status == "True")
}

/// Returns the condition with which the Job finishes: by the interim condition, a failure, or the success policy.
/// After pods were created and deleted, `status` checks whether `completions` is reached. Upstream: `syncJob`.
pub(super) fn finished_condition(observed: &Observed, now: Timestamp) -> Option<FinishedCondition> {
    let job = &*observed.job;
    let announced = |complete, type_| {
        true_condition(job, type_).map(|c| FinishedCondition::of_condition(complete, c))
    };
    announced(true, "SuccessCriteriaMet")
        .or_else(|| announced(false, "FailureTarget"))
        .or_else(|| failed_by_policy(observed))
        .or_else(|| failed_by_limit(observed, now))
        .or_else(|| failed_by_indexes(observed))
        .or_else(|| {
            let succeeded = &observed.counts.indexes.as_ref()?.succeeded;
            let message = policy::match_success_policy(job, pod::completions(job), succeeded)?;
            Some(FinishedCondition::success("SuccessPolicy", &message))
        })
}

/// Returns the failure by a rule of `podFailurePolicy` with the action `FailJob`. Upstream:
/// `getFailJobMessage`.
fn failed_by_policy(observed: &Observed) -> Option<FinishedCondition> {
    let job = &*observed.job;
    let failed = observed.pods.owned.iter().filter(|pod| pod::has_failed(pod, job));
    failed.map(|pod| policy::match_pod_failure_policy(job, pod)).find_map(|action| match action {
        PodFailurePolicyAction::FailJob(message) => {
            Some(FinishedCondition::failure("PodFailurePolicy", &message))
        }
        _ => None,
    })
}

/// Returns the failure by `backoffLimit` or `activeDeadlineSeconds`. Upstream: `pastBackoffLimitOnFailure`,
/// `pastActiveDeadline`.
fn failed_by_limit(observed: &Observed, now: Timestamp) -> Option<FinishedCondition> {
    let job = &*observed.job;
    let limit = job.spec.backoff_limit.map_or(6, i64::from);
    let failed = i64::try_from(observed.counts.failed).unwrap_or(i64::MAX);
    if failed > limit || restarted_too_often(observed, limit) {
        let message = "Job has reached the specified backoff limit";
        return Some(FinishedCondition::failure("BackoffLimitExceeded", message));
    }
    active_deadline_left(job, now).filter(Duration::is_zero).map(|_| {
        FinishedCondition::failure(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        )
    })
}

/// Whether restarts in place (`restartPolicy: OnFailure`) reach `backoffLimit`, or 1 if it is 0. Upstream:
/// `pastBackoffLimitOnFailure`.
fn restarted_too_often(observed: &Observed, limit: i64) -> bool {
    let restarts: i64 = observed.pods.owned.iter().map(|pod| pod::restarts(pod)).sum();
    restarts >= limit.max(1)
}

/// Returns the rest of `activeDeadlineSeconds`, zero once it has passed; `None` without a deadline or while
/// suspended.
pub(super) fn active_deadline_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let (seconds, since) =
        (job.spec.active_deadline_seconds?, job.status.start_time.unwrap_or(now));
    if job.spec.suspend {
        return None;
    }
    let remaining = SignedDuration::from_secs(seconds).saturating_sub(now.duration_since(since));
    Some(Duration::try_from(remaining).unwrap_or(Duration::ZERO))
}

/// Returns the failure by `maxFailedIndexes`, or because all indexes finished and some failed.
fn failed_by_indexes(observed: &Observed) -> Option<FinishedCondition> {
    let (job, indexes) = (&*observed.job, observed.counts.indexes.as_ref()?);
    let failed = indexes.failed()?.total();
    let limit = job.spec.max_failed_indexes.and_then(|limit| usize::try_from(limit).ok());
    if limit.is_some_and(|limit| failed > limit) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(FinishedCondition::failure("MaxFailedIndexesExceeded", message));
    }
    let finished_indexes = failed + indexes.succeeded.total();
    let all = failed > 0 && finished_indexes >= pod::completions(job) as usize;
    all.then(|| FinishedCondition::failure("FailedIndexes", "Job has failed indexes"))
}
