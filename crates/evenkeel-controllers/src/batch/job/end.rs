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

/// Type of the interim condition of a Job that completes.
const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
/// Type of the interim condition of a Job that fails.
const FAILURE_TARGET: &str = "FailureTarget";

impl FinishedCondition {
    /// Returns the type of the interim condition.
    pub(super) fn interim_type(&self) -> &'static str {
        if self.complete { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET }
    }

    /// Returns the type of the final condition.
    pub(super) fn final_type(&self) -> &'static str {
        if self.complete { "Complete" } else { "Failed" }
    }

    /// Returns the condition of a Job that reached `completions`.
    pub(super) fn completed() -> Self {
        Self::success("CompletionsReached", "Reached expected number of succeeded pods")
    }

    /// Returns the condition of a successful Job, which the status does not have yet.
    fn success(reason: &str, message: &str) -> Self {
        Self { complete: true, ..Self::failure(reason, message) }
    }

    /// Returns the condition of a failed Job, which the status does not have yet.
    fn failure(reason: &str, message: &str) -> Self {
        Self { complete: false, reason: reason.into(), message: message.into(), announced: false }
    }

    /// Returns the condition that the status announces by an interim condition.
    fn announced_by(job: &Job) -> Option<Self> {
        let interim = true_condition(job, SUCCESS_CRITERIA_MET)
            .or_else(|| true_condition(job, FAILURE_TARGET))?;
        Some(Self {
            complete: &*interim.type_ == SUCCESS_CRITERIA_MET,
            reason: interim.reason.clone(),
            message: interim.message.clone(),
            announced: true,
        })
    }
}

/// Returns whether the status has a final condition. Upstream: `IsJobFinished`.
pub(crate) fn is_finished(job: &Job) -> bool {
    final_condition(job).is_some()
}

/// Returns whether the controller ignores the Job: it is finished, another controller manages it, or its selector is
/// invalid.
pub(super) fn is_ignored(job: &Job) -> bool {
    is_finished(job) || is_managed_elsewhere(job) || job.spec.selector.error().is_some()
}

/// Returns whether `managedBy` names another controller (KEP-4368). Upstream: `JobControllerName`.
pub(super) fn is_managed_elsewhere(job: &Job) -> bool {
    !matches!(&*job.spec.managed_by, "" | "kubernetes.io/job-controller")
}

/// Returns the final condition in the status, `Complete` or `Failed`, if it is true.
pub(crate) fn final_condition(job: &Job) -> Option<&JobCondition> {
    true_condition(job, "Complete").or_else(|| true_condition(job, "Failed"))
}

/// Returns the condition of this type if its status is `True`.
fn true_condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    job.status
        .conditions
        .iter()
        .find(|condition| &*condition.type_ == type_ && &*condition.status == "True")
}

/// Returns the condition with which the Job finishes. An interim condition decides first, then a failure, then the
/// success policy. The module `status` decides later, after the pods are created and deleted, whether enough of them
/// succeeded (`completions`). Upstream: `syncJob`.
pub(super) fn finished_condition(observed: &Observed, now: Timestamp) -> Option<FinishedCondition> {
    FinishedCondition::announced_by(&observed.job)
        .or_else(|| failed_by_policy(observed))
        .or_else(|| failed_by_limit(observed, now))
        .or_else(|| failed_by_indexes(observed))
        .or_else(|| succeeded_by_policy(observed))
}

/// Returns a condition of success if a rule of `successPolicy` matches.
fn succeeded_by_policy(observed: &Observed) -> Option<FinishedCondition> {
    let job = &*observed.job;
    let succeeded = &observed.counts.indexes.as_ref()?.succeeded;
    let message = policy::match_success_policy(job, pod::completions(job), succeeded)?;
    Some(FinishedCondition::success("SuccessPolicy", &message))
}

/// Returns a condition of failure if a rule of `podFailurePolicy` with the action `FailJob` matches. Upstream:
/// `getFailJobMessage`.
fn failed_by_policy(observed: &Observed) -> Option<FinishedCondition> {
    let job = &*observed.job;
    for pod in observed.pods.owned.iter().filter(|pod| pod::has_failed(pod, job)) {
        let action = policy::match_pod_failure_policy(job, pod);
        if let PodFailurePolicyAction::FailJob(message) = action {
            return Some(FinishedCondition::failure("PodFailurePolicy", &message));
        }
    }
    None
}

/// Returns a condition of failure if the Job exceeds `backoffLimit` or `activeDeadlineSeconds`. Upstream:
/// `pastBackoffLimitOnFailure`, `pastActiveDeadline`.
fn failed_by_limit(observed: &Observed, now: Timestamp) -> Option<FinishedCondition> {
    let job = &*observed.job;
    let limit = job.spec.backoff_limit.map_or(6, i64::from);
    let failed = i64::try_from(observed.counts.failed).unwrap_or(i64::MAX);
    if failed > limit || past_backoff_limit_on_failure(observed, limit) {
        let message = "Job has reached the specified backoff limit";
        return Some(FinishedCondition::failure("BackoffLimitExceeded", message));
    }
    if active_deadline_left(job, now) == Some(Duration::ZERO) {
        let message = "Job was active longer than specified deadline";
        return Some(FinishedCondition::failure("DeadlineExceeded", message));
    }
    None
}

/// Returns whether restarts in place (`restartPolicy: OnFailure`) reach `backoffLimit`, or 1 if it is 0. Upstream:
/// `pastBackoffLimitOnFailure`.
fn past_backoff_limit_on_failure(observed: &Observed, limit: i64) -> bool {
    let restarts: i64 = observed.pods.owned.iter().map(|pod| pod::restart_count(pod)).sum();
    restarts >= limit.max(1)
}

/// Returns the rest of `activeDeadlineSeconds`, zero once it has passed, or `None` without a deadline or while
/// suspended.
pub(super) fn active_deadline_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let deadline = SignedDuration::from_secs(job.spec.active_deadline_seconds?);
    if job.spec.suspend {
        return None;
    }
    let active_for = now.duration_since(job.status.start_time.unwrap_or(now));
    let remaining = deadline.saturating_sub(active_for);
    Some(Duration::try_from(remaining).unwrap_or(Duration::ZERO))
}

/// Returns a condition of failure if more than `maxFailedIndexes` failed, or if all indexes finished and some failed.
fn failed_by_indexes(observed: &Observed) -> Option<FinishedCondition> {
    let job = &*observed.job;
    let indexes = observed.counts.indexes.as_ref()?;
    let failed = indexes.failed()?.total();
    let limit = job.spec.max_failed_indexes.and_then(|limit| usize::try_from(limit).ok());
    if limit.is_some_and(|limit| failed > limit) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(FinishedCondition::failure("MaxFailedIndexesExceeded", message));
    }
    let finished = failed + indexes.succeeded.total();
    if failed > 0 && finished >= pod::completions(job) as usize {
        return Some(FinishedCondition::failure("FailedIndexes", "Job has failed indexes"));
    }
    None
}
