//! Job controller: runs pods until enough of them have succeeded. Upstream: `pkg/controller/job`.
//!
//! The API server generates the selector and labels (`manualSelector`) and applies defaults: `kinds/jobs.rs` and
//! `kinds/defaults/apps.rs` in `evenkeel-apiserver`.

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

pub(crate) use end::{finished, is_finished};

use crate::{
    descriptor::{ControllerContext, Descriptor, StartError},
    options::Workers,
    owned::ByController,
};
use backoff::Failures;
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{Job, Pod},
};
use evenkeel_runtime::{
    cache::Cache,
    plan::{Key, Outcomes, Pass, Plan, Planner},
    queue::Backoff,
};
use metrics::Metrics;
use observed::Observed;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Number of Jobs processed concurrently; `--concurrent-job-syncs`.
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
    ..Descriptor::ORDINARY
};

/// Feature gate that clears the start time of a suspended Job and lets its scheduling directives change.
const MUTABLE_WHILE_SUSPENDED: &str = "MutableSchedulingDirectivesForSuspendedJobs";

/// Events of a Job's pods within this time lead to one reconciliation. Upstream: `syncJobBatchPeriod`.
const BATCH: Duration = Duration::from_secs(1);

/// Backoff of failed reconciliations. Upstream: `DefaultJobApiBackOff`, `MaxJobApiBackOff`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_mins(1),
    bucket: false,
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let (jobs, pods) = (context.env.caches.of::<Job>(), context.env.caches.of::<Pod>());
    let metrics = Metrics::new(&context.registry);
    let planner = Jobs {
        jobs: jobs.clone(),
        pods: ByController::of(&pods),
        metrics: metrics.clone(),
        failures: Mutex::default(),
        clears_start_time: context.gates.enabled(MUTABLE_WHILE_SUSPENDED),
    };
    let (of_pods, counted) = (jobs.clone(), metrics.clone());
    let builder = context
        .builder_watching(&DESCRIPTOR, &jobs, move |event, enqueue| {
            metrics.see_job(event);
            events::on_job(event, enqueue);
        })
        .workers(context.options.job.concurrent_syncs)
        .backoff(BACKOFF)
        .stale_skips_metric("job_controller_stale_sync_skips_total")
        .watches(&pods, move |event, enqueue| {
            counted.see_pod(event);
            events::on_pod(&of_pods, event, |key| enqueue.add_after(key, BATCH));
        });
    context.run(builder.planned(planner));
    orphans::start(context, &jobs, &pods);
    Ok(())
}

struct Jobs {
    jobs: Cache<Job>,
    pods: ByController<Pod>,
    metrics: Metrics,
    /// Failures as of the last reconciliation of each Job, with the Job's uid. Upstream: `podBackoffStore`.
    failures: Mutex<HashMap<Key, (Text, Failures)>>,
    clears_start_time: bool,
}

impl Jobs {
    fn failures(&self) -> MutexGuard<'_, HashMap<Key, (Text, Failures)>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Planner for Jobs {
    type Seen = Observed;

    fn observe(&self, key: &Key) -> Option<Observed> {
        let job = self.jobs.get(&key.namespace, &key.name);
        let Some(job) = job.filter(|job| !end::is_left_alone(job)) else {
            self.failures().remove(key);
            return None;
        };
        let earlier = self.failures().get(key).cloned();
        let earlier = earlier.filter(|(uid, _)| *uid == job.meta.uid).map(|(_, failures)| failures);
        let candidates = self.pods.owned_and_orphans(&job.meta.uid, &job.meta.namespace);
        Some(Observed::new(job, candidates, earlier.as_ref(), self.clears_start_time))
    }

    fn plan(&self, observed: &Observed, now: Timestamp) -> Plan {
        let remembered = (observed.job.meta.uid.clone(), observed.failures.clone());
        self.failures().insert(Key::of(&observed.job.meta), remembered);
        plan::plan(observed, now)
    }

    fn preview(&self, observed: &Observed, now: Timestamp) -> Plan {
        plan::plan(observed, now)
    }

    fn status(&self, observed: &Observed, outcomes: &Outcomes, now: Timestamp) -> Plan {
        status::status(observed, outcomes, now)
    }

    fn passed(&self, observed: &Observed, pass: &Pass<'_>) {
        self.metrics.passed(observed, pass);
    }
}
