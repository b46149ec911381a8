//! Lets go of pods whose Job is gone, or has ended without them: nobody will count them any more, and with their finalizer
//! they could not be deleted.

use super::{end, plan, pod};
use crate::{
    descriptor::ControllerContext,
    owned::{ByController, resolve},
};
use evenkeel_api::{
    time::Timestamp,
    views::{Job, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::{Key, Plan, Planner},
};
use std::sync::Arc;

/// Runs it beside the controller of Jobs.
pub(super) fn start(context: &ControllerContext, jobs: &Cache<Job>, pods: &Cache<Pod>) {
    let planner = Orphans { jobs: jobs.clone(), pods: pods.clone() };
    let owned = ByController::of(pods);
    let of_pod = jobs.clone();
    let builder = context
        .builder_watching(&super::DESCRIPTOR, pods, move |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) && is_orphan(&of_pod, event.object()) {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .named("job-orphan-pods")
        .queue("job_orphan_pod")
        .watches(jobs, move |event, enqueue| {
            let job = event.object();
            let gone = matches!(event, CacheEvent::Deleted(_)) || end::is_finished(job);
            let pods = if gone { owned.owned(&job.meta.uid) } else { Vec::new() };
            let left = pods.iter().filter(|pod| pod::is_tracked(pod));
            left.for_each(|pod| enqueue.add(Key::of(&pod.meta)));
        });
    context.run(builder.planned(planner));
}

/// Whether the pod waits to be counted, and nobody does.
fn is_orphan(jobs: &Cache<Job>, pod: &Pod) -> bool {
    if !pod::is_tracked(pod) {
        return false;
    }
    let Some(owner) = pod.meta.controller() else { return true };
    if &*owner.kind != "Job" || &*owner.api_version != "batch/v1" {
        return false;
    }
    let job = resolve(jobs, &pod.meta.namespace, owner);
    job.is_none_or(|job| end::is_finished(&job) && !end::is_managed_elsewhere(&job))
}

struct Orphans {
    jobs: Cache<Job>,
    pods: Cache<Pod>,
}

impl Planner for Orphans {
    type Seen = Arc<Pod>;

    fn observe(&self, key: &Key) -> Option<Arc<Pod>> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        is_orphan(&self.jobs, &pod).then_some(pod)
    }

    fn plan(&self, pod: &Arc<Pod>, _: Timestamp) -> Plan {
        Plan { actions: vec![plan::untrack(pod).into()], requeue: None }
    }
}
