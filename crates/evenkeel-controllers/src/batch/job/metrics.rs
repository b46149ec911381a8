//! Metrics of the Job controller, with upstream's names.
//!
//! A finished Job counts when the cache receives its final status, so failed or repeated writes do not count.

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
    terminal_tracked_pods: IntCounterVec,
    failures_by_policy_action: IntCounterVec,
    jobs_managed_elsewhere: IntCounterVec,
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
            terminal_tracked_pods: counters(
                "job_controller_terminated_pods_tracking_finalizer_total",
                "The number of terminated pods (phase=Failed|Succeeded) that have the finalizer \
                 batch.kubernetes.io/job-tracking; the event label can be add or delete",
                &["event"],
            ),
            failures_by_policy_action: counters(
                "job_controller_pod_failures_handled_by_failure_policy_total",
                "The number of failed Pods handled by failure policy with respect to the failure policy action applied",
                &["action"],
            ),
            jobs_managed_elsewhere: counters(
                "job_controller_jobs_by_external_controller_total",
                "The number of Jobs managed by an external controller",
                &["controller_name"],
            ),
        }
    }

    /// Counts Jobs, pods and indexes that finished, and Jobs that external controllers manage.
    pub(super) fn observe_job(&self, event: &CacheEvent<Job>) {
        match event {
            CacheEvent::Added { object: job, .. } if end::is_managed_elsewhere(job) => {
                self.jobs_managed_elsewhere.with_label_values(&[&*job.spec.managed_by]).inc();
            }
            CacheEvent::Updated { old, new } => self.observe_progress(old, new),
            CacheEvent::Added { .. } | CacheEvent::Deleted(_) => {}
        }
    }

    /// Counts a Job that finished, and the increases of its succeeded and failed pods and indexes.
    fn observe_progress(&self, old: &Job, new: &Job) {
        let completion_mode = completion_mode(new);
        if !end::is_finished(old)
            && let Some(condition) = end::final_condition(new)
        {
            let result = if &*condition.type_ == "Complete" { "succeeded" } else { "failed" };
            self.jobs_finished
                .with_label_values(&[completion_mode, result, &*condition.reason])
                .inc();
        }
        let count_increase = |result: &str, old: i32, new: i32| {
            let increase = u64::try_from(new.saturating_sub(old)).unwrap_or(0);
            self.pods_finished.with_label_values(&[completion_mode, result]).inc_by(increase);
        };
        count_increase("succeeded", old.status.succeeded, new.status.succeeded);
        count_increase("failed", old.status.failed, new.status.failed);
        if pod::is_indexed(new) {
            self.observe_indexes(old, new);
        }
    }

    /// Counts the increases of an indexed Job's succeeded and failed indexes.
    fn observe_indexes(&self, old: &Job, new: &Job) {
        let backoff_limit =
            if new.spec.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
        let total = |text: &str| Indexes::parse(text, pod::completions(new)).total();
        let count_increase = |status: &str, old: &str, new: &str| {
            let increase = if old == new { 0 } else { total(new).saturating_sub(total(old)) };
            self.indexes_finished
                .with_label_values(&[status, backoff_limit])
                .inc_by(increase as u64);
        };
        count_increase("succeeded", &old.status.completed_indexes, &new.status.completed_indexes);
        let failed_indexes = |job: &Job| job.status.failed_indexes.clone().unwrap_or_default();
        count_increase("failed", &failed_indexes(old), &failed_indexes(new));
    }

    /// Counts pods that became terminal with the tracking finalizer, and terminal pods that lost it.
    pub(super) fn observe_pod(&self, event: &CacheEvent<Pod>) {
        let awaits_tracking = |pod: &Pod| pods::is_terminal(pod) && pod::is_tracked(pod);
        let (before, after) = match event {
            CacheEvent::Added { object, .. } => (false, awaits_tracking(object)),
            CacheEvent::Updated { old, new } => (awaits_tracking(old), awaits_tracking(new)),
            CacheEvent::Deleted(pod) => (awaits_tracking(pod), false),
        };
        match (before, after) {
            (false, true) => self.terminal_tracked_pods.with_label_values(&["add"]).inc(),
            (true, false) => self.terminal_tracked_pods.with_label_values(&["delete"]).inc(),
            _ => {}
        }
    }

    /// Counts a reconciliation, the created pods, and the failed pods by the action of the pod failure policy.
    pub(super) fn observe_pass<M>(
        &self,
        observed: &Observed,
        decision: &Decision,
        pass: &Pass<'_, M>,
    ) {
        let job = &*observed.job;
        let result = if pass.succeeded { "success" } else { "error" };
        let action = match &decision.pod_change {
            Some(PodChange::Create(_) | PodChange::BackOff(_)) => "pods_created",
            Some(PodChange::Delete(_)) => "pods_deleted",
            Some(PodChange::Nothing) => "tracking",
            None => "reconciling",
        };
        let labels = [completion_mode(job), result, action];
        self.syncs.with_label_values(&labels).inc();
        self.sync_duration.with_label_values(&labels).observe(pass.took.as_secs_f64());
        if let Some(PodChange::Create(indexes)) = &decision.pod_change {
            // Creations are the plan's last actions.
            let n_earlier_actions = observed.pods.n_actions() + decision.finalizers_to_remove.len();
            let creations = pass.outcomes.0.iter().skip(n_earlier_actions);
            let created: u64 = creations.map(|outcome| u64::from(outcome.succeeded)).sum();
            let reason = creation_reason(observed);
            self.pods_created.with_label_values(&[reason, "succeeded"]).inc_by(created);
            let failed = (indexes.len() as u64).saturating_sub(created);
            self.pods_created.with_label_values(&[reason, "failed"]).inc_by(failed);
        }
        for pod in decision.finalizers_to_remove.iter().filter(|pod| pod::has_failed(pod, job)) {
            let action = policy::match_pod_failure_policy(job, pod);
            if let Some(label) = action.metric_label() {
                self.failures_by_policy_action.with_label_values(&[label]).inc();
            }
        }
    }
}

/// Returns the metric's label `reason` of created pods.
fn creation_reason(observed: &Observed) -> &'static str {
    let has_failures = observed.counts.failed > 0;
    if has_failures && pod::replaces_only_failed(&observed.job) {
        "recreate_failed"
    } else if has_failures || observed.counts.terminating > 0 {
        "recreate_terminating_or_failed"
    } else {
        "new"
    }
}

/// Returns the metric's label `completion_mode`.
fn completion_mode(job: &Job) -> &'static str {
    if pod::is_indexed(job) { "Indexed" } else { "NonIndexed" }
}
