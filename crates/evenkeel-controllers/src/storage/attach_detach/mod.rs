//! Has volumes attached to the nodes whose pods use them, and detached when none does.
//!
//! What is attached is what VolumeAttachments say; drivers carry them out, also for volumes whose plug-ins were built in. Of
//! devices of the network it is what the node was told. Upstream: `pkg/controller/volume/attachdetach`.

mod network;
mod options;
mod plan;
#[cfg(test)]
mod tests;

pub use options::Options;

use crate::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    Text, migrated, placement, storage,
    time::Timestamp,
    views::{CsiDriver, Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    introspect::Description,
    metrics,
    plan::{Key, Plan, Planner},
};
use plan::{Given, Held, Memory, Seen, Wanted};
use prometheus::IntCounterVec;
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
    let caches = &context.env.caches;
    let (nodes, pods) = (caches.of::<Node>(), caches.of::<Pod>());
    let attachments = caches.of::<VolumeAttachment>();
    let planner = Attachments {
        claims: caches.of::<PersistentVolumeClaim>(),
        volumes: caches.of::<PersistentVolume>(),
        drivers: caches.of::<CsiDriver>(),
        by_node: attachments.index("node", |attachment, key| key(&attachment.spec.node_name)),
        by_volume: attachments.index("volume", |attachment, key| {
            if let Some(volume) = &attachment.spec.source.persistent_volume_name {
                key(volume);
            }
        }),
        told: nodes.index("network device", |node, key| {
            let attached = node.status.volumes_attached.iter().map(|one| &*one.name);
            attached.filter(|name| network::is_name(name)).for_each(|name| key(name));
        }),
        on_node: pods.index("node", placement::node_key),
        users: pods.index("claim", storage::claim_keys),
        nodes: nodes.clone(),
        memory: Mutex::default(),
        last: Arc::default(),
        given: Mutex::default(),
        options: context.options.attach_detach,
        forced: metrics::counters(
            &context.registry,
            "attach_detach_controller_attachdetach_controller_forced_detaches",
            "Number of times the A/D Controller performed a forced detach",
            &["reason"],
        ),
    };
    let (users, waiting, bound) =
        (planner.users.clone(), planner.users.clone(), planner.users.clone());
    let of_volume = planner.by_volume.clone();
    let claims = planner.claims.index("volume", |claim, key| {
        if !claim.spec.volume_name.is_empty() {
            key(&claim.spec.volume_name);
        }
    });
    let (claims_of_volume, last) = (claims.clone(), Arc::clone(&planner.last));
    let builder = context
        .builder_watching(&DESCRIPTOR, &nodes, move |event, enqueue| {
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
        .watches(&pods, |event, enqueue| {
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
        .watches(&attachments, move |event, enqueue| {
            let attachment = event.object();
            enqueue.add(Key::new("", &attachment.spec.node_name));
            // Another node may wait for it to go.
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            if let (CacheEvent::Deleted(_), Some(volume)) = (event, volume) {
                for key in nodes_of_users(volume, &claims, &waiting) {
                    enqueue.add(key);
                }
            }
        })
        .watches(&planner.claims, move |event, enqueue| {
            if let CacheEvent::Updated { old, new } = event
                && old.status.phase != new.status.phase
            {
                let pods = users.get(&storage::claim_key(&new.meta.namespace, &new.meta.name));
                for pod in pods.iter().filter(|pod| !pod.spec.node_name.is_empty()) {
                    enqueue.add(Key::new("", &pod.spec.node_name));
                }
            }
        })
        .watches(&planner.volumes, move |event, enqueue| {
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
        .reads(&planner.drivers);
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
    nodes: Cache<Node>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    drivers: Cache<CsiDriver>,
    by_node: Index<VolumeAttachment>,
    by_volume: Index<VolumeAttachment>,
    /// Nodes that were told that they have a device of the network.
    told: Index<Node>,
    on_node: Index<Pod>,
    users: Index<Pod>,
    memory: Mutex<HashMap<Key, Memory>>,
    /// Nodes as they were last, also those that are gone and to which something is still attached.
    last: Arc<Mutex<HashMap<Text, Arc<Node>>>>,
    given: Mutex<Given>,
    options: Options,
    forced: IntCounterVec,
}

impl Attachments {
    /// The volumes that the node's pods use and that are to be attached.
    fn wanted(&self, node: &str) -> Vec<Wanted> {
        let mut wanted: Vec<Wanted> = Vec::new();
        for pod in self.on_node.get(node) {
            if !plan::counts(&pod) {
                continue;
            }
            let claimed = storage::claims_of(&pod).filter_map(|used| {
                let volume = self.volume(&pod, &used)?;
                let name = storage::attached_name(&volume).or_else(|| network::name(&volume))?;
                Some((Text::from(name), volume.meta.name.clone(), Some(volume)))
            });
            let inline = pod.spec.volumes.iter().filter_map(|volume| {
                let name = network::inline_name(&volume.source)?;
                Some((Text::from(name), volume.name.clone(), None))
            });
            for (name, called, volume) in claimed.chain(inline) {
                match wanted.iter_mut().find(|one| one.name == name) {
                    Some(one) if one.pods.iter().any(|known| Arc::ptr_eq(known, &pod)) => {}
                    Some(one) => one.pods.push(Arc::clone(&pod)),
                    None => wanted.push(self.used(name, called, volume, &pod)),
                }
            }
        }
        wanted.sort_by(|a, b| a.name.cmp(&b.name));
        for one in &mut wanted {
            one.pods.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        }
        wanted
    }

    fn used(
        &self,
        name: Text,
        called: Text,
        volume: Option<Arc<PersistentVolume>>,
        pod: &Arc<Pod>,
    ) -> Wanted {
        let mut elsewhere: Vec<Text> = if network::is_name(&name) {
            self.told.get(&name).iter().map(|node| node.meta.name.clone()).collect()
        } else {
            let attachments = self.by_volume.get(&called);
            attachments.iter().map(|attachment| attachment.spec.node_name.clone()).collect()
        };
        elsewhere.retain(|other| *other != pod.spec.node_name);
        let others = match &volume {
            Some(volume) if !elsewhere.is_empty() => self.others(pod, volume),
            _ => Vec::new(),
        };
        Wanted { name, called, volume, pods: vec![Arc::clone(pod)], elsewhere, others }
    }

    /// The bound volume behind a pod's claim, if it is to be attached.
    fn volume(&self, pod: &Pod, used: &storage::ClaimUse<'_>) -> Option<Arc<PersistentVolume>> {
        let claim = self.claims.get(&pod.meta.namespace, &used.claim_name(pod))?;
        let own = !used.ephemeral || storage::made_for_pod(&claim, pod).is_ok();
        let volume = self.volumes.get("", &claim.spec.volume_name)?;
        let bound = volume.spec.claim_ref.as_deref().is_some_and(|of| of.uid == claim.meta.uid);
        let attaches = match migrated::driver_and_handle(&volume) {
            Some((driver, _)) => {
                let driver = self.drivers.get("", &driver);
                driver.is_none_or(|driver| driver.spec.attach_required != Some(false))
            }
            None => network::name(&volume).is_some(),
        };
        (own && bound && attaches && &*claim.status.phase == "Bound").then_some(volume)
    }

    /// Pods at other nodes that use the volume.
    fn others(&self, pod: &Pod, volume: &PersistentVolume) -> Vec<Arc<Pod>> {
        let Some(claim) = volume.spec.claim_ref.as_deref() else { return Vec::new() };
        let users = self.users.get(&storage::claim_key(&claim.namespace, &claim.name));
        let mut others: Vec<Arc<Pod>> = users
            .into_iter()
            .filter(|other| {
                !other.spec.node_name.is_empty()
                    && other.spec.node_name != pod.spec.node_name
                    && plan::counts(other)
            })
            .collect();
        others.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        others
    }
}

impl Planner for Attachments {
    type Seen = Seen;

    fn observe(&self, key: &Key) -> Option<Seen> {
        let node = self.nodes.get("", &key.name);
        let mut held: Vec<Held> = self
            .by_node
            .get(&key.name)
            .into_iter()
            .filter_map(|attachment| {
                let volume = attachment.spec.source.persistent_volume_name.as_deref()?;
                let volume = self.volumes.get("", volume);
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
        let wanted = self.wanted(&key.name);
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
