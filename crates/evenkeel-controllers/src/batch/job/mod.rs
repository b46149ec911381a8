//! Runs pods until enough of them have succeeded.
//!
//! Upstream: `pkg/controller/job`.

mod backoff;
mod end;
mod events;
mod indexes;
mod manage;
mod metrics;
mod orphans;
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
use evenkeel_api::{
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
use std::time::Duration;

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

/// What happens to a Job's pods within this time is one pass (upstream's `syncJobBatchPeriod`).
const BATCH: Duration = Duration::from_secs(1);

/// Waits of a Job whose pass failed.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1), overall: false };

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let (jobs, pods) = (context.env.caches.of::<Job>(), context.env.caches.of::<Pod>());
    let metrics = Metrics::new(&context.registry);
    let planner =
        Jobs { jobs: jobs.clone(), pods: ByController::of(&pods), metrics: metrics.clone() };
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
}

impl Planner for Jobs {
    type Seen = Seen;

    fn observe(&self, key: &Key) -> Option<Seen> {
        let job =
            self.jobs.get(&key.namespace, &key.name).filter(|job| !end::is_left_alone(job))?;
        let candidates = self.pods.owned_and_orphans(&job.meta.uid, &job.meta.namespace);
        Some(Seen::new(job, candidates))
    }

    fn plan(&self, seen: &Seen, now: Timestamp) -> Plan {
        plan::plan(seen, now)
    }

    fn status(&self, seen: &Seen, outcomes: &Outcomes, now: Timestamp) -> Plan {
        status::status(seen, outcomes, now)
    }

    fn passed(&self, seen: &Seen, pass: &Pass<'_>) {
        self.metrics.passed(seen, pass);
    }
}
