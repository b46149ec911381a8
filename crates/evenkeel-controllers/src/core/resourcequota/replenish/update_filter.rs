//! Resources that quotas can limit, and updates after which the usage of quotas is recalculated. Upstream:
//! `DefaultUpdateFilter`.

use evenkeel_api::{
    time::Timestamp,
    views::{ContainerStatus, PersistentVolumeClaim, Pod, Service},
};
use evenkeel_component_helpers::quota::{
    Evaluator, is_charged, is_terminating, service_type, volume_classes,
};
use evenkeel_runtime::discovery::Resource;
use std::any::Any;

/// Returns whether quotas can limit the resource: its objects have a namespace, can be created, deleted and watched,
/// and are counted.
pub(super) fn is_countable(resource: &Resource) -> bool {
    resource.kind.namespaced
        && ["create", "delete", "list", "watch"].iter().all(|verb| resource.supports_verb(verb))
        && Evaluator::new(&resource.kind.group, &resource.kind.plural).is_some()
}

/// Returns whether an update may decrease the usage. Upstream: `DefaultUpdateFilter`.
pub(in crate::core::resourcequota) fn may_decrease_usage(
    old: &dyn Any,
    new: &dyn Any,
    now: Timestamp,
) -> bool {
    /// Returns both objects if they have the type `T`.
    fn downcast_both<'a, T: 'static>(old: &'a dyn Any, new: &'a dyn Any) -> Option<(&'a T, &'a T)> {
        old.downcast_ref().zip(new.downcast_ref())
    }
    if let Some((old, new)) = downcast_both::<Pod>(old, new) {
        pod_may_decrease_usage(old, new, now)
    } else if let Some((old, new)) = downcast_both::<Service>(old, new) {
        service_type(old) != service_type(new)
    } else if let Some((old, new)) = downcast_both::<PersistentVolumeClaim>(old, new) {
        // A requested size may decrease after a failed expansion (KEP-1790).
        let storage = |claim: &PersistentVolumeClaim| {
            let amounts = [&claim.spec.resources.requests, &claim.status.allocated_resources];
            amounts.map(|amounts| amounts.get("storage").copied())
        };
        storage(old) != storage(new) || volume_classes(old) != volume_classes(new)
    } else {
        false
    }
}

/// Returns whether an update of a pod may decrease the usage of a quota.
fn pod_may_decrease_usage(old: &Pod, new: &Pod, now: Timestamp) -> bool {
    let resources_changed = |old: &[ContainerStatus], new: &[ContainerStatus]| {
        old.iter().any(|old| {
            let status = new.iter().find(|new| new.name == old.name);
            status.is_some_and(|new| new.resources != old.resources)
        })
    };
    resources_changed(&old.status.container_statuses, &new.status.container_statuses)
        || resources_changed(
            &old.status.init_container_statuses,
            &new.status.init_container_statuses,
        )
        || is_terminating(old) != is_terminating(new)
        || is_charged(old, now) && !is_charged(new, now)
}
