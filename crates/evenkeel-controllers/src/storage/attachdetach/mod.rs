//! Attach-detach controller: attaches volumes to the nodes whose pods use them, and detaches unused volumes. Upstream:
//! `pkg/controller/volume/attachdetach`.
//!
//! VolumeAttachments are the actual state of world. CSI drivers act on them, also for in-tree plugins that migrated
//! to CSI. The actual state of network devices (iSCSI, Fibre Channel) is the node's `status.volumesAttached`.

mod iscsi_fc;
mod metrics;
mod options;
mod plan;
mod state_of_world;
#[cfg(test)]
mod tests;

pub use options::Options;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{Node, PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::{attach, claims};
use evenkeel_runtime::{
    cache::{CacheEvent, Index},
    introspect::Description,
    plan::{Key, Outcomes, PassHandler, Plan, Planned, Planner},
};
use metrics::Operations;
use plan::{AttachedVolume, Memory, Observed, ReservedVolumes};
use prometheus::IntCounterVec;
use state_of_world::StateOfWorld;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The attach-detach controller. Upstream: `newPersistentVolumeAttachDetachControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-attach-detach-controller",
    aliases: &["attachdetach"],
    queue: "pvcs",
    client: "attachdetach-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let state_of_world = Arc::new(StateOfWorld::new(&context.env.caches));
    metrics::count(&context.registry, &state_of_world);
    let node_states = Arc::new(NodeStates::default());
    let operations = Operations::new(&context.registry);
    let clock = context.env.clock.clone();
    let planner = Attachments {
        state_of_world: Arc::clone(&state_of_world),
        node_states: Arc::clone(&node_states),
        options: context.options.attachdetach,
    };
    let handler = Passes {
        node_states: Arc::clone(&node_states),
        forced: metrics::forced(&context.registry),
    };
    let (users, users_of_detached, users_of_bound) =
        (state_of_world.users.clone(), state_of_world.users.clone(), state_of_world.users.clone());
    let of_volume = state_of_world.by_volume.clone();
    let measured = state_of_world.volumes.clone();
    let claims = state_of_world.claims.index("volume", |claim, key| {
        if !claim.spec.volume_name.is_empty() {
            key(&claim.spec.volume_name);
        }
    });
    let (claims_of_volume, of_nodes) = (claims.clone(), node_states);
    let builder = context
        .builder_watching(&DESCRIPTOR, &state_of_world.nodes, move |event, enqueue| {
            let node = event.object();
            of_nodes.on_node_event(node);
            if let CacheEvent::Updated { old, new } = event
                && plan::is_irrelevant_update(old, new)
            {
                return;
            }
            enqueue.add(Key::of(&node.meta));
        })
        .watches(&state_of_world.pods, |event, enqueue| {
            let pod = event.object();
            if let CacheEvent::Updated { old, new } = event
                && old.spec.node_name == new.spec.node_name
                && plan::needs_volumes(old) == plan::needs_volumes(new)
            {
                return;
            }
            if !pod.spec.node_name.is_empty() && may_attach(pod) {
                enqueue.add(Key::new("", &pod.spec.node_name));
            }
        })
        .watches(&state_of_world.attachments, move |event, enqueue| {
            let attachment = event.object();
            operations.on_attachment_event(event, &measured, clock.now());
            enqueue.add(Key::new("", &attachment.spec.node_name));
            // Another node may wait until the volume is detached from this one.
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            if let (CacheEvent::Deleted(_), Some(volume)) = (event, volume) {
                for key in nodes_of_users(volume, &claims, &users_of_detached) {
                    enqueue.add(key);
                }
            }
        })
        .watches(&state_of_world.claims, move |event, enqueue| {
            if let CacheEvent::Updated { old, new } = event
                && old.status.phase != new.status.phase
            {
                let pods = users.get(&claims::key(&new.meta.namespace, &new.meta.name));
                for pod in pods.iter().filter(|pod| !pod.spec.node_name.is_empty()) {
                    enqueue.add(Key::new("", &pod.spec.node_name));
                }
            }
        })
        .watches(&state_of_world.volumes, move |event, enqueue| {
            let volume = event.object();
            for attachment in of_volume.get(&volume.meta.name) {
                enqueue.add(Key::new("", &attachment.spec.node_name));
            }
            // The cache may show the binding of the volume later than the binding of the claim.
            let is_new = match event {
                CacheEvent::Added { initial, .. } => !initial,
                CacheEvent::Updated { old, new } => old.spec.claim_ref != new.spec.claim_ref,
                CacheEvent::Deleted(_) => false,
            };
            if is_new {
                for key in nodes_of_users(&volume.meta.name, &claims_of_volume, &users_of_bound) {
                    enqueue.add(key);
                }
            }
        })
        .reads(&state_of_world.drivers);
    // There is only one worker. With two, nodes that attach the same volume concurrently would not see each other's
    // reservation.
    context.run(builder.planned_with(planner, handler));
    Ok(())
}

/// Reports whether the pod has a volume that the controller may have to attach.
fn may_attach(pod: &Pod) -> bool {
    claims::of_pod(pod).next().is_some()
        || pod
            .spec
            .volumes
            .iter()
            .any(|volume| iscsi_fc::unique_volume_name_of_inline(&volume.source).is_some())
}

/// Returns the nodes of pods that use a volume.
fn nodes_of_users(
    volume: &str,
    claims: &Index<PersistentVolumeClaim>,
    users: &Index<Pod>,
) -> Vec<Key> {
    let pods = claims
        .get(volume)
        .into_iter()
        .flat_map(|claim| users.get(&claims::key(&claim.meta.namespace, &claim.meta.name)));
    pods.filter(|pod| !pod.spec.node_name.is_empty())
        .map(|pod| Key::new("", &pod.spec.node_name))
        .collect()
}

/// State of all nodes that event handlers and passes share, in addition to the caches.
#[derive(Default)]
struct NodeStates {
    /// Last observed version of each node, including deleted nodes that still have attachments.
    last: Mutex<HashMap<Text, Arc<Node>>>,
    reserved: Mutex<ReservedVolumes>,
}

impl NodeStates {
    /// Records the current version of a node, which is needed after the node's deletion.
    fn on_node_event(&self, node: &Arc<Node>) {
        self.last().insert(node.meta.name.clone(), Arc::clone(node));
    }

    /// Returns the last observed version of a node.
    fn last_node(&self, name: &str) -> Option<Arc<Node>> {
        self.last().get(name).cloned()
    }

    /// Removes the last version of a deleted node.
    fn forget_node(&self, name: &str) {
        self.last().remove(name);
    }

    /// Returns the volumes that are reserved for nodes.
    fn reserved(&self) -> ReservedVolumes {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the reservations of a plan before its actions run.
    fn reserve(&self, observed: &Observed, memory: &Memory, now: Timestamp) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.record(observed, memory, now);
    }

    fn last(&self) -> MutexGuard<'_, HashMap<Text, Arc<Node>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Attachments {
    state_of_world: Arc<StateOfWorld>,
    node_states: Arc<NodeStates>,
    options: Options,
}

/// Pass handler that counts forced detaches, and records reservations before the actions of a plan run.
struct Passes {
    node_states: Arc<NodeStates>,
    forced: IntCounterVec,
}

impl PassHandler<Attachments> for Passes {
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, Memory>) {
        self.node_states.reserve(observed, planned.memory, planned.at);
        for reason in &planned.memory.forced {
            self.forced.with_label_values(&[*reason]).inc();
        }
    }

    fn on_gone(&self, key: &Key) {
        self.node_states.forget_node(&key.name);
    }
}

impl Planner for Attachments {
    type Observed = Observed;
    type Memory = Memory;

    fn observe(&self, key: &Key, memory: &Memory) -> Option<Observed> {
        let node = self.state_of_world.nodes.get("", &key.name);
        let mut actual: Vec<AttachedVolume> = self
            .state_of_world
            .by_node
            .get(&key.name)
            .into_iter()
            .filter_map(|attachment| {
                let volume = attachment.spec.source.persistent_volume_name.as_deref()?;
                let volume = self.state_of_world.volumes.get("", volume);
                Some(AttachedVolume {
                    name: volume.as_deref().and_then(attach::attached_name).map(Text::from),
                    attachment,
                })
            })
            .collect();
        actual.sort_by(|a, b| a.attachment.meta.name.cmp(&b.attachment.meta.name));
        if node.as_deref().is_some_and(|node| !plan::is_managed(node)) {
            return None;
        }
        let desired = self.state_of_world.desired_volumes(&key.name);
        if node.is_none() && desired.is_empty() && actual.is_empty() {
            return None;
        }
        let last = if node.is_none() { self.node_states.last_node(&key.name) } else { None };
        let (name, memory) = (Arc::clone(&key.name), memory.clone());
        let reserved = self.node_states.reserved();
        Some(Observed { name, node, last, desired, actual, memory, reserved })
    }

    fn plan(&self, observed: &Observed, _: &Memory, now: Timestamp) -> (Plan, Memory) {
        let decision = plan::plan(observed, &self.options, now);
        (decision.plan, decision.memory)
    }

    fn remember(
        &self,
        _: &Observed,
        memory: &Memory,
        _: &Outcomes,
        _: Timestamp,
    ) -> Option<Memory> {
        memory.of_next_pass()
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact("volumes that its pods use", observed.desired.len());
        description.fact("attachments", observed.actual.len());
        for one in observed.desired.iter().filter(|one| plan::is_multi_attach(one)) {
            description.waits(format!(
                "volume {} is attached to {}",
                one.volume_name,
                one.elsewhere.join(", ")
            ));
        }
        description
    }
}
