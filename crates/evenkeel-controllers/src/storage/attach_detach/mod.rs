//! Has volumes attached to the nodes whose pods use them, and detached when none does.
//!
//! What is attached is what VolumeAttachments say; drivers carry them out, also for volumes whose plug-ins were built in. Of
//! devices of the network it is what the node was told. Upstream: `pkg/controller/volume/attachdetach`.

mod metrics;
mod network;
mod options;
mod plan;
mod sight;
#[cfg(test)]
mod tests;

pub use options::Options;

use crate::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    Text, storage,
    time::Timestamp,
    views::{Node, PersistentVolumeClaim, Pod},
};
use evenkeel_runtime::{
    cache::{CacheEvent, Index},
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use metrics::Operations;
use plan::{Given, Held, Memory, Seen};
use prometheus::IntCounterVec;
use sight::Sight;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The controller that has volumes attached.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-attach-detach-controller",
    aliases: &["attachdetach"],
    queue: "pvcs",
    client: "attachdetach-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let sight = Arc::new(Sight::new(&context.env.caches));
    metrics::count(&context.registry, &sight);
    let operations = Operations::new(&context.registry);
    let clock = context.env.clock.clone();
    let planner = Attachments {
        sight: Arc::clone(&sight),
        memory: Mutex::default(),
        last: Arc::default(),
        given: Mutex::default(),
        options: context.options.attach_detach,
        forced: metrics::forced(&context.registry),
    };
    let (users, waiting, bound) = (sight.users.clone(), sight.users.clone(), sight.users.clone());
    let of_volume = sight.by_volume.clone();
    let measured = sight.volumes.clone();
    let claims = sight.claims.index("volume", |claim, key| {
        if !claim.spec.volume_name.is_empty() {
            key(&claim.spec.volume_name);
        }
    });
    let (claims_of_volume, last) = (claims.clone(), Arc::clone(&planner.last));
    let builder = context
        .builder_watching(&DESCRIPTOR, &sight.nodes, move |event, enqueue| {
            let node = event.object();
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.insert(node.meta.name.clone(), Arc::clone(node));
            drop(last);
            if let CacheEvent::Updated { old, new } = event
                && plan::looks_alike(old, new)
            {
                return;
            }
            enqueue.add(Key::of(&node.meta));
        })
        .watches(&sight.pods, |event, enqueue| {
            let pod = event.object();
            if let CacheEvent::Updated { old, new } = event
                && old.spec.node_name == new.spec.node_name
                && plan::counts(old) == plan::counts(new)
            {
                return;
            }
            if !pod.spec.node_name.is_empty() && may_attach(pod) {
                enqueue.add(Key::new("", &pod.spec.node_name));
            }
        })
        .watches(&sight.attachments, move |event, enqueue| {
            let attachment = event.object();
            operations.heard(event, &measured, clock.now());
            enqueue.add(Key::new("", &attachment.spec.node_name));
            // Another node may wait for it to go.
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            if let (CacheEvent::Deleted(_), Some(volume)) = (event, volume) {
                for key in nodes_of_users(volume, &claims, &waiting) {
                    enqueue.add(key);
                }
            }
        })
        .watches(&sight.claims, move |event, enqueue| {
            if let CacheEvent::Updated { old, new } = event
                && old.status.phase != new.status.phase
            {
                let pods = users.get(&storage::claim_key(&new.meta.namespace, &new.meta.name));
                for pod in pods.iter().filter(|pod| !pod.spec.node_name.is_empty()) {
                    enqueue.add(Key::new("", &pod.spec.node_name));
                }
            }
        })
        .watches(&sight.volumes, move |event, enqueue| {
            let volume = event.object();
            for attachment in of_volume.get(&volume.meta.name) {
                enqueue.add(Key::new("", &attachment.spec.node_name));
            }
            // That it is bound may be known later than that its claim is.
            let is_new = match event {
                CacheEvent::Added { initial, .. } => !initial,
                CacheEvent::Updated { old, new } => old.spec.claim_ref != new.spec.claim_ref,
                CacheEvent::Deleted(_) => false,
            };
            if is_new {
                for key in nodes_of_users(&volume.meta.name, &claims_of_volume, &bound) {
                    enqueue.add(key);
                }
            }
        })
        .reads(&sight.drivers);
    context.run(builder.planned(planner));
    Ok(())
}

/// Whether any of the pod's volumes may have to be attached.
fn may_attach(pod: &Pod) -> bool {
    storage::claims_of(pod).next().is_some()
        || pod.spec.volumes.iter().any(|volume| network::inline_name(&volume.source).is_some())
}

/// Nodes of the pods that use a volume.
fn nodes_of_users(
    volume: &str,
    claims: &Index<PersistentVolumeClaim>,
    users: &Index<Pod>,
) -> Vec<Key> {
    let pods = claims
        .get(volume)
        .into_iter()
        .flat_map(|claim| users.get(&storage::claim_key(&claim.meta.namespace, &claim.meta.name)));
    pods.filter(|pod| !pod.spec.node_name.is_empty())
        .map(|pod| Key::new("", &pod.spec.node_name))
        .collect()
}

struct Attachments {
    sight: Arc<Sight>,
    memory: Mutex<HashMap<Key, Memory>>,
    /// Nodes as they were last, also those that are gone and to which something is still attached.
    last: Arc<Mutex<HashMap<Text, Arc<Node>>>>,
    given: Mutex<Given>,
    options: Options,
    forced: IntCounterVec,
}

impl Planner for Attachments {
    type Seen = Seen;

    fn observe(&self, key: &Key) -> Option<Seen> {
        let node = self.sight.nodes.get("", &key.name);
        let mut held: Vec<Held> = self
            .sight
            .by_node
            .get(&key.name)
            .into_iter()
            .filter_map(|attachment| {
                let volume = attachment.spec.source.persistent_volume_name.as_deref()?;
                let volume = self.sight.volumes.get("", volume);
                Some(Held {
                    name: volume.as_deref().and_then(storage::attached_name).map(Text::from),
                    attachment,
                })
            })
            .collect();
        held.sort_by(|a, b| a.attachment.meta.name.cmp(&b.attachment.meta.name));
        if node.as_deref().is_some_and(|node| !plan::is_managed(node)) {
            return None;
        }
        let wanted = self.sight.wanted(&key.name);
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = memory.get(key).cloned().unwrap_or_default();
        let mut last = None;
        if node.is_none() {
            let mut nodes = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last = nodes.get(&*key.name).cloned();
            if held.is_empty() {
                nodes.remove(&*key.name);
            }
        }
        Some(Seen { name: Arc::clone(&key.name), node, last, wanted, held, memory })
    }

    fn plan(&self, seen: &Seen, now: Timestamp) -> Plan {
        let decision = {
            // Until it is noted who is given a volume, nobody else may be.
            let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            let decision = plan::plan(seen, &self.options, &given, now);
            given.note(seen, &decision, now);
            decision
        };
        for reason in &decision.forced {
            self.forced.with_label_values(&[*reason]).inc();
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key::new("", &seen.name);
        if decision.memory == Memory::default() {
            memory.remove(&key);
        } else {
            memory.insert(key, decision.memory);
        }
        decision.plan
    }

    fn preview(&self, seen: &Seen, now: Timestamp) -> Plan {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        plan::plan(seen, &self.options, &given, now).plan
    }

    fn describe(&self, seen: &Seen, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact("volumes that its pods use", seen.wanted.len());
        description.fact("attachments", seen.held.len());
        for one in seen.wanted.iter().filter(|one| plan::is_taken(one)) {
            description.waits(format!(
                "volume {} is attached to {}",
                one.called,
                one.elsewhere.join(", ")
            ));
        }
        description
    }
}
