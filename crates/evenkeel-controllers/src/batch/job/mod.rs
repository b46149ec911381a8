//! Job controller: runs pods until enough of them have succeeded. Upstream: `pkg/controller/job`.
//!
//! The API server generates the selector and labels (unless `manualSelector` is set) and applies defaults. See `job.rs`
//! and `defaults/apps.rs` in `evenkeel-kinds`.

mod backoff;
mod end;
mod events;
mod indexes;
mod manage;
mod metrics;
mod observed;
mod orphans;
mod per_index;
mod plan;
mod pod;
mod policy;
mod status;
mod template;
#[cfg(test)]
mod tests;

pub(crate) use end::{final_condition, is_finished};

use crate::{
    options::Workers,
    owned::{ByController, resolve_controller_ref},
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use backoff::Failures;
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{Job, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner, Steps},
    queue::Backoff,
};
use metrics::Metrics;
use observed::Observed;
use orphans::OrphanPod;
use plan::Decision;
use std::time::Duration;

/// Number of Jobs that are reconciled concurrently. Flag `--concurrent-job-syncs`. Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-job-syncs";

/// The controller of Jobs.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "job-controller",
    aliases: &["job"],
    queue: "job",
    client: "job-controller",
    start,
    ..Descriptor::DEFAULTS
};

/// Feature gate that clears the start time of a suspended Job and lets its scheduling directives change.
const MUTABLE_WHILE_SUSPENDED_GATE: &str = "MutableSchedulingDirectivesForSuspendedJobs";

/// Delay from a pod's event to the reconciliation of its Job. Events within this delay cause a single reconciliation.
/// Upstream: `syncJobBatchPeriod`.
const SYNC_BATCH_PERIOD: Duration = Duration::from_secs(1);

/// Backoff of Jobs whose reconciliation failed. Upstream: `DefaultJobApiBackOff`, `MaxJobApiBackOff`.
const SYNC_BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_mins(1),
    // Each Job has its own backoff. No token bucket limits all Jobs together.
    bucket: None,
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let jobs = context.env.caches.of::<Job>();
    let pods = context.env.caches.of::<Pod>();
    let metrics = Metrics::new(&context.registry);
    let planner = Jobs {
        jobs: jobs.clone(),
        pods: ByController::of(&pods),
        clears_start_time: context.gates.enabled(MUTABLE_WHILE_SUSPENDED_GATE),
    };
    let pod_owners = jobs.clone();
    let pod_metrics = metrics.clone();
    let pass_metrics = metrics.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &jobs, move |event, enqueue| {
            metrics.observe_job(event);
            events::on_job(event, enqueue);
        })
        .workers(context.options.job.concurrent_syncs)
        .backoff(SYNC_BACKOFF)
        .stale_skips_metric("job_controller_stale_sync_skips_total")
        .watches(&pods, move |event, enqueue| {
            pod_metrics.observe_pod(event);
            events::on_pod(&pod_owners, event, |key| enqueue.add_after(key, SYNC_BATCH_PERIOD));
        });
    context.run(builder.planned_with(planner, pass_metrics));
    start_orphan_pods(context, &jobs, &pods);
    Ok(Started::Yes)
}

/// Starts the controller that removes the Job tracking finalizer from orphan pods.
fn start_orphan_pods(context: &ControllerContext, jobs: &Cache<Job>, pods: &Cache<Pod>) {
    let pods_by_job = ByController::of(pods);
    let pod_owners = jobs.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, pods, move |event, enqueue| {
            let pod = event.object();
            if !matches!(event, CacheEvent::Deleted(_)) && is_cached_orphan(&pod_owners, pod) {
                enqueue.add(Key::of(&pod.meta));
            }
        })
        .named("job-orphan-pods")
        .queue("job_orphan_pod")
        .workers(context.options.job.concurrent_syncs)
        .backoff(SYNC_BACKOFF)
        .watches(jobs, move |event, enqueue| {
            let job = event.object();
            if !matches!(event, CacheEvent::Deleted(_)) && !end::is_finished(job) {
                return;
            }
            for pod in pods_by_job.owned(&job.meta.uid).iter().filter(|pod| pod::is_tracked(pod)) {
                enqueue.add(Key::of(&pod.meta));
            }
        });
    context.run(builder.planned(OrphanPods { jobs: jobs.clone(), pods: pods.clone() }));
}

/// Decides the pods and the status of a Job.
struct Jobs {
    jobs: Cache<Job>,
    pods: ByController<Pod>,
    /// Whether [`MUTABLE_WHILE_SUSPENDED_GATE`] is enabled.
    clears_start_time: bool,
}

/// State of a Job between two reconciliations.
#[derive(Debug, Default, PartialEq)]
struct Memory {
    /// Failures as of the last reconciliation. Upstream: `podBackoffStore`.
    failures: Option<FailuresOfJob>,
    /// The decision of the reconciliation in progress. The status is computed from the same decision as the plan,
    /// because a second decision at a later time could differ.
    decision: Option<Decision>,
}

/// Failures of the Job with this uid. A later Job of the same name starts without failures.
#[derive(Debug, Clone, PartialEq)]
struct FailuresOfJob {
    uid: Text,
    failures: Failures,
}

impl PassHandler<Jobs> for Metrics {
    fn on_passed(&self, observed: &Observed, pass: &Pass<'_, Memory>) {
        if let Some(decision) = &pass.memory.decision {
            self.observe_pass(observed, decision, pass);
        }
    }
}

impl Planner for Jobs {
    type Observed = Observed;
    type Memory = Memory;

    fn observe(&self, key: &Key, memory: &Memory) -> Option<Observed> {
        let job = self.jobs.get(&key.namespace, &key.name)?;
        if end::is_ignored(&job) {
            return None;
        }
        let remembered = memory.failures.as_ref().filter(|failures| failures.uid == job.meta.uid);
        let earlier_failures = remembered.map(|remembered| &remembered.failures);
        let candidates = self.pods.owned_and_orphans(&job.meta.uid, &job.meta.namespace);
        Some(Observed::new(job, candidates, earlier_failures, self.clears_start_time))
    }

    fn plan(&self, observed: &Observed, _: &Memory, now: Timestamp) -> (Plan, Memory) {
        let decision = Decision::new(observed, now);
        let plan = plan::plan(observed, &decision, now);
        let failures = FailuresOfJob {
            uid: observed.job.meta.uid.clone(),
            failures: observed.failures.clone(),
        };
        (plan, Memory { failures: Some(failures), decision: Some(decision) })
    }

    fn status(
        &self,
        observed: &Observed,
        memory: &Memory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Plan {
        let Some(decision) = &memory.decision else { return Plan::nothing() };
        status::status(observed, decision, outcomes, now)
    }

    fn remember(
        &self,
        _: &Observed,
        memory: &Memory,
        _: &Outcomes,
        _: Timestamp,
    ) -> Option<Memory> {
        Some(Memory { failures: memory.failures.clone(), decision: None })
    }
}

/// Removes the tracking finalizer from pods whose Job no longer exists.
struct OrphanPods {
    jobs: Cache<Job>,
    pods: Cache<Pod>,
}

/// Returns whether the cached Jobs show that the pod is an orphan.
fn is_cached_orphan(jobs: &Cache<Job>, pod: &Pod) -> bool {
    orphans::is_orphan(pod, |owner| resolve_controller_ref(jobs, &pod.meta.namespace, owner))
}

impl Planner for OrphanPods {
    type Observed = OrphanPod;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<OrphanPod> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        let is_orphan = is_cached_orphan(&self.jobs, &pod);
        let owner = pod.meta.controller();
        let missing_job = owner
            .filter(|owner| resolve_controller_ref(&self.jobs, &key.namespace, owner).is_none());
        Some(OrphanPod { missing_job: missing_job.cloned(), is_orphan, pod })
    }

    fn plan(&self, orphan: &OrphanPod, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(orphan, &(), now), ())
    }

    fn next(&self, orphan: &OrphanPod, (): &(), outcomes: &Outcomes, _: Timestamp) -> Option<Plan> {
        Steps::next(outcomes, |steps| orphans::sync_orphan_pod(orphan, steps))
    }
}
