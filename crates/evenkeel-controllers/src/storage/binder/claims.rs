//! The half that looks at claims.

use super::{
    Binder, DESCRIPTOR, host_path,
    plan::claim::{self, Maker, Seen},
};
use crate::{descriptor::ControllerContext, pods};
use evenkeel_api::{
    Text, storage,
    views::{PersistentVolumeClaim, Pod},
};
use evenkeel_runtime::{
    cache::CacheEvent,
    controller::{Context, Error, Outcome},
    introspect,
    plan::Key,
};
use std::sync::Arc;

/// Runs it. One worker: two could choose one volume for two claims.
pub(super) fn start(context: &ControllerContext, binder: &Arc<Binder>) {
    let (for_pass, told) = (Arc::clone(binder), Arc::clone(binder));
    let (of_volumes, of_classes) = (Arc::clone(binder), Arc::clone(binder));
    let metrics = binder.metrics.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &binder.claims, move |event, enqueue| {
            if let CacheEvent::Deleted(claim) = event {
                metrics.forget(&claim.meta);
            } else {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .watches(&binder.volumes, move |event, enqueue| {
            of_volumes.concerned_by_volume(event).into_iter().for_each(|key| enqueue.add(key));
        })
        .watches(&binder.classes, move |event, enqueue| {
            let keys = of_classes.concerned_by_class(event.object());
            keys.into_iter().for_each(|key| enqueue.add(key));
        })
        .explains(move |key, _| {
            let seen = told.claim_seen(key)?;
            let plan = claim::plan(&seen, &told.options);
            let would = plan.actions.iter().map(introspect::action).collect();
            Some((claim::describe(&seen), would))
        });
    context.run(binder.described(builder).reconcile(move |request, context| {
        let binder = Arc::clone(&for_pass);
        async move { binder.pass_over_claim(&request.key, &context).await }
    }));
}

impl Binder {
    fn claim_seen(&self, key: &Key) -> Option<Seen> {
        let claim = self.claims.get(&key.namespace, &key.name)?;
        let class = storage::class_of_claim(&claim);
        let named = match &*claim.spec.volume_name {
            "" => None,
            name => self.volumes.get("", name),
        };
        let unbound = !claim.meta.annotations.contains(storage::BIND_COMPLETED);
        let mut candidates = Vec::new();
        if unbound && claim.spec.volume_name.is_empty() {
            candidates = self.promised.get(&storage::claim_key(&key.namespace, &key.name));
            candidates.extend(self.free.get(class));
        }
        let nameless = unbound && !storage::names_class(&claim);
        let default_class =
            nameless.then(|| storage::default_class(&self.classes.list()).cloned()).flatten();
        Some(Seen {
            named,
            candidates,
            class: Some(class).filter(|c| !c.is_empty()).and_then(|c| self.classes.get("", c)),
            default_class,
            waiting: if unbound { self.waiting(&claim) } else { Vec::new() },
            claim,
        })
    }

    /// Pods that want the claim and have no node.
    fn waiting(&self, claim: &PersistentVolumeClaim) -> Vec<Text> {
        let users = self.users.get(&storage::claim_key(&claim.meta.namespace, &claim.meta.name));
        let waits = |pod: &&Arc<Pod>| {
            pod.spec.node_name.is_empty() && !pods::is_terminal(pod) && !pod.meta.deleting()
        };
        let mut names: Vec<Text> =
            users.iter().filter(waits).map(|pod| pod.meta.name.clone()).collect();
        names.sort_unstable();
        names
    }

    async fn pass_over_claim(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(seen) = self.claim_seen(key) else { return Ok(Outcome::Settled) };
        let plan = claim::plan(&seen, &self.options);
        let filled_in = claim::default_class(&seen).is_some();
        let wants = claim::wants_volume(&seen, &self.options) && !filled_in;
        let now = context.env.clock.now();
        if wants && let Maker::External(maker) = claim::maker(&seen) {
            self.metrics.begun(&seen.claim.meta, maker, now);
        }
        let done = context.act(key, &plan).await;
        if filled_in && !plan.actions.is_empty() {
            self.metrics.filled_in(done.is_ok());
        }
        let binds = seen.candidates.iter().any(|volume| storage::is_for_claim(volume, &seen.claim));
        match &done {
            Ok(_) if binds => self.metrics.bound(&seen.claim.meta, now),
            Err(_) => self.metrics.failed(&seen.claim.meta),
            Ok(_) => {}
        }
        done?;
        if wants && claim::maker(&seen) == Maker::HostPath {
            host_path::provision(&seen, &self.options, key, context).await?;
        }
        Ok(plan.requeue.map_or(Outcome::Settled, Outcome::again))
    }
}
