//! Runs pods until enough of them have succeeded.
//!
//! That a Job gets a selector and labels of its own (`manualSelector`), and what its fields are where nobody says, is the API
//! server's part: `kinds/jobs.rs` and `kinds/defaults/apps.rs` in `evenkeel-apiserver`.
//!
//! Upstream: `pkg/controller/job`.

mod backoff;
mod end;
mod events;
mod indexes;
mod manage;
mod metrics;
mod orphans;
mod per_index;
mod plan;
mod pod;
mod policy;
mod seen;
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
use seen::Seen;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How many Jobs are worked on at the same time; `--concurrent-job-syncs`.
pub type Options = Workers<5>;

/// The flag that says so.
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

/// The gate by which a Job that is suspended loses its start time, and the API server lets its scheduling directives change.
const MUTABLE_WHILE_SUSPENDED: &str = "MutableSchedulingDirectivesForSuspendedJobs";

/// What happens to a Job's pods within this time is one pass (upstream's `syncJobBatchPeriod`).
const BATCH: Duration = Duration::from_secs(1);

/// Waits of a Job whose pass failed, and of a pod that could not be let go.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1), overall: false };

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let (jobs, pods) = (context.env.caches.of::<Job>(), context.env.caches.of::<Pod>());
    let metrics = Metrics::new(&context.registry);
    let planner = Jobs {
        jobs: jobs.clone(),
        pods: ByController::of(&pods),
        metrics: metrics.clone(),
        failures: Mutex::default(),
        forgets_start: context.gates.enabled(MUTABLE_WHILE_SUSPENDED),
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
    /// Failures as the last pass over each Job left them, and whose they are.
    failures: Mutex<HashMap<Key, (Text, Failures)>>,
    forgets_start: bool,
}

impl Jobs {
    fn failures(&self) -> MutexGuard<'_, HashMap<Key, (Text, Failures)>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Planner for Jobs {
    type Seen = Seen;

    fn observe(&self, key: &Key) -> Option<Seen> {
        let job = self.jobs.get(&key.namespace, &key.name);
        let Some(job) = job.filter(|job| !end::is_left_alone(job)) else {
            self.failures().remove(key);
            return None;
        };
        let earlier = self.failures().get(key).cloned();
        let earlier = earlier.filter(|(uid, _)| *uid == job.meta.uid).map(|(_, failures)| failures);
        let candidates = self.pods.owned_and_orphans(&job.meta.uid, &job.meta.namespace);
        Some(Seen::new(job, candidates, earlier.as_ref(), self.forgets_start))
    }

    fn plan(&self, seen: &Seen, now: Timestamp) -> Plan {
        let remembered = (seen.job.meta.uid.clone(), seen.failures.clone());
        self.failures().insert(Key::of(&seen.job.meta), remembered);
        plan::plan(seen, now)
    }

    fn preview(&self, seen: &Seen, now: Timestamp) -> Plan {
        plan::plan(seen, now)
    }

    fn status(&self, seen: &Seen, outcomes: &Outcomes, now: Timestamp) -> Plan {
        status::status(seen, outcomes, now)
    }

    fn passed(&self, seen: &Seen, pass: &Pass<'_>) {
        self.metrics.passed(seen, pass);
    }
}
