//! Which Jobs an event concerns, and how soon.

use super::{BATCH, end};
use crate::children::on_child;
use evenkeel_api::views::{Job, Pod};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::Enqueue,
    plan::Key,
};

/// A new Job and a changed spec are looked at now; a changed status when more may have happened to the pods.
pub(super) fn on_job(event: &CacheEvent<Job>, enqueue: &Enqueue) {
    let key = Key::of(&event.object().meta);
    match event {
        CacheEvent::Updated { new, .. } if end::is_finished(new) => {}
        CacheEvent::Updated { old, new } if old.meta.generation == new.meta.generation => {
            enqueue.add_after(key, BATCH);
        }
        _ => enqueue.add(key),
    }
}

/// The pod's own Job, before and after; for a pod that nobody controls, those that may adopt it. Whatever happens to a pod
/// may change what it counts as.
pub(super) fn on_pod(jobs: &Cache<Job>, event: &CacheEvent<Pod>, enqueue: impl FnMut(Key)) {
    let could_take = |job: &Job, pod: &Pod| job.spec.selector.matches(&pod.meta.labels);
    on_child(jobs, event, could_take, |_, _| true, enqueue);
}
