//! Maps events of Jobs and pods to the Jobs to enqueue, with delays.

use super::{SYNC_BATCH_PERIOD, end};
use crate::children::on_child;
use evenkeel_api::views::{Job, Pod};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::Enqueue,
    plan::Key,
};

/// Enqueues a Job immediately if it is new or deleted or its spec changed, and after the batch period if its
/// status changed. Ignores updates of finished Jobs. Upstream: `updateJob`.
pub(super) fn on_job(event: &CacheEvent<Job>, enqueue: &Enqueue) {
    let key = Key::of(&event.object().meta);
    match event {
        CacheEvent::Updated { new, .. } if end::is_finished(new) => {}
        CacheEvent::Updated { old, new } if old.meta.generation == new.meta.generation => {
            enqueue.add_after(key, SYNC_BATCH_PERIOD);
        }
        _ => enqueue.add(key),
    }
}

/// Enqueues the pod's Job, before and after an update. For an orphan, enqueues the Jobs that may adopt it. Upstream:
/// `addPod`, `updatePod`, `deletePod`.
pub(super) fn on_pod(jobs: &Cache<Job>, event: &CacheEvent<Pod>, enqueue: impl FnMut(Key)) {
    let may_adopt = |job: &Job, pod: &Pod| job.spec.selector.matches(&pod.meta.labels);
    // Every update of a pod may affect its Job.
    on_child(jobs, event, may_adopt, |_, _| true, enqueue);
}
