//! Whether a Job is to end, and how.
//!
//! An end is told in two steps: an interim condition (`FailureTarget`, `SuccessCriteriaMet`) at once, the final one
//! (`Failed`, `Complete`) when all pods are counted and gone.

use super::{pod, policy, policy::Meaning, seen::Seen};
use evenkeel_api::{
    Text,
    time::{SignedDuration, Timestamp},
    views::{Job, JobCondition},
};
use std::time::Duration;

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// Whether it is complete rather than failed.
    pub(super) complete: bool,
    /// Why, in one word.
    pub(super) reason: Text,
    /// Why, for people.
    pub(super) message: Text,
    /// Whether the Job's status has the interim condition already.
    pub(super) announced: bool,
}

impl End {
    /// Type of the interim condition.
    pub(super) fn interim(&self) -> &'static str {
        if self.complete { "SuccessCriteriaMet" } else { "FailureTarget" }
    }

    /// Type of the final condition.
    pub(super) fn last(&self) -> &'static str {
        if self.complete { "Complete" } else { "Failed" }
    }

    /// As many pods succeeded as were asked for.
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

/// Whether its status says that the Job has ended.
pub(crate) fn is_finished(job: &Job) -> bool {
    finished(job).is_some()
}

/// Whether the Job is none of this controller's business: it has ended, somebody else looks after it, or nobody can tell
/// which pods are its.
pub(super) fn is_left_alone(job: &Job) -> bool {
    is_finished(job) || is_managed_elsewhere(job) || job.spec.selector.error().is_some()
}

/// Whether somebody else looks after the Job (KEP-4368).
pub(super) fn is_managed_elsewhere(job: &Job) -> bool {
    !matches!(&*job.spec.managed_by, "" | "kubernetes.io/job-controller")
}

/// The condition that says that the Job has ended.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    holds(job, "Complete").or_else(|| holds(job, "Failed"))
}

fn holds<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    job.status.conditions.iter().find(|c| &*c.type_ == type_ && &*c.status == "True")
}

/// How the Job ends by what was seen, if it does: as was said before, or because something failed, or because enough of
/// its indexes succeeded. That all have succeeded shows only after pods were made or deleted.
pub(super) fn end(seen: &Seen, now: Timestamp) -> Option<End> {
    let job = &*seen.job;
    let announced = |complete, type_| holds(job, type_).map(|c| End::of_condition(complete, c));
    announced(true, "SuccessCriteriaMet")
        .or_else(|| announced(false, "FailureTarget"))
        .or_else(|| failed_by_policy(seen))
        .or_else(|| failed_by_limit(seen, now))
        .or_else(|| failed_by_indexes(seen))
        .or_else(|| {
            let succeeded = &seen.tally.indexes.as_ref()?.succeeded;
            let message = policy::success(job, pod::completions(job), succeeded)?;
            Some(End::success("SuccessPolicy", &message))
        })
}

/// `podFailurePolicy`, where its action is `FailJob`.
fn failed_by_policy(seen: &Seen) -> Option<End> {
    let job = &*seen.job;
    let failed = seen.pods.owned.iter().filter(|pod| pod::has_failed(pod, job));
    failed.map(|pod| policy::meaning(job, pod)).find_map(|meaning| match meaning {
        Meaning::FailJob(message) => Some(End::failure("PodFailurePolicy", &message)),
        _ => None,
    })
}

/// `backoffLimit`, and `activeDeadlineSeconds`.
fn failed_by_limit(seen: &Seen, now: Timestamp) -> Option<End> {
    let job = &*seen.job;
    let limit = job.spec.backoff_limit.map_or(6, i64::from);
    let failed = i64::try_from(seen.tally.failed).unwrap_or(i64::MAX);
    if failed > limit || restarted_too_often(seen, limit) {
        let message = "Job has reached the specified backoff limit";
        return Some(End::failure("BackoffLimitExceeded", message));
    }
    active_deadline_left(job, now)
        .filter(Duration::is_zero)
        .map(|_| End::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

/// Containers that are restarted in place count by their restarts.
fn restarted_too_often(seen: &Seen, limit: i64) -> bool {
    let restarts: i64 = seen.pods.owned.iter().map(|pod| pod::restarts(pod)).sum();
    restarts >= limit.max(1)
}

/// How long the Job may still be active for (`activeDeadlineSeconds`); zero when it was long enough. A suspended Job is not
/// active.
pub(super) fn active_deadline_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let (seconds, since) =
        (job.spec.active_deadline_seconds?, job.status.start_time.unwrap_or(now));
    if job.spec.suspend {
        return None;
    }
    let left = SignedDuration::from_secs(seconds) - now.duration_since(since);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

/// `maxFailedIndexes`; or all indexes have ended, and some failed.
fn failed_by_indexes(seen: &Seen) -> Option<End> {
    let (job, indexes) = (&*seen.job, seen.tally.indexes.as_ref()?);
    let failed = indexes.failed()?.total();
    let limit = job.spec.max_failed_indexes.and_then(|limit| usize::try_from(limit).ok());
    if limit.is_some_and(|limit| failed > limit) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(End::failure("MaxFailedIndexesExceeded", message));
    }
    let ended = failed + indexes.succeeded.total();
    let all = failed > 0 && ended >= pod::completions(job) as usize;
    all.then(|| End::failure("FailedIndexes", "Job has failed indexes"))
}
