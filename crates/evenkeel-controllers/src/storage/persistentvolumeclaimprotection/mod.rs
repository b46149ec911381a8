//! PVC protection controller: protects claims that pods use from being deleted, and records since when a claim has been
//! unused.
//!
//! The controller first checks the cache of pods. A claim counts as unused only after a live list of pods; one list
//! serves all queued claims of a namespace. Upstream: `pkg/controller/volume/pvcprotection` (KEP-5541 for the
//! condition).

mod plan;

pub(super) use plan::is_terminated;

use super::finalizers;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    Text, View,
    time::Timestamp,
    views::{Namespace, PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::claims;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    controller::{Builder, Enqueue},
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner},
};
use plan::{Observed, WaitingClaim};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Feature gate of the claims' condition `Unused`.
const UNUSED_SINCE: &str = "PersistentVolumeClaimUnusedSinceTime";

/// Descriptor of the PVC protection controller.
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
    let sets_unused = context.gates.enabled(UNUSED_SINCE);
    let waiting = Waiting::default();
    let protection = Protection {
        claims: claims.clone(),
        users: pods.index("claim", claims::keys_of_pod),
        waiting: waiting.clone(),
        sets_unused,
    };
    let (for_claims, for_pods) = (waiting.clone(), waiting.clone());
    let controller = Builder::of_keys(&context.env, DESCRIPTOR.name, Namespace::kind())
        .queue(DESCRIPTOR.queue)
        .client((context.clients)(DESCRIPTOR.client))
        .component(DESCRIPTOR.client)
        .watches(&claims, move |event, enqueue| for_claims.on_claim(event, sets_unused, enqueue))
        .watches(&pods, move |event, enqueue| for_pods.on_pod(event, sets_unused, enqueue))
        .planned_with(protection, waiting);
    context.run(controller);
    Ok(())
}

/// Queued claims by namespace; clones refer to the same queue. A claim stays queued until a pass succeeds that began
/// after the claim's last event.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Events>>);

#[derive(Default)]
struct Events {
    /// Sequence number of the last event.
    last: u64,
    /// Sequence number of each claim's last event, by namespace and name.
    by_namespace: HashMap<Arc<str>, BTreeMap<Text, u64>>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, enqueue: &Enqueue, namespace: &str, name: &str) {
        let mut events = self.lock();
        events.last += 1;
        let last = events.last;
        events.by_namespace.entry(Arc::from(namespace)).or_default().insert(name.into(), last);
        drop(events);
        enqueue.add(Key::new("", namespace));
    }

    fn of(&self, namespace: &str) -> Vec<(Text, u64)> {
        let events = self.lock();
        let waiting = events.by_namespace.get(namespace).into_iter().flatten();
        waiting.map(|(name, event)| (name.clone(), *event)).collect()
    }

    fn on_claim(
        &self,
        event: &CacheEvent<PersistentVolumeClaim>,
        sets_unused: bool,
        enqueue: &Enqueue,
    ) {
        let claim = event.object();
        let lacks_condition = sets_unused && plan::condition(claim).is_none();
        let concerns = lacks_condition || finalizers::may_change(&claim.meta, plan::FINALIZER);
        if concerns && !matches!(event, CacheEvent::Deleted(_)) {
            self.wait(enqueue, &claim.meta.namespace, &claim.meta.name);
        }
    }

    fn on_pod(&self, event: &CacheEvent<Pod>, sets_unused: bool, enqueue: &Enqueue) {
        let (pod, is_deleted) = (event.object(), matches!(event, CacheEvent::Deleted(_)));
        if let CacheEvent::Updated { old, new } = event {
            if old.meta.uid != new.meta.uid {
                self.enqueue_claims(old, enqueue);
            } else if plan::is_irrelevant_update(old, new) {
                return;
            }
        }
        let scheduled = !pod.spec.node_name.is_empty();
        if sets_unused || is_deleted || plan::is_terminated(pod) || !scheduled {
            self.enqueue_claims(pod, enqueue);
        }
    }

    fn enqueue_claims(&self, pod: &Pod, enqueue: &Enqueue) {
        for used in claims::of_pod(pod) {
            self.wait(enqueue, &pod.meta.namespace, &used.claim_name(pod));
        }
    }
}

/// Pass handler that removes the claims of a successful pass. The claims of a failed pass stay queued.
impl PassHandler<Protection> for Waiting {
    fn on_passed(&self, observed: &Observed, pass: &Pass<'_>) {
        if !pass.succeeded {
            return;
        }
        let mut events = self.lock();
        let Some(waiting) = events.by_namespace.get_mut(&observed.namespace) else { return };
        for (name, event) in &observed.waiting {
            if waiting.get(name) == Some(event) {
                waiting.remove(name);
            }
        }
        if waiting.is_empty() {
            events.by_namespace.remove(&observed.namespace);
        }
    }
}

struct Protection {
    claims: Cache<PersistentVolumeClaim>,
    users: Index<Pod>,
    waiting: Waiting,
    sets_unused: bool,
}

impl Protection {
    fn waiting(&self, claim: Arc<PersistentVolumeClaim>) -> WaitingClaim {
        let users = self.users.get(&claims::key(&claim.meta.namespace, &claim.meta.name));
        WaitingClaim { claim, users }
    }
}

/// Planner of all queued claims of a namespace. The key is the namespace.
impl Planner for Protection {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let namespace = Arc::clone(&key.name);
        let waiting = self.waiting.of(&namespace);
        let claims = waiting.iter().filter_map(|(name, _)| self.claims.get(&namespace, name));
        let claims = claims.map(|claim| self.waiting(claim)).collect();
        Some(Observed { namespace, waiting, claims, sets_unused: self.sets_unused })
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn next(&self, observed: &Observed, (): &(), done: &Outcomes, now: Timestamp) -> Option<Plan> {
        plan::next(observed, done, now)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let claims = self.claims.namespace(&observed.namespace);
        let held = claims.into_iter().filter(|claim| plan::is_held(claim));
        plan::describe(held.map(|claim| self.waiting(claim)))
    }
}
