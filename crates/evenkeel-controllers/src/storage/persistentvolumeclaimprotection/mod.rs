//! Keeps claims that a pod uses from being deleted, and notes since when no pod does.
//!
//! Whether a claim is in use is asked of the cache first; that it is not is believed only after pods were read live, once
//! for all claims of a namespace that wait for it. Upstream: `pkg/controller/volume/pvcprotection` (KEP-5541 for the
//! condition).

mod plan;

pub(super) use plan::is_terminated;

use super::finalizers;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    Text, View, storage,
    views::{Namespace, PersistentVolumeClaim, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    client::ListOptions,
    controller::{Builder, Context, Enqueue, Error, Outcome},
    introspect::Description,
    plan::{Key, Plan},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

/// The gate of the condition that says whether a claim is used.
const UNUSED_SINCE: &str = "PersistentVolumeClaimUnusedSinceTime";

/// The controller that protects claims.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolumeclaim-protection-controller",
    aliases: &["pvc-protection"],
    queue: "pvcprotection",
    client: "pvc-protection-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let caches = &context.env.caches;
    let (claims, pods) = (caches.of::<PersistentVolumeClaim>(), caches.of::<Pod>());
    let noting = context.gates.enabled(UNUSED_SINCE);
    let protection = Arc::new(Protection {
        claims: claims.clone(),
        users: pods.index("claim", storage::claim_keys),
        waiting: Waiting::default(),
        noting,
    });
    let (of_claims, of_pods, told) = (protection.clone(), protection.clone(), protection.clone());
    let controller = Builder::of_keys(&context.env, DESCRIPTOR.name, Namespace::kind())
        .queue(DESCRIPTOR.queue)
        .client((context.clients)(DESCRIPTOR.client))
        .component(DESCRIPTOR.client)
        .watches(&claims, move |event, enqueue| of_claims.on_claim(event, enqueue))
        .watches(&pods, move |event, enqueue| of_pods.on_pod(event, enqueue))
        .explains(move |key, _| told.explain(key))
        .reconcile(move |request, context| {
            let protection = protection.clone();
            async move { protection.pass(&request.key, &context).await }
        });
    context.run(controller);
    Ok(())
}

/// Names of claims to be looked at, by namespace.
#[derive(Default)]
struct Waiting(Mutex<HashMap<Arc<str>, BTreeSet<Text>>>);

impl Waiting {
    fn add(&self, namespace: &str, names: impl IntoIterator<Item = Text>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(Arc::from(namespace)).or_default().extend(names);
    }

    fn take(&self, namespace: &str) -> BTreeSet<Text> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(namespace).unwrap_or_default()
    }
}

struct Protection {
    claims: Cache<PersistentVolumeClaim>,
    users: Index<Pod>,
    waiting: Waiting,
    noting: bool,
}

impl Protection {
    fn wait(&self, enqueue: &Enqueue, namespace: &str, name: &str) {
        self.waiting.add(namespace, [name.into()]);
        enqueue.add(Key::new("", namespace));
    }

    fn on_claim(&self, event: &CacheEvent<PersistentVolumeClaim>, enqueue: &Enqueue) {
        let claim = event.object();
        let unnoted = self.noting && plan::condition(claim).is_none();
        let concerns = unnoted || finalizers::concerns(&claim.meta, plan::FINALIZER);
        if concerns && !matches!(event, CacheEvent::Deleted(_)) {
            self.wait(enqueue, &claim.meta.namespace, &claim.meta.name);
        }
    }

    fn on_pod(&self, event: &CacheEvent<Pod>, enqueue: &Enqueue) {
        let (pod, gone) = (event.object(), matches!(event, CacheEvent::Deleted(_)));
        if let CacheEvent::Updated { old, new } = event {
            if old.meta.uid != new.meta.uid {
                self.enqueue_claims(old, enqueue);
            } else if plan::uses_alike(old, new) {
                return;
            }
        }
        let scheduled = !pod.spec.node_name.is_empty();
        if self.noting || gone || plan::is_terminated(pod) || !scheduled {
            self.enqueue_claims(pod, enqueue);
        }
    }

    fn enqueue_claims(&self, pod: &Pod, enqueue: &Enqueue) {
        for used in storage::claims_of(pod) {
            self.wait(enqueue, &pod.meta.namespace, &used.claim_name(pod));
        }
    }

    fn users(&self, claim: &PersistentVolumeClaim) -> Vec<Arc<Pod>> {
        self.users.get(&storage::claim_key(&claim.meta.namespace, &claim.meta.name))
    }

    /// All claims of a namespace that wait; they wait again if one of them fails.
    async fn pass(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let names = self.waiting.take(&key.name);
        let done = self.look_at(key, &names, context).await;
        if done.is_err() {
            self.waiting.add(&key.name, names);
        }
        done.map(|()| Outcome::Settled)
    }

    async fn look_at(
        &self,
        key: &Key,
        names: &BTreeSet<Text>,
        context: &Context,
    ) -> Result<(), Error> {
        let (mut live, mut all) = (None, Plan::nothing());
        for name in names {
            let Some(claim) = self.claims.get(&key.name, name) else { continue };
            let mut users = self.users(&claim);
            if plan::must_be_sure(&claim, &users, self.noting) {
                if live.is_none() {
                    let client = &context.env.client;
                    let list = client.list::<Pod>(&key.name, &ListOptions::default()).await?;
                    live = Some(list.items.into_iter().map(Arc::new).collect::<Vec<_>>());
                }
                users = live.iter().flatten().cloned().collect();
            }
            let plan = plan::plan(&claim, &users, self.noting, context.env.clock.now());
            all.actions.extend(plan.actions);
        }
        context.act(key, &all).await?;
        Ok(())
    }

    fn explain(&self, key: &Key) -> Option<(Description, Vec<String>)> {
        let mut description = Description::new();
        let held = |claim: &PersistentVolumeClaim| finalizers::holds(&claim.meta, plan::FINALIZER);
        for claim in self.claims.namespace(&key.name).iter().filter(|claim| held(claim)) {
            let users = self.users(claim);
            let names: Vec<&str> = users
                .iter()
                .filter(|pod| plan::keeps(pod, claim))
                .map(|pod| &*pod.meta.name)
                .collect();
            if !names.is_empty() {
                description.waits(format!(
                    "claim {} is being deleted and used by {}",
                    claim.meta.name,
                    names.join(", ")
                ));
            }
        }
        Some((description, Vec::new()))
    }
}
