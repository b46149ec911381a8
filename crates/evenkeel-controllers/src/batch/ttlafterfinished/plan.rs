//! Time at which a finished Job is deleted.

use crate::{batch::job, wire};
use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::Job,
};
use evenkeel_runtime::plan::{Delete, Plan, Propagation};
use std::time::Duration;

/// Returns the time of deletion: the finish time plus `ttlSecondsAfterFinished`. `None` if the Job is not finished, has
/// no TTL, or is being deleted. Upstream: `timeLeft`.
pub(super) fn expiry(job: &Job) -> Option<Timestamp> {
    if job.meta.deleting() {
        return None;
    }
    let ttl = job.spec.ttl_seconds_after_finished?;
    let finished_at = job::final_condition(job)?.last_transition_time?;
    finished_at.checked_add(SignedDuration::from_secs(ttl.into())).ok()
}

/// Deletes an expired Job in the foreground. The resource version is a precondition, because the TTL may have
/// changed. A conflict counts as success: the event of the change enqueues the Job again. Upstream: `processJob`,
/// which reads the Job live instead.
pub(super) fn plan(job: &Job, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(expires_at) = expiry(job) else { return plan };
    match Duration::try_from(expires_at.duration_since(now)) {
        Ok(remaining) if !remaining.is_zero() => plan.requeue_after(remaining),
        _ => plan.push(Delete {
            propagation: Some(Propagation::Foreground),
            tolerates: &[409],
            resource_version: Some((&*job.meta.resource_version).into()),
            ..Delete::new(wire::target(job))
        }),
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, object};
    use evenkeel_runtime::plan::Action;
    use serde_json::json;

    fn job(ttl: Option<i32>, condition: &str, since: i64) -> Job {
        object(&json!({
            "metadata": { "name": "work", "namespace": "ns", "uid": "u", "resourceVersion": "7" },
            "spec": { "ttlSecondsAfterFinished": ttl },
            "status": { "conditions": [
                { "type": condition, "status": "True", "lastTransitionTime": at(since).to_string() }
            ] },
        }))
    }

    #[test]
    fn finished_job_is_deleted_after_its_ttl() {
        for (ttl, condition, since, wait) in [
            (Some(100), "Complete", 0, Some(100)),
            (Some(100), "Failed", -40, Some(60)),
            (Some(100), "Suspended", -200, None),
            (None, "Complete", -200, None),
        ] {
            let plan = plan(&job(ttl, condition, since), T0);
            let wait = wait.map(Duration::from_secs);
            assert_eq!(
                (plan.requeue, plan.actions.len()),
                (wait, 0),
                "{ttl:?} {condition} {since}"
            );
        }
        for (ttl, since) in [(0, 0), (100, -100), (100, -5000)] {
            let plan = plan(&job(Some(ttl), "Complete", since), T0);
            let [Action::Delete(delete)] = &plan.actions[..] else { panic!("{plan:?}") };
            assert_eq!(delete.propagation, Some(Propagation::Foreground));
            assert_eq!(delete.resource_version.as_deref(), Some("7"));
            assert_eq!((&*delete.target.uid, delete.tolerates), ("u", &[409][..]));
        }
    }

    #[test]
    fn job_that_is_being_deleted_is_skipped() {
        let mut job = job(Some(0), "Complete", -1);
        job.meta.deletion = Some(T0);
        assert!(plan(&job, T0).is_nothing());
    }
}
