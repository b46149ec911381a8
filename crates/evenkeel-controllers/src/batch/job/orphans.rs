//! Which pods no Job counts, so that their finalizer would keep them from being deleted.

use super::{end, pod};
use evenkeel_api::{
    OwnerReference,
    views::{Job, Pod},
};
use std::sync::Arc;

/// Whether the pod has the finalizer and no Job counts it; `job` finds the pod's owner. Upstream: `syncOrphanPod`.
pub(super) fn is_orphan(pod: &Pod, job: impl FnOnce(&OwnerReference) -> Option<Arc<Job>>) -> bool {
    if !pod::is_tracked(pod) {
        return false;
    }
    let Some(owner) = pod.meta.controller() else { return true };
    if &*owner.kind != "Job" || &*owner.api_version != "batch/v1" {
        return false;
    }
    job(owner).is_none_or(|job| end::is_finished(&job) && !end::is_managed_elsewhere(&job))
}
