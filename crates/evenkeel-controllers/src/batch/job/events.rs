//! Which Jobs an event concerns, and how soon.

use super::{BATCH, end};
use crate::owned::resolve;
use evenkeel_api::{
    Meta,
    views::{Job, Pod},
};
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

/// Names the Jobs: the pod's own, before and after; for a pod that nobody controls, those that may adopt it.
pub(super) fn on_pod(jobs: &Cache<Job>, event: &CacheEvent<Pod>, mut enqueue: impl FnMut(Key)) {
    match event {
        CacheEvent::Added { object: pod, .. } => {
            if pod.meta.controller().is_some() {
                enqueue_owner(jobs, &pod.meta, &mut enqueue);
            } else if !pod.meta.deleting() {
                enqueue_takers(jobs, &pod.meta, &mut enqueue);
            }
        }
        CacheEvent::Updated { old, new } => {
            if old.meta.resource_version == new.meta.resource_version {
                return;
            }
            let changed_hands = old.meta.controller() != new.meta.controller();
            if changed_hands {
                enqueue_owner(jobs, &old.meta, &mut enqueue);
            }
            if new.meta.controller().is_some() {
                enqueue_owner(jobs, &new.meta, &mut enqueue);
            } else if (changed_hands || old.meta.labels != new.meta.labels) && !new.meta.deleting()
            {
                enqueue_takers(jobs, &new.meta, &mut enqueue);
            }
        }
        CacheEvent::Deleted(pod) => enqueue_owner(jobs, &pod.meta, &mut enqueue),
    }
}

fn enqueue_owner(jobs: &Cache<Job>, pod: &Meta, enqueue: &mut impl FnMut(Key)) {
    let owner = pod.controller().and_then(|owner| resolve(jobs, &pod.namespace, owner));
    if let Some(job) = owner {
        enqueue(Key::of(&job.meta));
    }
}

fn enqueue_takers(jobs: &Cache<Job>, pod: &Meta, enqueue: &mut impl FnMut(Key)) {
    if pod.labels.is_empty() {
        return;
    }
    let jobs = jobs.namespace(&pod.namespace);
    let takers = jobs.iter().filter(|job| job.spec.selector.matches(&pod.labels));
    takers.for_each(|job| enqueue(Key::of(&job.meta)));
}
