//! Metrics of the Job controller, with upstream's names.
//!
//! A finished Job counts when the cache receives its final status. Failed or repeated writes thus do not count.

use super::{
    end, indexes::Indexes, manage::PodChange, observed::Observed, plan::Decision, pod, policy,
};
use crate::pods;
use evenkeel_api::views::{Job, Pod};
use evenkeel_runtime::{cache::CacheEvent, metrics, plan::Pass};
use prometheus::{HistogramVec, IntCounterVec, Registry};

/// Counters and histograms of the controller.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    syncs: IntCounterVec,
    sync_duration: HistogramVec,
    jobs_finished: IntCounterVec,
    pods_finished: IntCounterVec,
    indexes_finished: IntCounterVec,
    pods_created: IntCounterVec,
    tracked_pods: IntCounterVec,
    by_policy: IntCounterVec,
    managed_elsewhere: IntCounterVec,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counters =
            |name, help, labels: &[&str]| metrics::counters(registry, name, help, labels);
        Self {
            syncs: counters(
                "job_controller_job_syncs_total",
                "The number of job syncs",
                &["completion_mode", "result", "action"],
            ),
            sync_duration: metrics::histograms(
                registry,
                "job_controller_job_sync_duration_seconds",
                "The time it took to sync a job",
                &metrics::exponential(0.004, 2.0, 15),
                &["completion_mode", "result", "action"],
            ),
            jobs_finished: counters(
                "job_controller_jobs_finished_total",
                "The number of finished jobs",
                &["completion_mode", "result", "reason"],
            ),
            pods_finished: counters(
                "job_controller_job_pods_finished_total",
                "The number of finished Pods that are fully tracked",
                &["completion_mode", "result"],
            ),
            indexes_finished: counters(
                "job_controller_job_finished_indexes_total",
                "The number of finished indexes",
                &["status", "backoffLimit"],
            ),
            pods_created: counters(
                "job_controller_job_pods_creation_total",
                "The number of Pods created by the Job controller labelled with a reason for the Pod creation",
                &["reason", "status"],
            ),
            tracked_pods: counters(
                "job_controller_terminated_pods_tracking_finalizer_total",
                "The number of terminated pods (phase=Failed|Succeeded) that have the finalizer \
                 batch.kubernetes.io/job-tracking; the event label can be add or delete",
                &["event"],
            ),
            by_policy: counters(
                "job_controller_pod_failures_handled_by_failure_policy_total",
                "The number of failed Pods handled by failure policy with respect to the failure policy action applied",
                &["action"],
            ),
            managed_elsewhere: counters(
                "job_controller_jobs_by_external_controller_total",
                "The number of Jobs managed by an external controller",
                &["controller_name"],
            ),
        }
    }

    /// Counts Jobs, pods and indexes that finished, and Jobs of other controllers.
    pub(super) fn observe_job(&self, event: &CacheEvent<Job>) {
        match event {
            CacheEvent::Added { object: job, .. } if end::is_managed_elsewhere(job) => {
                self.managed_elsewhere.with_label_values(&[&*job.spec.managed_by]).inc();
            }
            CacheEvent::Updated { old, new } => self.observe_progress(old, new),
            CacheEvent::Added { .. } | CacheEvent::Deleted(_) => {}
        }
    }

    /// Counts the Job's end, and the increase of its succeeded and failed pods and indexes.
    fn observe_progress(&self, old: &Job, new: &Job) {
        let completion_mode = completion_mode(new);
        if let Some(condition) = end::finished(new).filter(|_| !end::is_finished(old)) {
            let result = if &*condition.type_ == "Complete" { "succeeded" } else { "failed" };
            self.jobs_finished
                .with_label_values(&[completion_mode, result, &*condition.reason])
                .inc();
        }
        let more = |result: &str, old: i32, new: i32| {
            let more = u64::try_from(new.saturating_sub(old)).unwrap_or(0);
            self.pods_finished.with_label_values(&[completion_mode, result]).inc_by(more);
        };
        more("succeeded", old.status.succeeded, new.status.succeeded);
        more("failed", old.status.failed, new.status.failed);
        if pod::is_indexed(new) {
            self.observe_indexes(old, new);
        }
    }

    fn observe_indexes(&self, old: &Job, new: &Job) {
        let limit = if new.spec.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
        let total = |text: &str| Indexes::parse(text, pod::completions(new)).total();
        let more = |status: &str, old: &str, new: &str| {
            let more = if old == new { 0 } else { total(new).saturating_sub(total(old)) };
            self.indexes_finished.with_label_values(&[status, limit]).inc_by(more as u64);
        };
        more("succeeded", &old.status.completed_indexes, &new.status.completed_indexes);
        let failed = |job: &Job| job.status.failed_indexes.clone().unwrap_or_default();
        more("failed", &failed(old), &failed(new));
    }

    /// Counts pods that became terminal with the finalizer, and terminal pods that lost it.
    pub(super) fn observe_pod(&self, event: &CacheEvent<Pod>) {
        let awaits_tracking = |pod: &Pod| pods::is_terminal(pod) && pod::is_tracked(pod);
        let (before, after) = match event {
            CacheEvent::Added { object, .. } => (false, awaits_tracking(object)),
            CacheEvent::Updated { old, new } => (awaits_tracking(old), awaits_tracking(new)),
            CacheEvent::Deleted(pod) => (awaits_tracking(pod), false),
        };
        match (before, after) {
            (false, true) => self.tracked_pods.with_label_values(&["add"]).inc(),
            (true, false) => self.tracked_pods.with_label_values(&["delete"]).inc(),
            _ => {}
        }
    }

    /// Counts a reconciliation, created pods, and pods by the action of the failure policy.
    pub(super) fn observe_pass<M>(
        &self,
        observed: &Observed,
        decision: &Decision,
        pass: &Pass<'_, M>,
    ) {
        let job = &*observed.job;
        let (outcomes, result) = (pass.outcomes, if pass.succeeded { "success" } else { "error" });
        let action = match &decision.manage {
            Some(PodChange::Create(_) | PodChange::BackOff(_)) => "pods_created",
            Some(PodChange::Delete(_)) => "pods_deleted",
            Some(PodChange::Nothing) => "tracking",
            None => "reconciling",
        };
        self.syncs.with_label_values(&[completion_mode(job), result, action]).inc();
        let took = pass.took.as_secs_f64();
        self.sync_duration.with_label_values(&[completion_mode(job), result, action]).observe(took);
        if let Some(PodChange::Create(indexes)) = &decision.manage {
            let created = outcomes
                .0
                .iter()
                .skip(observed.pods.n_actions() + decision.finalizers_to_remove.len());
            let created: u64 = created.map(|outcome| u64::from(outcome.succeeded)).sum();
            let reason = reason(observed);
            self.pods_created.with_label_values(&[reason, "succeeded"]).inc_by(created);
            let failed = (indexes.len() as u64).saturating_sub(created);
            self.pods_created.with_label_values(&[reason, "failed"]).inc_by(failed);
        }
        let failed = decision.finalizers_to_remove.iter().filter(|pod| pod::has_failed(pod, job));
        for action in failed.filter_map(|pod| policy::match_pod_failure_policy(job, pod).action()) {
            self.by_policy.with_label_values(&[action]).inc();
        }
    }
}

/// Returns the metric's label `reason` of created pods.
fn reason(observed: &Observed) -> &'static str {
    match observed.counts.failed > 0 {
        true if pod::replaces_only_failed(&observed.job) => "recreate_failed",
        false if observed.counts.terminating == 0 => "new",
        _ => "recreate_terminating_or_failed",
    }
}

fn completion_mode(job: &Job) -> &'static str {
    if pod::is_indexed(job) { "Indexed" } else { "NonIndexed" }
}
