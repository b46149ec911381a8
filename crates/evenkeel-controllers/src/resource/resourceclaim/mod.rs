//! ResourceClaim controller: creates pods' claims from templates, reserves claims for scheduled pods, and releases
//! those of finished pods (KEP-3063, KEP-4381). Upstream: `pkg/controller/resourceclaim`.

mod act;
mod gone;
mod metrics;
mod plan;
mod release;

use crate::{
    needs::Resource,
    options::Workers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use act::Claims;
use evenkeel_api::{View as _, views::Pod};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Full, Index},
    controller::Enqueue,
    plan::Key,
};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use std::sync::{Arc, Mutex};

/// A ResourceClaim with all fields, because it is written back whole.
type Claim = Full<ResourceClaim>;
/// A ResourceClaimTemplate with all fields.
type Template = Full<ResourceClaimTemplate>;

/// Number of pods, and how many claims, processed concurrently; `--concurrent-resourceclaim-syncs`.
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
    ..Descriptor::ORDINARY
};

/// Name of the queue of claims; the main queue has pods.
const OF_CLAIMS: &str = "resourceclaim-controller-claims";

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let caches = &context.env.caches;
    let (pods, claims) = (caches.of::<Pod>(), caches.of::<Claim>());
    let templates = caches.of::<Template>();
    let using = pods.index("claims", |pod, key| {
        for claim in &pod.spec.resource_claims {
            if let plan::Name::Is(name) = plan::name(pod, claim) {
                key(&within(&pod.meta.namespace, name));
            }
        }
    });
    let made_from = pods.index("claim templates", |pod, key| {
        for claim in &pod.spec.resource_claims {
            if !claim.resource_claim_template_name.is_empty() {
                key(&within(&pod.meta.namespace, &claim.resource_claim_template_name));
            }
        }
    });
    let made_for = claims.index("owning pod", |claim, key| {
        if let Some(owner) = plan::owning_pod(claim) {
            key(&owner.uid);
        }
    });
    let controller = Arc::new(Claims {
        metrics: metrics::Metrics::new(&context.registry, &claims),
        pods: pods.clone(),
        claims: claims.clone(),
        templates: templates.clone(),
        made_for,
        gone: Mutex::default(),
        admin_access: context.gates.enabled("DRAAdminAccess"),
        prioritized: context.gates.enabled("DRAPrioritizedList"),
    });
    of_pods(context, &pods, &claims, &templates, using, made_from, &controller);
    of_claims(context, &pods, &claims, controller);
    Ok(())
}

/// Enqueues pods on events of their claims and templates.
fn of_pods(
    context: &ControllerContext,
    pods: &Cache<Pod>,
    claims: &Cache<Claim>,
    templates: &Cache<Template>,
    using: Index<Pod>,
    made_from: Index<Pod>,
    controller: &Arc<Claims>,
) {
    let builder = context
        .builder_watching(&DESCRIPTOR, pods, |event, enqueue| {
            let pod = event.object();
            let is_there = !matches!(event, CacheEvent::Deleted(_)) && !pod.meta.deleting();
            if is_there && !pod.spec.resource_claims.is_empty() {
                enqueue.add(Key::of(&pod.meta));
            }
        })
        .event_source("resource_claim")
        .workers(context.options.resourceclaim.concurrent_syncs)
        .watches(claims, move |event, enqueue| named(event, &using, enqueue))
        .watches(templates, move |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                named(event, &made_from, enqueue);
            }
        });
    let (explained, controller) = (Arc::clone(controller), Arc::clone(controller));
    let builder = builder.explains(move |key, _| explained.describe_pod(key));
    context.run(builder.reconcile(move |request, context| {
        let controller = Arc::clone(&controller);
        async move { controller.pod(&request.key, &context).await }
    }));
}

/// Enqueues claims on events of pods that no longer need them.
fn of_claims(
    context: &ControllerContext,
    pods: &Cache<Pod>,
    claims: &Cache<Claim>,
    controller: Arc<Claims>,
) {
    let (told, explained) = (Arc::clone(&controller), Arc::clone(&controller));
    let builder = context
        .builder_watching(&DESCRIPTOR, claims, |event, enqueue| {
            if !matches!(event, CacheEvent::Deleted(_)) {
                enqueue.add(Key::of(event.object().meta()));
            }
        })
        .named(OF_CLAIMS)
        .workers(context.options.resourceclaim.concurrent_syncs)
        .watches(pods, move |event, enqueue| {
            let pod = event.object();
            let deleted = matches!(event, CacheEvent::Deleted(_));
            let claims = plan::claims_of(pod);
            if deleted && claims.clone().next().is_some() {
                told.gone().add(&pod.meta.uid);
            }
            if deleted || plan::is_done(pod) {
                claims.for_each(|name| enqueue.add(Key::new(&pod.meta.namespace, name)));
            }
        })
        .explains(move |key, _| explained.describe_claim(key));
    context.run(builder.reconcile(move |request, context| {
        let controller = Arc::clone(&controller);
        async move { controller.claim(&request.key, &context).await }
    }));
}

fn named<V: evenkeel_api::View>(event: &CacheEvent<V>, index: &Index<Pod>, enqueue: &Enqueue) {
    let meta = event.object().meta();
    let pods = index.get(&within(&meta.namespace, &meta.name));
    pods.iter().filter(|pod| !pod.meta.deleting()).for_each(|pod| enqueue.add(Key::of(&pod.meta)));
}

fn within(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}
