//! TTL-after-finished controller: deletes finished Jobs after `ttlSecondsAfterFinished` (KEP-592). Upstream:
//! `pkg/controller/ttlafterfinished`.

mod plan;

use crate::{
    options::Workers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{time::Timestamp, views::Job};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    metrics,
    plan::{Key, Pass, PassHandler, Plan, Planner},
};
use prometheus::Histogram;
use std::sync::Arc;

/// Number of Jobs that are reconciled concurrently. Flag `--concurrent-ttl-after-finished-syncs`. Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-ttl-after-finished-syncs";

/// The TTL-after-finished controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ttl-after-finished-controller",
    aliases: &["ttl-after-finished"],
    queue: "ttl_jobs_to_delete",
    client: "ttl-after-finished-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let jobs = context.env.caches.of::<Job>();
    let help = "The time it took to delete the job since it became eligible for deletion";
    let name = "ttl_after_finished_controller_job_deletion_duration_seconds";
    let buckets = metrics::exponential(0.1, 2.0, 14);
    let histogram = metrics::histogram(&context.registry, name, help, &buckets);
    let builder = context
        .builder_watching(&DESCRIPTOR, &jobs, |event, enqueue| {
            let job = event.object();
            if !matches!(event, CacheEvent::Deleted(_)) && plan::expiry(job).is_some() {
                enqueue.add(Key::of(&job.meta));
            }
        })
        .workers(context.options.ttlafterfinished.concurrent_syncs);
    context.run(builder.planned_with(FinishedJobs { jobs }, DeletionDelay(histogram)));
    Ok(Started::Yes)
}

/// Histogram of the times from a Job's expiry to its deletion, in seconds.
struct DeletionDelay(Histogram);

impl PassHandler<FinishedJobs> for DeletionDelay {
    fn on_passed(&self, job: &Arc<Job>, pass: &Pass<'_>) {
        let is_deleted = pass.outcomes.0.iter().any(|outcome| outcome.succeeded > 0);
        if is_deleted
            && !pass.is_incomplete
            && let Some(expiry) = plan::expiry(job)
        {
            let delay =
                pass.planned_at.duration_since(expiry).as_secs_f64() + pass.took.as_secs_f64();
            self.0.observe(delay);
        }
    }
}

/// Planner that deletes finished Jobs.
struct FinishedJobs {
    jobs: Cache<Job>,
}

impl Planner for FinishedJobs {
    type Observed = Arc<Job>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<Job>> {
        self.jobs.get(&key.namespace, &key.name)
    }

    fn plan(&self, job: &Arc<Job>, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(job, now), ())
    }
}
