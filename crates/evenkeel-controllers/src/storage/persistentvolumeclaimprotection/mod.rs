//! PVC protection controller: protects claims that pods use from being deleted, and sets a condition with the time
//! since which a claim has been unused (KEP-5541).
//!
//! The controller first checks the cache of pods. Before it treats a claim as unused, it lists the pods live. One list
//! serves all queued claims of a namespace. Upstream: `pkg/controller/volume/pvcprotection`.

mod plan;

pub(super) use plan::is_terminated;

use crate::{
    finalizers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
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
use plan::{ClaimWithUsers, Observed, QueuedClaim};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Feature gate of the claims' condition `Unused`.
const UNUSED_SINCE_GATE: &str = "PersistentVolumeClaimUnusedSinceTime";

/// Descriptor of the PVC protection controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolumeclaim-protection-controller",
    aliases: &["pvc-protection"],
    queue: "pvcprotection",
    client: "pvc-protection-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let claims = caches.of::<PersistentVolumeClaim>();
    let pods = caches.of::<Pod>();
    let sets_unused_condition = context.gates.enabled(UNUSED_SINCE_GATE);
    let queued = QueuedClaims::default();
    let protection = Protection {
        claims: claims.clone(),
        pods_by_claim: pods.index("claim", claims::keys_of_pod),
        queued: queued.clone(),
        sets_unused_condition,
    };
    let queue_for_claims = queued.clone();
    let queue_for_pods = queued.clone();
    let controller = Builder::of_keys(&context.env, DESCRIPTOR.name, Namespace::kind())
        .queue(DESCRIPTOR.queue)
        .client(context.client(&DESCRIPTOR))
        .component(DESCRIPTOR.client)
        .watches(&claims, move |event, enqueue| {
            queue_for_claims.on_claim(event, sets_unused_condition, enqueue);
        })
        .watches(&pods, move |event, enqueue| {
            queue_for_pods.on_pod(event, sets_unused_condition, enqueue);
        })
        .planned_with(protection, queued);
    context.run(controller);
    Ok(Started::Yes)
}

/// Queued claims by namespace. Clones share one queue. A claim stays queued until a reconciliation that began after the
/// claim's last event succeeds.
#[derive(Clone, Default)]
struct QueuedClaims(Arc<Mutex<EventNumbers>>);

/// Sequence numbers of the events that queued claims.
#[derive(Default)]
struct EventNumbers {
    /// Number of the last event.
    last: u64,
    /// Number of the last event of each queued claim, by namespace and name.
    by_namespace: HashMap<Arc<str>, BTreeMap<Text, u64>>,
}

impl QueuedClaims {
    fn lock(&self) -> MutexGuard<'_, EventNumbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a claim after an event, and enqueues its namespace.
    fn add(&self, enqueue: &Enqueue, namespace: &str, name: &str) {
        let mut events = self.lock();
        events.last += 1;
        let last = events.last;
        events.by_namespace.entry(Arc::from(namespace)).or_default().insert(name.into(), last);
        drop(events);
        enqueue.add(Key::new("", namespace));
    }

    /// Returns the queued claims of a namespace.
    fn of_namespace(&self, namespace: &str) -> Vec<QueuedClaim> {
        let events = self.lock();
        let queued = events.by_namespace.get(namespace).into_iter().flatten();
        queued.map(|(name, event)| QueuedClaim { name: name.clone(), event: *event }).collect()
    }

    /// Queues a claim after its event, if a reconciliation may change it.
    fn on_claim(
        &self,
        event: &CacheEvent<PersistentVolumeClaim>,
        sets_unused_condition: bool,
        enqueue: &Enqueue,
    ) {
        let claim = event.object();
        let lacks_condition = sets_unused_condition && plan::condition(claim).is_none();
        let may_change = lacks_condition || finalizers::may_change(&claim.meta, plan::FINALIZER);
        if may_change && !matches!(event, CacheEvent::Deleted(_)) {
            self.add(enqueue, &claim.meta.namespace, &claim.meta.name);
        }
    }

    /// Queues the claims of a pod after its event, if the event may change whether they are in use.
    fn on_pod(&self, event: &CacheEvent<Pod>, sets_unused_condition: bool, enqueue: &Enqueue) {
        let pod = event.object();
        let is_deleted = matches!(event, CacheEvent::Deleted(_));
        if let CacheEvent::Updated { old, new } = event {
            if old.meta.uid != new.meta.uid {
                self.add_claims_of(old, enqueue);
            } else if plan::is_irrelevant_update(old, new) {
                return;
            }
        }
        // Without the condition `Unused`, the event of a pod that runs on a node changes nothing: it keeps its claims in use.
        let is_scheduled = !pod.spec.node_name.is_empty();
        if sets_unused_condition || is_deleted || plan::is_terminated(pod) || !is_scheduled {
            self.add_claims_of(pod, enqueue);
        }
    }

    /// Queues the claims of a pod.
    fn add_claims_of(&self, pod: &Pod, enqueue: &Enqueue) {
        for used in claims::of_pod(pod) {
            self.add(enqueue, &pod.meta.namespace, &used.claim_name(pod));
        }
    }
}

/// Removes the claims after a successful reconciliation. After a failed one, they stay queued.
impl PassHandler<Protection> for QueuedClaims {
    fn on_passed(&self, observed: &Observed, pass: &Pass<'_>) {
        if !pass.succeeded {
            return;
        }
        let mut events = self.lock();
        let Some(queued) = events.by_namespace.get_mut(&observed.namespace) else { return };
        for QueuedClaim { name, event } in &observed.queued {
            // A claim with a later event stays queued.
            if queued.get(name) == Some(event) {
                queued.remove(name);
            }
        }
        if queued.is_empty() {
            events.by_namespace.remove(&observed.namespace);
        }
    }
}

/// Decides the protection finalizers of all queued claims of a namespace. The key is the namespace.
struct Protection {
    claims: Cache<PersistentVolumeClaim>,
    pods_by_claim: Index<Pod>,
    queued: QueuedClaims,
    sets_unused_condition: bool,
}

impl Protection {
    /// Returns a claim with the pods that use it.
    fn with_users(&self, claim: Arc<PersistentVolumeClaim>) -> ClaimWithUsers {
        let users = self.pods_by_claim.get(&claims::key(&claim.meta.namespace, &claim.meta.name));
        ClaimWithUsers { claim, users }
    }
}

impl Planner for Protection {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let namespace = Arc::clone(&key.name);
        let queued = self.queued.of_namespace(&namespace);
        let claims = queued.iter().filter_map(|queued| self.claims.get(&namespace, &queued.name));
        let claims = claims.map(|claim| self.with_users(claim)).collect();
        let sets_unused_condition = self.sets_unused_condition;
        Some(Observed { namespace, queued, claims, sets_unused_condition })
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn next(&self, observed: &Observed, (): &(), done: &Outcomes, now: Timestamp) -> Option<Plan> {
        plan::next(observed, done, now)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let claims = self.claims.namespace(&observed.namespace);
        let blocked = claims.into_iter().filter(|claim| plan::is_deletion_blocked(claim));
        plan::describe(blocked.map(|claim| self.with_users(claim)))
    }
}
