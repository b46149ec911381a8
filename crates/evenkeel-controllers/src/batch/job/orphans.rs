//! Removes the finalizer from pods whose Job is deleted or finished. No Job counts these pods any longer, and the finalizer
//! would block their deletion. Upstream: `orphanWorker`.

use super::{SYNC_BATCH_PERIOD, end, plan, pod};
use evenkeel_api::{
    OwnerReference, View,
    views::{Job, Pod},
};
use evenkeel_runtime::{
    client::Metadata,
    plan::{LiveRead, Plan, Steps},
};
use std::sync::Arc;

/// A pod that may be an orphan.
pub(super) struct OrphanPod {
    pub(super) pod: Arc<Pod>,
    /// Whether the pod has the finalizer and no cached Job counts it.
    pub(super) is_orphan: bool,
    /// The Job that controls the pod, if the cache lacks it.
    pub(super) missing_job: Option<OwnerReference>,
}

/// Returns whether the pod has the finalizer and no Job counts it; `get_job` finds the pod's owner. Upstream:
/// `syncOrphanPod`.
pub(super) fn is_orphan(
    pod: &Pod,
    get_job: impl FnOnce(&OwnerReference) -> Option<Arc<Job>>,
) -> bool {
    if !pod::is_tracked(pod) {
        return false;
    }
    let Some(owner) = pod.meta.controller() else { return true };
    if &*owner.kind != "Job" || &*owner.api_version != "batch/v1" {
        return false;
    }
    get_job(owner).is_none_or(|job| end::is_finished(&job) && !end::is_managed_elsewhere(&job))
}

/// Removes the finalizer of an orphan. If the cache lacks the Job, first reads it live, because the cache may be
/// stale. Upstream: `syncOrphanPod`.
///
/// # Errors
/// `Err` contains the plan of a live read that the runtime has not executed yet.
pub(super) fn sync_orphan_pod(orphan: &OrphanPod, steps: &mut Steps<'_>) -> Result<Plan, Plan> {
    if !orphan.is_orphan {
        return Ok(Plan::nothing());
    }
    if let Some(owner) = &orphan.missing_job {
        let namespace = &orphan.pod.meta.namespace;
        let read = LiveRead::get::<Metadata>(&Job::kind(), namespace, &owner.name);
        match steps.one(read)?.object::<Metadata>() {
            Ok(Some(job)) if job.meta.uid == owner.uid => {
                return Ok(Plan { requeue: Some(SYNC_BATCH_PERIOD), ..Plan::nothing() });
            }
            Ok(_) => {}
            Err(failure) => return Ok(Plan::failure(failure.message)),
        }
    }
    Ok(Plan::one(plan::remove_finalizer(&orphan.pod)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{meta, owned_by, pod};
    use evenkeel_runtime::plan::{Action, Failure, Outcome, Outcomes, Reply};
    use serde_json::json;

    fn job() -> Job {
        Job { meta: meta("job"), ..Job::default() }
    }

    fn tracked_pod(owner: Option<&Job>) -> Pod {
        let mut pod = pod("p", None);
        pod.meta.finalizers = Box::new([pod::FINALIZER.into()]);
        if let Some(owner) = owner {
            pod.meta.owners = owned_by(owner);
        }
        pod
    }

    #[test]
    fn orphan_has_the_finalizer_but_no_job() {
        let job = Arc::new(job());
        let (owned, without_owner) = (tracked_pod(Some(&job)), tracked_pod(None));
        assert!(!is_orphan(&owned, |_| Some(job.clone())));
        assert!(is_orphan(&owned, |_| None) && is_orphan(&without_owner, |_| None));
        assert!(!is_orphan(&pod("p", None), |_| None), "without the finalizer");
    }

    #[test]
    fn job_missing_from_the_cache_is_read_live() {
        let pod = Arc::new(tracked_pod(Some(&job())));
        let missing_job = pod.meta.controller().cloned();
        let orphan = OrphanPod { pod, is_orphan: true, missing_job };
        let next = |outcomes: Vec<Outcome>| {
            Steps::next(&Outcomes(outcomes), |steps| sync_orphan_pod(&orphan, steps))
        };
        let found = |uid: &str| Outcome {
            reply: Some(Reply::json(json!({"metadata": {"name": "job", "uid": uid}}).to_string())),
            ..Outcome::success()
        };
        let failed = |code| Outcome::failure(Failure { code, ..Failure::local("no") });
        let removes_finalizer = Some(Plan::one(plan::remove_finalizer(&orphan.pod)));
        let requeues = Some(Plan { requeue: Some(SYNC_BATCH_PERIOD), ..Plan::nothing() });
        let first = next(Vec::new()).expect("a step");
        let [Action::Read(read)] = &first.actions[..] else { panic!("{first:?}") };
        assert_eq!(read.path(), "/apis/batch/v1/namespaces/ns/jobs/job");
        let table = [
            (vec![found("job")], requeues),
            (vec![found("another")], removes_finalizer.clone()),
            (vec![failed(404)], removes_finalizer),
            (vec![failed(500)], Some(Plan::failure("no"))),
            (vec![failed(404), Outcome::success()], None),
        ];
        for (number, (outcomes, expected)) in table.into_iter().enumerate() {
            assert_eq!(next(outcomes), expected, "{number}");
        }
    }

    #[test]
    fn finalizer_is_removed_from_orphans_only() {
        let pod = Arc::new(tracked_pod(Some(&job())));
        for is_orphan in [true, false] {
            let orphan = OrphanPod { pod: pod.clone(), is_orphan, missing_job: None };
            let plan = Steps::next(&Outcomes::default(), |steps| sync_orphan_pod(&orphan, steps));
            let removes_finalizer = Plan::one(plan::remove_finalizer(&pod));
            assert_eq!(plan, Some(if is_orphan { removes_finalizer } else { Plan::nothing() }));
        }
    }
}
