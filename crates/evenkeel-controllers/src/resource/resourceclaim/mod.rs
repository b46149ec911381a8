//! ResourceClaim controller: creates pods' claims from templates, reserves claims for scheduled pods, and releases
//! the claims of finished pods (KEP-3063, KEP-4381). Upstream: `pkg/controller/resourceclaim`.

mod deleted_uid_cache;
mod metrics;
mod plan;
mod pod;
mod release;

use crate::{
    needs::Resource,
    newer_kinds::ResourceClaimTemplate,
    options::Workers,
    resource::podclaims::{Claim, index_key, pods_by_claim},
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use deleted_uid_cache::DeletedUidCache;
use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Pod, PodResourceClaim},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Full, Index},
    controller::Enqueue,
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner},
};
use metrics::Metrics;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A ResourceClaimTemplate with all fields.
type Template = Full<ResourceClaimTemplate>;

/// Number of pods, and number of claims, that are reconciled concurrently. Flag `--concurrent-resourceclaim-syncs`.
/// Default: 50.
pub type Options = Workers<50>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-resourceclaim-syncs";

/// The ResourceClaim controller. Upstream: `newResourceClaimControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourceclaim-controller",
    aliases: &["resource-claim-controller"],
    queue: "resource_claim",
    client: "resource-claim-controller",
    gates: &["DynamicResourceAllocation"],
    resources: &[Resource { group: "resource.k8s.io", version: "v1", plural: "resourceclaims" }],
    start,
    ..Descriptor::DEFAULTS
};

/// Name of the queue of claims. The keys of the main queue are pods.
const CLAIM_QUEUE: &str = "resourceclaim-controller-claims";

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let pods = caches.of::<Pod>();
    let claims = caches.of::<Claim>();
    let templates = caches.of::<Template>();
    let pods_by_claim = pods_by_claim(&pods);
    let pods_by_template = pods.index("claim templates", |pod, key| {
        for claim in &pod.spec.resource_claims {
            if !claim.resource_claim_template_name.is_empty() {
                key(&index_key(&pod.meta.namespace, &claim.resource_claim_template_name));
            }
        }
    });
    let claims_by_owner = claims.index("owning pod", |claim, key| {
        if let Some(owner) = plan::owning_pod(claim) {
            key(&owner.uid);
        }
    });
    let pod_claims = PodClaims {
        pods: pods.clone(),
        claims: claims.clone(),
        templates,
        claims_by_owner,
        gates: plan::FeatureGates {
            admin_access: context.gates.enabled("DRAAdminAccess"),
            prioritized_list: context.gates.enabled("DRAPrioritizedList"),
        },
    };
    start_pod_controller(context, pod_claims, pods_by_claim, pods_by_template);
    start_claim_controller(context, Claims { pods, claims, deleted_pods: DeletedPods::default() });
    Ok(Started::Yes)
}

/// Starts the controller of pods' claims. Its keys are pods. Events of a pod's claims and templates also enqueue the
/// pod.
fn start_pod_controller(
    context: &ControllerContext,
    planner: PodClaims,
    pods_by_claim: Index<Pod>,
    pods_by_template: Index<Pod>,
) {
    let metrics = Metrics::new(&context.registry, &planner.claims);
    let builder = context
        .builder_watching(&DESCRIPTOR, &planner.pods, |event, enqueue| {
            let pod = event.object();
            let is_present = !matches!(event, CacheEvent::Deleted(_)) && !pod.meta.deleting();
            if is_present && !pod.spec.resource_claims.is_empty() {
                enqueue.add(Key::of(&pod.meta));
            }
        })
        .event_source("resource_claim")
        .workers(context.options.resourceclaim.concurrent_syncs)
        .watches(&planner.claims, move |event, enqueue| {
            enqueue_users(event, &pods_by_claim, enqueue);
        })
        .watches(&planner.templates, move |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                enqueue_users(event, &pods_by_template, enqueue);
            }
        });
    context.run(builder.planned_with(planner, metrics));
}

/// Starts the controller of reservations. Its keys are claims. Events of finished and deleted pods also enqueue their
/// claims.
fn start_claim_controller(context: &ControllerContext, planner: Claims) {
    let deleted_pods = planner.deleted_pods.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &planner.claims, |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                enqueue.add(Key::of(event.object().meta()));
            }
        })
        .named(CLAIM_QUEUE)
        .workers(context.options.resourceclaim.concurrent_syncs)
        .watches(&planner.pods, move |event, enqueue| {
            let pod = event.object();
            let is_deleted = matches!(event, CacheEvent::Deleted(_));
            let claim_names = plan::claim_names(pod);
            if is_deleted && claim_names.clone().next().is_some() {
                deleted_pods.lock().add(&pod.meta.uid);
            }
            if is_deleted || plan::is_done(pod) {
                claim_names.for_each(|name| enqueue.add(Key::new(&pod.meta.namespace, name)));
            }
        });
    context.run(builder.planned(planner));
}

/// Decides the ResourceClaims that a pod needs, and reserves them for the pod.
struct PodClaims {
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    templates: Cache<Template>,
    /// Claims by the uid of their owning pod. Upstream: `claimPodOwnerIndex`.
    claims_by_owner: Index<Claim>,
    gates: plan::FeatureGates,
}

impl Planner for PodClaims {
    type Observed = pod::Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<pod::Observed> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        let named_objects = |claim: &PodResourceClaim| pod::NamedObjects {
            claim: match plan::claim_name(&pod, claim) {
                plan::ClaimName::Is(name) => self.claims.get(&key.namespace, name),
                _ => None,
            },
            template: self.templates.get(&key.namespace, &claim.resource_claim_template_name),
        };
        let named = pod.spec.resource_claims.iter().map(named_objects).collect();
        let owned = self.claims_by_owner.get(&pod.meta.uid);
        Some(pod::Observed { pod, named, owned, gates: self.gates })
    }

    fn plan(&self, observed: &pod::Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (pod::plan(observed), ())
    }

    fn next(
        &self,
        observed: &pod::Observed,
        (): &(),
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<Plan> {
        pod::next(observed, outcomes)
    }

    fn describe(&self, observed: &pod::Observed, _: Timestamp) -> Description {
        pod::describe(observed)
    }
}

impl PassHandler<PodClaims> for Metrics {
    fn on_passed(&self, observed: &pod::Observed, pass: &Pass<'_>) {
        for pod::Creation { claim, succeeded } in pod::creations(observed, pass.outcomes) {
            self.count_creation(&claim, succeeded);
        }
    }
}

/// Decides which reservations of a ResourceClaim have ended.
struct Claims {
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    /// Deleted pods, whose reservations can be released immediately.
    deleted_pods: DeletedPods,
}

/// Uids of recently deleted pods. Clones share one cache.
#[derive(Clone, Default)]
struct DeletedPods(Arc<Mutex<DeletedUidCache>>);

impl DeletedPods {
    /// Locks the cache. A panic under the lock does not invalidate it.
    fn lock(&self) -> MutexGuard<'_, DeletedUidCache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Planner for Claims {
    type Observed = release::Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<release::Observed> {
        let claim = self.claims.get(&key.namespace, &key.name)?;
        let mut decisions = Vec::new();
        for consumer in release::consumers(&claim) {
            let pod = self.pods.get(&key.namespace, &consumer.name);
            let is_deleted = self.deleted_pods.lock().has(&consumer.uid);
            decisions.push(release::decide_consumer(consumer, is_deleted, pod.as_deref()));
        }
        let owner = plan::owning_pod(&claim)
            .and_then(|reference| self.pods.get(&key.namespace, &reference.name));
        Some(release::Observed { claim, decisions, owner })
    }

    fn plan(&self, observed: &release::Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (release::plan(observed), ())
    }

    fn next(
        &self,
        observed: &release::Observed,
        (): &(),
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<Plan> {
        release::next(observed, outcomes)
    }

    fn describe(&self, observed: &release::Observed, _: Timestamp) -> Description {
        release::describe(observed)
    }
}

/// Enqueues the pods that use a claim or a template. `index` maps the object's [`index_key`] to these pods.
fn enqueue_users<V: evenkeel_api::View>(
    event: &CacheEvent<V>,
    index: &Index<Pod>,
    enqueue: &Enqueue,
) {
    let meta = event.object().meta();
    let pods = index.get(&index_key(&meta.namespace, &meta.name));
    pods.iter().filter(|pod| !pod.meta.deleting()).for_each(|pod| enqueue.add(Key::of(&pod.meta)));
}
