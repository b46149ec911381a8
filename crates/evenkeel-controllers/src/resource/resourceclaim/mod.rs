//! ResourceClaim controller: creates pods' claims from templates, reserves claims for scheduled pods, and releases
//! the claims of finished pods (KEP-3063, KEP-4381). Upstream: `pkg/controller/resourceclaim`.

mod gone;
mod metrics;
mod plan;
mod pod;
mod release;

use crate::{
    needs::Resource,
    options::Workers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
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
use gone::DeletedUidCache;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use metrics::Metrics;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A ResourceClaim with all fields, because an update sends the whole object.
type Claim = Full<ResourceClaim>;
/// A ResourceClaimTemplate with all fields.
type Template = Full<ResourceClaimTemplate>;

/// Number of pods, and number of claims, that are processed concurrently; `--concurrent-resourceclaim-syncs`, default
/// 50.
pub type Options = Workers<50>;

/// Flag with the number of workers.
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
    ..Descriptor::ORDINARY
};

/// Name of the queue of claims. (The main queue holds pods.)
const OF_CLAIMS: &str = "resourceclaim-controller-claims";

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let caches = &context.env.caches;
    let (pods, claims) = (caches.of::<Pod>(), caches.of::<Claim>());
    let templates = caches.of::<Template>();
    let using = pods.index("claims", |pod, key| {
        for claim in &pod.spec.resource_claims {
            if let plan::Name::Is(name) = plan::name(pod, claim) {
                key(&index_key(&pod.meta.namespace, name));
            }
        }
    });
    let made_from = pods.index("claim templates", |pod, key| {
        for claim in &pod.spec.resource_claims {
            if !claim.resource_claim_template_name.is_empty() {
                key(&index_key(&pod.meta.namespace, &claim.resource_claim_template_name));
            }
        }
    });
    let made_for = claims.index("owning pod", |claim, key| {
        if let Some(owner) = plan::owning_pod(claim) {
            key(&owner.uid);
        }
    });
    let pod_claims = PodClaims {
        pods: pods.clone(),
        claims: claims.clone(),
        templates,
        made_for,
        admin_access: context.gates.enabled("DRAAdminAccess"),
        prioritized: context.gates.enabled("DRAPrioritizedList"),
    };
    of_pods(context, pod_claims, using, made_from);
    of_claims(context, Claims { pods, claims, gone: DeletedPods::default() });
    Ok(())
}

/// Starts the controller of pods, which events of their claims and templates enqueue, too.
fn of_pods(
    context: &ControllerContext,
    planner: PodClaims,
    using: Index<Pod>,
    made_from: Index<Pod>,
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
        .watches(&planner.claims, move |event, enqueue| enqueue_users(event, &using, enqueue))
        .watches(&planner.templates, move |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                enqueue_users(event, &made_from, enqueue);
            }
        });
    context.run(builder.planned_with(planner, metrics));
}

/// Starts the controller of claims, which events of finished and deleted pods enqueue, too.
fn of_claims(context: &ControllerContext, planner: Claims) {
    let gone = planner.gone.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &planner.claims, |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                enqueue.add(Key::of(event.object().meta()));
            }
        })
        .named(OF_CLAIMS)
        .workers(context.options.resourceclaim.concurrent_syncs)
        .watches(&planner.pods, move |event, enqueue| {
            let pod = event.object();
            let deleted = matches!(event, CacheEvent::Deleted(_));
            let claims = plan::claims_of(pod);
            if deleted && claims.clone().next().is_some() {
                gone.lock().add(&pod.meta.uid);
            }
            if deleted || plan::is_done(pod) {
                claims.for_each(|name| enqueue.add(Key::new(&pod.meta.namespace, name)));
            }
        });
    context.run(builder.planned(planner));
}

/// Planner of pods' claims.
struct PodClaims {
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    templates: Cache<Template>,
    /// Claims by the uid of the owning pod. Upstream: `claimPodOwnerIndex`.
    made_for: Index<Claim>,
    admin_access: bool,
    prioritized: bool,
}

impl Planner for PodClaims {
    type Observed = pod::Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<pod::Observed> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        let named = |claim: &PodResourceClaim| pod::Named {
            claim: match plan::name(&pod, claim) {
                plan::Name::Is(name) => self.claims.get(&key.namespace, name),
                _ => None,
            },
            template: self.templates.get(&key.namespace, &claim.resource_claim_template_name),
        };
        let named = pod.spec.resource_claims.iter().map(named).collect();
        let owned = self.made_for.get(&pod.meta.uid);
        let Self { admin_access, prioritized, .. } = *self;
        Some(pod::Observed { pod, named, owned, admin_access, prioritized })
    }

    fn plan(&self, observed: &pod::Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (pod::plan(observed), ())
    }

    fn next(
        &self,
        observed: &pod::Observed,
        (): &(),
        done: &Outcomes,
        _: Timestamp,
    ) -> Option<Plan> {
        pod::next(observed, done)
    }

    fn describe(&self, observed: &pod::Observed, _: Timestamp) -> Description {
        pod::describe(observed)
    }
}

impl PassHandler<PodClaims> for Metrics {
    fn on_passed(&self, observed: &pod::Observed, pass: &Pass<'_>) {
        for (claim, succeeded) in pod::creates(observed, pass.outcomes) {
            self.created(&claim, succeeded);
        }
    }
}

/// Planner of claims' reservations.
struct Claims {
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    gone: DeletedPods,
}

/// The last deleted pods; clones refer to the same ones.
#[derive(Clone, Default)]
struct DeletedPods(Arc<Mutex<DeletedUidCache>>);

impl DeletedPods {
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
            let is_gone = self.gone.lock().has(&consumer.uid);
            decisions.push(release::decide_consumer(consumer, is_gone, pod.as_deref()));
        }
        let owner = plan::owning_pod(&claim);
        let owner = owner.and_then(|owner| self.pods.get(&key.namespace, &owner.name));
        Some(release::Observed { claim, decisions, owner })
    }

    fn plan(&self, observed: &release::Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (release::plan(observed), ())
    }

    fn next(
        &self,
        observed: &release::Observed,
        (): &(),
        done: &Outcomes,
        _: Timestamp,
    ) -> Option<Plan> {
        release::next(observed, done)
    }

    fn describe(&self, observed: &release::Observed, _: Timestamp) -> Description {
        release::describe(observed)
    }
}

/// Enqueues the pods that the index has under the object's name.
fn enqueue_users<V: evenkeel_api::View>(
    event: &CacheEvent<V>,
    index: &Index<Pod>,
    enqueue: &Enqueue,
) {
    let meta = event.object().meta();
    let pods = index.get(&index_key(&meta.namespace, &meta.name));
    pods.iter().filter(|pod| !pod.meta.deleting()).for_each(|pod| enqueue.add(Key::of(&pod.meta)));
}

fn index_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}
