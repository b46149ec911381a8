//! CronJob controller: creates Jobs on a schedule. Upstream: `pkg/controller/cronjob`.

mod history;
mod observed;
mod plan;
mod run;
mod status;
#[cfg(test)]
mod tests;
mod times;

use crate::{
    options::Workers,
    owned::{ByController, resolve_controller_ref},
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    time::{TimeZone, Timestamp},
    views::{CronJob, Job},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::Enqueue,
    metrics,
    plan::{Key, Outcomes, Plan, Planner},
};
use observed::Observed;
use prometheus::Histogram;
use run::Run;
use times::ZonedSchedule;

/// Number of CronJobs that are reconciled concurrently. Flag `--concurrent-cron-job-syncs`. Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-cron-job-syncs";

/// The controller of CronJobs.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "cronjob-controller",
    aliases: &["cronjob"],
    queue: "cronjob",
    client: "cronjob-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let crons = context.env.caches.of::<CronJob>();
    let jobs = context.env.caches.of::<Job>();
    let clock = context.env.clock.clone();
    let local_zone = clock.local_zone();
    let event_zone = local_zone.clone();
    let creation_skew = register_creation_skew(context);
    let job_owners = crons.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &crons, move |event, enqueue| {
            on_cron_job(event, &event_zone, clock.now(), enqueue);
        })
        .workers(context.options.cronjob.concurrent_syncs)
        .owns(&jobs)
        .watches(&jobs, move |event, _| {
            if let CacheEvent::Added { object: job, initial: false } = event {
                observe_creation_skew(&creation_skew, &job_owners, job);
            }
        });
    let owned_jobs = ByController::of(&jobs);
    context.run(builder.planned(CronJobs { crons, jobs, owned_jobs, local_zone }));
    Ok(Started::Yes)
}

/// Enqueues a CronJob immediately. After a change of its schedule, enqueues it at the next scheduled time. Upstream:
/// `updateCronJob`.
fn on_cron_job(
    event: &CacheEvent<CronJob>,
    local_zone: &TimeZone,
    now: Timestamp,
    enqueue: &Enqueue,
) {
    let key = Key::of(&event.object().meta);
    if let CacheEvent::Updated { old, new } = event
        && (&old.spec.schedule, &old.spec.time_zone) != (&new.spec.schedule, &new.spec.time_zone)
        && let Ok(schedule) = ZonedSchedule::of(new, local_zone)
        && let Some(delay) = schedule.until_next(new, now)
    {
        return enqueue.add_after(key, delay);
    }
    enqueue.add(key);
}

/// Registers the histogram of the times from a Job's scheduled time to its creation.
fn register_creation_skew(context: &ControllerContext) -> Histogram {
    let help = "Time between when a cronjob is scheduled to be run, and when the corresponding job is created";
    let name = "cronjob_controller_job_creation_skew_duration_seconds";
    metrics::histogram(&context.registry, name, help, &metrics::exponential(1.0, 2.0, 10))
}

/// Observes the time from a Job's scheduled time to its creation.
fn observe_creation_skew(creation_skew: &Histogram, crons: &Cache<CronJob>, job: &Job) {
    if let Some(owner) = job.meta.controller()
        && let Some(cron) = resolve_controller_ref(crons, &job.meta.namespace, owner)
        && let Some(run) = Run::of(&cron, job)
        && let Some(created) = job.meta.creation
    {
        creation_skew.observe(created.duration_since(run.at).as_secs_f64());
    }
}

/// Decides the Jobs and the status of a CronJob.
struct CronJobs {
    crons: Cache<CronJob>,
    jobs: Cache<Job>,
    owned_jobs: ByController<Job>,
    /// Time zone of schedules that name none.
    local_zone: TimeZone,
}

impl Planner for CronJobs {
    type Observed = Observed;
    /// The plan of the reconciliation in progress. The status depends on it.
    type Memory = Plan;

    fn observe(&self, key: &Key, _: &Plan) -> Option<Observed> {
        let cron = self.crons.get(&key.namespace, &key.name)?;
        let are_jobs_current = self.jobs.version() >= cron.meta.version();
        let jobs = self.owned_jobs.owned(&cron.meta.uid);
        Some(Observed::new(cron, jobs, are_jobs_current, self.local_zone.clone()))
    }

    fn plan(&self, observed: &Observed, _: &Plan, now: Timestamp) -> (Plan, Plan) {
        let plan = plan::plan(observed, now);
        (plan.clone(), plan)
    }

    fn status(&self, observed: &Observed, plan: &Plan, outcomes: &Outcomes, _: Timestamp) -> Plan {
        status::status(observed, plan, outcomes)
    }

    fn remember(&self, _: &Observed, _: &Plan, _: &Outcomes, _: Timestamp) -> Option<Plan> {
        Some(Plan::nothing())
    }
}
