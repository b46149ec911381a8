//! Queueing hint for changes that may free resources for the pod.

use evenkeel_api::views::{DeviceClass, Node};
use std::sync::Arc;

use crate::{
    framework::{Change, Delta, ObjectChange, QueueingHint},
    plugins::resource_classes::implicit_resource_name,
    pod::PodInfo,
    resources::Resources,
};

/// Function that reports whether devices provide a resource on nodes that do not advertise it.
type DevicesProvide<'a> = &'a dyn Fn(&str) -> bool;

/// Returns `Queue` in three cases: a node has more of a requested resource and would fit the pod if the node were
/// empty; another pod now requests less; or a DeviceClass now provides a requested resource.
///
/// Upstream: `isSchedulableAfterNodeChange`, `isSchedulableAfterAssignedPodScaleDown`,
/// `isSchedulableAfterDeviceClassEvent`.
pub(super) fn hint(
    pod: &PodInfo,
    change: &Change,
    devices_provide: DevicesProvide<'_>,
) -> QueueingHint {
    let requests = &pod.requirements.requests;
    match change {
        Change::Node(edit) => {
            let Some(new) = edit.after() else { return QueueingHint::Skip };
            let new = Allocatable::of(new);
            let has_increased = || match edit.before() {
                Some(old) => new.has_increased(&Allocatable::of(old), requests, devices_provide),
                None => true,
            };
            QueueingHint::when(new.fits(requests, devices_provide) && has_increased())
        }
        Change::AssignedPod(Delta::Updated { old, new }) => {
            let old_requests = &old.requirements.requests;
            let new_requests = &new.requirements.requests;
            QueueingHint::when(exceeds_in_requested(old_requests, new_requests, requests))
        }
        Change::Object(ObjectChange::DeviceClass(edit)) => {
            QueueingHint::when(maps_requested_resource(edit, requests))
        }
        _ => QueueingHint::Queue,
    }
}

/// Returns whether the DeviceClass provides a requested resource that it did not provide before.
fn maps_requested_resource(edit: &Delta<Arc<DeviceClass>>, requests: &Resources) -> bool {
    let Some(class) = edit.after() else { return false };
    let is_requested =
        |name: &str| requests.scalars.iter().any(|(requested, _)| **requested == *name);
    let explicit_name = &class.spec.extended_resource_name;
    match edit.before() {
        Some(old) if old.spec.extended_resource_name == *explicit_name => false,
        Some(_) => is_requested(explicit_name),
        None => {
            is_requested(&implicit_resource_name(&class.meta.name)) || is_requested(explicit_name)
        }
    }
}

/// Allocatable resources of a node.
struct Allocatable {
    resources: Resources,
    pods: i64,
}

impl Allocatable {
    fn of(node: &Node) -> Self {
        let mut resources = Resources::default();
        for (name, amount) in node.status.allocatable.iter() {
            resources.set(name, *amount);
        }
        let pods = node.status.allocatable.get("pods").map_or(0, |pods| pods.value());
        Self { resources, pods }
    }

    /// Returns whether the pod would fit on the empty node.
    fn fits(&self, requests: &Resources, devices_provide: DevicesProvide<'_>) -> bool {
        let allocatable = &self.resources;
        self.pods > 0
            && requests.cpu <= allocatable.cpu
            && requests.memory <= allocatable.memory
            && requests.ephemeral_storage <= allocatable.ephemeral_storage
            && requests.scalars.iter().all(|(name, amount)| {
                let allocatable = allocatable.scalar(name);
                *amount <= allocatable || (allocatable == 0 && devices_provide(name))
            })
    }

    /// Returns whether a resource that the pod requests has increased, or devices may provide one.
    fn has_increased(
        &self,
        old: &Self,
        requests: &Resources,
        devices_provide: DevicesProvide<'_>,
    ) -> bool {
        let devices_may_provide = |(name, amount): &(Arc<str>, i64)| {
            *amount > 0 && self.resources.scalar(name) == 0 && devices_provide(name)
        };
        self.pods > old.pods
            || exceeds_in_requested(&self.resources, &old.resources, requests)
            || requests.scalars.iter().any(devices_may_provide)
    }
}

/// Returns whether `more` exceeds `less` in a resource that the pod requests.
fn exceeds_in_requested(more: &Resources, less: &Resources, requests: &Resources) -> bool {
    (requests.cpu > 0 && more.cpu > less.cpu)
        || (requests.memory > 0 && more.memory > less.memory)
        || (requests.ephemeral_storage > 0 && more.ephemeral_storage > less.ephemeral_storage)
        || requests
            .scalars
            .iter()
            .any(|(name, amount)| *amount > 0 && more.scalar(name) > less.scalar(name))
}
