//! Queueing hints: changes that may free resources for the pod.

use evenkeel_api::views::{DeviceClass, Node};
use std::sync::Arc;

use crate::{
    framework::{Change, Edit, ObjectChange, QueueingHint},
    plugins::resource_classes::implicit,
    pod::PodInfo,
    resources::Resources,
};

/// Reports whether devices provide a resource on nodes that do not advertise it.
type IsDevices<'a> = &'a dyn Fn(&str) -> bool;

pub(super) fn hint(pod: &PodInfo, change: &Change, is_devices: IsDevices<'_>) -> QueueingHint {
    let asks = &pod.asks.requests;
    match change {
        Change::Node(edit) => QueueingHint::when(edit.now().is_some_and(|new| {
            let (has, had) = (Room::of(new), edit.before().map(|old| Room::of(old)));
            has.takes(asks, is_devices)
                && had.is_none_or(|had| has.gives_more(&had, asks, is_devices))
        })),
        Change::AssignedPod(Edit::Updated { old, new }) => {
            QueueingHint::when(gives_more(&old.asks.requests, &new.asks.requests, asks))
        }
        Change::Object(ObjectChange::DeviceClass(edit)) => {
            QueueingHint::when(names_more(edit, asks))
        }
        _ => QueueingHint::Queue,
    }
}

/// Reports whether a requested resource was mapped to a DeviceClass.
fn names_more(edit: &Edit<Arc<DeviceClass>>, asks: &Resources) -> bool {
    let Some(class) = edit.now() else { return false };
    let is_requested = |name: &str| asks.scalars.iter().any(|(requested, _)| **requested == *name);
    let named = &class.spec.extended_resource_name;
    match edit.before() {
        Some(before) if before.spec.extended_resource_name == *named => false,
        Some(_) => is_requested(named),
        None => is_requested(&implicit(&class.meta.name)) || is_requested(named),
    }
}

/// Allocatable resources of a node.
struct Room {
    resources: Resources,
    pods: i64,
}

impl Room {
    fn of(node: &Node) -> Self {
        let mut resources = Resources::default();
        for (name, amount) in node.status.allocatable.iter() {
            resources.set(name, *amount);
        }
        let pods = node.status.allocatable.get("pods").map_or(0, |pods| pods.value());
        Self { resources, pods }
    }

    /// Reports whether the pod would fit on the empty node.
    fn takes(&self, asks: &Resources, is_devices: IsDevices<'_>) -> bool {
        let has = &self.resources;
        self.pods > 0
            && asks.cpu <= has.cpu
            && asks.memory <= has.memory
            && asks.ephemeral_storage <= has.ephemeral_storage
            && asks.scalars.iter().all(|(name, amount)| {
                let has = has.scalar(name);
                *amount <= has || (has == 0 && is_devices(name))
            })
    }

    /// Reports whether a resource that the pod requests increased.
    fn gives_more(&self, before: &Self, asks: &Resources, is_devices: IsDevices<'_>) -> bool {
        let devices = |(name, amount): &(Arc<str>, i64)| {
            *amount > 0 && self.resources.scalar(name) == 0 && is_devices(name)
        };
        self.pods > before.pods
            || gives_more(&self.resources, &before.resources, asks)
            || asks.scalars.iter().any(devices)
    }
}

/// Reports whether `more` exceeds `less` for a requested resource.
fn gives_more(more: &Resources, less: &Resources, asks: &Resources) -> bool {
    (asks.cpu > 0 && more.cpu > less.cpu)
        || (asks.memory > 0 && more.memory > less.memory)
        || (asks.ephemeral_storage > 0 && more.ephemeral_storage > less.ephemeral_storage)
        || asks
            .scalars
            .iter()
            .any(|(name, amount)| *amount > 0 && more.scalar(name) > less.scalar(name))
}
