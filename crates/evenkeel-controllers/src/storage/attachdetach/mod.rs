//! Attach-detach controller: attaches volumes to the nodes whose pods use them, and detaches unused volumes. Upstream:
//! `pkg/controller/volume/attachdetach`.
//!
//! The VolumeAttachments are the actual state of world. The external attachers of CSI drivers attach and detach their
//! volumes, including those of in-tree plugins that migrated to CSI. The actual state of network devices (iSCSI, Fibre
//! Channel) is the node's `status.volumesAttached`.

mod metrics;
mod options;
mod plan;
mod state_of_world;
#[cfg(test)]
mod tests;

pub use options::Options;

use super::iscsi_fc;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
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
use metrics::OperationMetrics;
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
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let state_of_world = Arc::new(StateOfWorld::new(&context.env.caches));
    metrics::register_volume_counts(&context.registry, &state_of_world);
    let node_states = Arc::new(NodeStates::default());
    let operations = OperationMetrics::new(&context.registry);
    let clock = context.env.clock.clone();
    let planner = Attachments {
        state_of_world: Arc::clone(&state_of_world),
        node_states: Arc::clone(&node_states),
        options: context.options.attachdetach,
    };
    let handler = ReservationHandler {
        node_states: Arc::clone(&node_states),
        forced_detaches: metrics::register_forced_detaches(&context.registry),
    };
    let attachments_by_volume = state_of_world.attachments_by_volume.clone();
    let volumes = state_of_world.volumes.clone();
    let pods_by_claim = state_of_world.pods_by_claim.clone();
    let claims_by_volume = state_of_world.claims.index("volume", |claim, key| {
        if !claim.spec.volume_name.is_empty() {
            key(&claim.spec.volume_name);
        }
    });
    let users = VolumeUsers { claims_by_volume, pods_by_claim: pods_by_claim.clone() };
    let users_of_attached = users.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &state_of_world.nodes, move |event, enqueue| {
            let node = event.object();
            node_states.on_node_event(node);
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
            operations.on_attachment_event(event, &volumes, clock.now());
            enqueue.add(Key::new("", &attachment.spec.node_name));
            // Another node may wait until the volume is detached from this one.
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            if let (CacheEvent::Deleted(_), Some(volume)) = (event, volume) {
                for key in users_of_attached.nodes(volume) {
                    enqueue.add(key);
                }
            }
        })
        .watches(&state_of_world.claims, move |event, enqueue| {
            if let CacheEvent::Updated { old, new } = event
                && old.status.phase != new.status.phase
            {
                let pods = pods_by_claim.get(&claims::key(&new.meta.namespace, &new.meta.name));
                for pod in pods.iter().filter(|pod| !pod.spec.node_name.is_empty()) {
                    enqueue.add(Key::new("", &pod.spec.node_name));
                }
            }
        })
        .watches(&state_of_world.volumes, move |event, enqueue| {
            let volume = event.object();
            for attachment in attachments_by_volume.get(&volume.meta.name) {
                enqueue.add(Key::new("", &attachment.spec.node_name));
            }
            // The volume cache may show a binding later than the claim cache, whose event enqueued the nodes too early.
            let may_be_newly_bound = match event {
                CacheEvent::Added { initial, .. } => !initial,
                CacheEvent::Updated { old, new } => old.spec.claim_ref != new.spec.claim_ref,
                CacheEvent::Deleted(_) => false,
            };
            if may_be_newly_bound {
                for key in users.nodes(&volume.meta.name) {
                    enqueue.add(key);
                }
            }
        })
        .reads(&state_of_world.drivers);
    // There is only one worker, because two concurrent reconciliations would not see each other's reservations.
    context.run(builder.planned_with(planner, handler));
    Ok(Started::Yes)
}

/// Returns whether the pod has a volume that the controller may have to attach.
fn may_attach(pod: &Pod) -> bool {
    claims::of_pod(pod).next().is_some()
        || pod
            .spec
            .volumes
            .iter()
            .any(|volume| iscsi_fc::unique_volume_name_of_inline(&volume.source).is_some())
}

/// Indexes that find the pods that use a volume.
#[derive(Clone)]
struct VolumeUsers {
    claims_by_volume: Index<PersistentVolumeClaim>,
    pods_by_claim: Index<Pod>,
}

impl VolumeUsers {
    /// Returns the nodes of the pods that use a volume.
    fn nodes(&self, volume: &str) -> Vec<Key> {
        let pods_of_claim = |claim: Arc<PersistentVolumeClaim>| {
            self.pods_by_claim.get(&claims::key(&claim.meta.namespace, &claim.meta.name))
        };
        let claims = self.claims_by_volume.get(volume).into_iter();
        claims
            .flat_map(pods_of_claim)
            .filter(|pod| !pod.spec.node_name.is_empty())
            .map(|pod| Key::new("", &pod.spec.node_name))
            .collect()
    }
}

/// State of all nodes that the caches do not hold. Event handlers and reconciliations share it.
#[derive(Default)]
struct NodeStates {
    /// Last observed version of each node, including deleted nodes that still have attachments.
    last_nodes: Mutex<HashMap<Text, Arc<Node>>>,
    /// Volumes that reconciliations attach, before the caches show the VolumeAttachments.
    reserved: Mutex<ReservedVolumes>,
}

impl NodeStates {
    /// Records the current version of a node. It is still needed after the node is deleted.
    fn on_node_event(&self, node: &Arc<Node>) {
        self.last_nodes().insert(node.meta.name.clone(), Arc::clone(node));
    }

    /// Returns the last observed version of a node.
    fn last_node(&self, name: &str) -> Option<Arc<Node>> {
        self.last_nodes().get(name).cloned()
    }

    /// Removes the last version of a deleted node.
    fn forget_node(&self, name: &str) {
        self.last_nodes().remove(name);
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

    /// Locks the last versions of all nodes.
    fn last_nodes(&self) -> MutexGuard<'_, HashMap<Text, Arc<Node>>> {
        self.last_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides which volumes are attached to a node and detached from it.
struct Attachments {
    state_of_world: Arc<StateOfWorld>,
    node_states: Arc<NodeStates>,
    options: Options,
}

/// Records the reservations of each plan before its actions run, and counts forced detaches.
struct ReservationHandler {
    node_states: Arc<NodeStates>,
    forced_detaches: IntCounterVec,
}

impl PassHandler<Attachments> for ReservationHandler {
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, Memory>) {
        self.node_states.reserve(observed, planned.memory, planned.at);
        for reason in &planned.memory.forced_detaches {
            self.forced_detaches.with_label_values(&[*reason]).inc();
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
            .attachments_by_node
            .get(&key.name)
            .into_iter()
            .filter_map(|attachment| {
                let volume_name = attachment.spec.source.persistent_volume_name.as_deref()?;
                let volume = self.state_of_world.volumes.get("", volume_name);
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
        let last_node = if node.is_none() { self.node_states.last_node(&key.name) } else { None };
        let name = Arc::clone(&key.name);
        let memory = memory.clone();
        let reserved = self.node_states.reserved();
        Some(Observed { name, node, last_node, desired, actual, memory, reserved })
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
        memory.for_next_reconciliation()
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact("volumes that its pods use", observed.desired.len());
        description.fact("attachments", observed.actual.len());
        for volume in observed.desired.iter().filter(|volume| plan::is_multi_attach(volume)) {
            description.waits(format!(
                "volume {} is attached to {}",
                volume.volume_name,
                volume.other_nodes.join(", ")
            ));
        }
        description
    }
}
