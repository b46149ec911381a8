//! The half that looks at claims.

use super::{
    Binder, DESCRIPTOR, host_path,
    plan::claim::{self, Next, Provisioner, Seen},
};
use crate::{storage::persistentvolumeclaimprotection, wiring::descriptor::ControllerContext};
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
            let next = claim::next(&seen, &told.options);
            let plan = claim::plan(&seen, &next, &told.options);
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
            pod.spec.node_name.is_empty() && !persistentvolumeclaimprotection::is_terminated(pod)
        };
        let mut names: Vec<Text> =
            users.iter().filter(waits).map(|pod| pod.meta.name.clone()).collect();
        names.sort_unstable();
        names
    }

    async fn pass_over_claim(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(seen) = self.claim_seen(key) else { return Ok(Outcome::Settled) };
        let next = claim::next(&seen, &self.options);
        let plan = claim::plan(&seen, &next, &self.options);
        let now = context.env.clock.now();
        if let Next::Provision(Provisioner::External(provisioner)) = next {
            self.metrics.begun(&seen.claim.meta, provisioner, now);
        }
        let done = context.act(key, &plan).await;
        match (&next, &done) {
            (Next::DefaultClass(_), _) => self.metrics.filled_in(done.is_ok()),
            (Next::Bind(_), Ok(_)) => self.metrics.bound(&seen.claim.meta, now),
            _ => {}
        }
        if done.is_err() {
            self.metrics.failed(&seen.claim.meta);
        }
        done?;
        if let Next::Provision(Provisioner::HostPath) = next {
            host_path::provision(&seen, &self.options, key, context).await?;
        }
        Ok(plan.requeue.map_or(Outcome::Settled, Outcome::again))
    }
}
