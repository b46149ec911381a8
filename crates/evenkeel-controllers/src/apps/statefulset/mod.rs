//! StatefulSet controller: runs pods with stable identities and storage. Upstream: `pkg/controller/statefulset`.

mod describe;
mod identity;
mod limits;
mod metrics;
mod observed;
mod plan;
mod recreate;
mod retention;
mod rolling;
mod status;
mod strategy;
#[cfg(test)]
mod tests;

use crate::{
    apps::MIN_STATUS_INTERVAL,
    children::on_child,
    options::Workers,
    owned::ByController,
    pods,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    time::Timestamp,
    views::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Outcomes, PassHandler, Plan, Planned, Planner},
};
use metrics::Gauges;
use observed::Observed;
use strategy::Features;

/// Number of StatefulSets that are reconciled concurrently. Flag `--concurrent-statefulset-syncs`. Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-statefulset-syncs";

/// The controller of StatefulSets.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "statefulset-controller",
    aliases: &["statefulset"],
    queue: "statefulset",
    client: "statefulset-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let sets = caches.of::<StatefulSet>();
    let revisions = caches.of::<ControllerRevision>();
    let claims = caches.of::<PersistentVolumeClaim>();
    let pods = caches.of::<Pod>();
    let planner = StatefulSets {
        sets: sets.clone(),
        pods: ByController::of(&pods),
        owned_revisions: ByController::of(&revisions),
        revisions: revisions.clone(),
        claims: claims.clone(),
        features: Features::of(&context.gates),
    };
    let pod_owners = sets.clone();
    let claim_owners = sets.clone();
    let revision_owners = sets.clone();
    let builder = context
        .builder(&DESCRIPTOR, &sets)
        .workers(context.options.statefulset.concurrent_syncs)
        .min_status_interval(MIN_STATUS_INTERVAL)
        .stale_skips_metric("statefulset_controller_stale_sync_skips_total")
        .watches(&revisions, move |event, enqueue| {
            on_child(
                &revision_owners,
                event,
                |set, revision| set.spec.selector.matches(&revision.meta.labels),
                // Of the updates of a revision, only changes of its labels and its controller matter.
                |_, _| false,
                |key| enqueue.add(key),
            );
        })
        .watches(&pods, move |event, enqueue| {
            on_child(
                &pod_owners,
                event,
                |set, pod| set.spec.selector.matches(&pod.meta.labels),
                |old, new| {
                    old.status.phase != new.status.phase || pods::changes_owner_counts(old, new)
                },
                |key| enqueue.add(key),
            );
        })
        .watches(&claims, move |event, enqueue| {
            on_claim(&claim_owners, event, |key| enqueue.add(key));
        });
    context.run(builder.planned_with(planner, Gauges::register(&context.registry)));
    Ok(Started::Yes)
}

/// Enqueues the StatefulSet to which a deleted claim belonged. It waits for the deletion before it creates a claim with
/// the same name. A claim's name is `<template>-<set>-<ordinal>`, so several sets may match.
fn on_claim(
    sets: &Cache<StatefulSet>,
    event: &CacheEvent<PersistentVolumeClaim>,
    mut enqueue: impl FnMut(Key),
) {
    let CacheEvent::Deleted(claim) = event else { return };
    let Some((template_and_set, _ordinal)) = identity::split_ordinal(&claim.meta.name) else {
        return;
    };
    for set in sets.namespace(&claim.meta.namespace) {
        let Some(template_and_dash) = template_and_set.strip_suffix(&*set.meta.name) else {
            continue;
        };
        let Some(template_name) = template_and_dash.strip_suffix('-') else { continue };
        if set.spec.volume_claim_templates.iter().any(|template| *template.name == *template_name) {
            enqueue(Key::of(&set.meta));
        }
    }
}

/// Decides the pods, the claims, the revisions and the status of a StatefulSet.
struct StatefulSets {
    sets: Cache<StatefulSet>,
    pods: ByController<Pod>,
    owned_revisions: ByController<ControllerRevision>,
    revisions: Cache<ControllerRevision>,
    claims: Cache<PersistentVolumeClaim>,
    features: Features,
}

impl PassHandler<StatefulSets> for Gauges {
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, ()>) {
        self.observe(observed, planned.at);
    }

    fn on_gone(&self, key: &Key) {
        self.forget(&key.namespace, &key.name);
    }
}

impl Planner for StatefulSets {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let namespace = &*key.namespace;
        let set = self.sets.get(namespace, &key.name)?;
        let pods = self.pods.owned_and_orphans(&set.meta.uid, namespace);
        let revisions = self.owned_revisions.owned_and_orphans(&set.meta.uid, namespace);
        let get_revision = |name: &str| self.revisions.get(namespace, name);
        let get_claim = |name: &str| self.claims.get(namespace, name);
        Some(Observed::new(set, pods, revisions, get_revision, get_claim, self.features))
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn describe(&self, observed: &Observed, now: Timestamp) -> Description {
        describe::describe(observed, now)
    }

    fn status(&self, observed: &Observed, (): &(), outcomes: &Outcomes, now: Timestamp) -> Plan {
        status::status(observed, outcomes, now)
    }
}
