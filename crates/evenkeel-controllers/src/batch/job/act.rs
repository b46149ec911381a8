//! Removes the finalizer from pods whose Job is gone or finished: no Job counts them, and the finalizer would keep them
//! from being deleted. Upstream: `orphanWorker`.

use super::{BACKOFF, BATCH, end, orphans::is_orphan, plan, pod};
use crate::{
    owned::{ByController, resolve},
    wiring::descriptor::ControllerContext,
};
use evenkeel_api::{
    View,
    views::{Job, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Context, Error, Outcome, Request},
    plan::{Key, Plan},
};

/// Starts the controller of orphan pods beside that of Jobs.
pub(super) fn start(context: &ControllerContext, jobs: &Cache<Job>, pods: &Cache<Pod>) {
    let caches = OrphanCaches { jobs: jobs.clone(), pods: pods.clone() };
    let owned = ByController::of(pods);
    let of_pod = jobs.clone();
    let builder = context
        .builder_watching(&super::DESCRIPTOR, pods, move |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) && is_cached_orphan(&of_pod, event.object())
            {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .named("job-orphan-pods")
        .queue("job_orphan_pod")
        .workers(context.options.job.concurrent_syncs)
        .backoff(BACKOFF)
        .watches(jobs, move |event, enqueue| {
            let job = event.object();
            let gone = matches!(event, CacheEvent::Deleted(_)) || end::is_finished(job);
            let pods = if gone { owned.owned(&job.meta.uid) } else { Vec::new() };
            let left = pods.iter().filter(|pod| pod::is_tracked(pod));
            left.for_each(|pod| enqueue.add(Key::of(&pod.meta)));
        });
    context.run(
        builder
            .reconcile(move |request, context| sync_orphan_pod(request, context, caches.clone())),
    );
}

/// Whether the cached Job of the pod, or its absence, makes the pod an orphan.
fn is_cached_orphan(jobs: &Cache<Job>, pod: &Pod) -> bool {
    is_orphan(pod, |owner| resolve(jobs, &pod.meta.namespace, owner))
}

/// Removes the finalizer of an orphan. The Job is read live, because the cache may lack it still. Upstream:
/// `syncOrphanPod`.
async fn sync_orphan_pod(
    request: Request,
    context: Context,
    caches: OrphanCaches,
) -> Result<Outcome, Error> {
    let OrphanCaches { jobs, pods } = caches;
    let key = &request.key;
    let orphan = pods.get(&key.namespace, &key.name).filter(|pod| is_cached_orphan(&jobs, pod));
    let Some(pod) = orphan else { return Ok(Outcome::Settled) };
    if let Some(owner) = pod.meta.controller()
        && resolve(&jobs, &key.namespace, owner).is_none()
    {
        match context.env.client.get_metadata(&Job::kind(), &key.namespace, &owner.name).await {
            Ok(job) if job.meta.uid == owner.uid => return Ok(Outcome::Again(BATCH)),
            Err(error) if !error.is_not_found() => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
    }
    let plan = Plan::one(plan::untrack(&pod));
    context.act(key, &plan).await?;
    Ok(Outcome::Settled)
}

#[derive(Clone)]
struct OrphanCaches {
    jobs: Cache<Job>,
    pods: Cache<Pod>,
}
