//! The half that looks at volumes.

use super::{
    Binder, DESCRIPTOR, host_path,
    plan::{
        reclaim,
        volume::{self, Seen},
    },
};
use crate::wiring::descriptor::ControllerContext;
use evenkeel_api::{
    storage,
    views::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_runtime::{
    controller::{Context, Error, Outcome},
    introspect,
    plan::Key,
};
use std::sync::Arc;

/// Starts the workers of the volume queue.
pub(super) fn start(context: &ControllerContext, binder: &Arc<Binder>) {
    let (for_pass, told) = (Arc::clone(binder), Arc::clone(binder));
    let of_claims = Arc::clone(binder);
    let builder = context
        .builder(&DESCRIPTOR, &binder.volumes)
        .named("persistentvolume-binder-volumes")
        .queue("volumes")
        .watches(&binder.claims, move |event, enqueue| {
            of_claims.concerned_by_claim(event).into_iter().for_each(|key| enqueue.add(key));
        })
        .watches(&binder.pods, |event, enqueue| {
            if let Some(volume) = reclaim::recycled_by(event.object()) {
                enqueue.add(Key::new("", volume));
            }
        })
        .explains(move |key, _| {
            let volume = told.volumes.get("", &key.name)?;
            let cached = told.claim_of(&volume);
            let seen = told.volume_seen(volume, cached);
            let decision = volume::plan(&seen, &told.options);
            let would = decision.plan.actions.iter().map(introspect::action).collect();
            Some((volume::describe(&seen), would))
        });
    context.run(builder.event_source(super::SOURCE).reconcile(move |request, context| {
        let binder = Arc::clone(&for_pass);
        async move { binder.pass_over_volume(&request.key, &context).await }
    }));
}

impl Binder {
    /// The claim that the volume is for, in the cache.
    fn claim_of(&self, volume: &PersistentVolume) -> Option<Arc<PersistentVolumeClaim>> {
        let reference = volume.spec.claim_ref.as_deref()?;
        let claim = self.claims.get(&reference.namespace, &reference.name)?;
        (claim.meta.uid == reference.uid).then_some(claim)
    }

    fn volume_seen(
        &self,
        volume: Arc<PersistentVolume>,
        claim: Option<Arc<PersistentVolumeClaim>>,
    ) -> Seen {
        let reference = volume.spec.claim_ref.as_deref();
        let taken = |of: &ObjectReference| self.claims.get(&of.namespace, &of.name).is_some();
        let users = |of: &ObjectReference| {
            reclaim::users(&self.users.get(&storage::claim_key(&of.namespace, &of.name)))
        };
        let recycled = &*volume.spec.persistent_volume_reclaim_policy == "Recycle";
        let recycler =
            || self.pods.get(reclaim::NAMESPACE, &reclaim::recycler_name(&volume.meta.name));
        Seen {
            name_is_taken: reference.is_some_and(taken),
            users: reference.filter(|_| recycled).map(users).unwrap_or_default(),
            recycler: recycled.then(recycler).flatten(),
            claim,
            volume,
        }
    }

    async fn pass_over_volume(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(volume) = self.volumes.get("", &key.name) else { return Ok(Outcome::Settled) };
        let claim = self.surely_claim_of(&volume, context).await?;
        let seen = self.volume_seen(volume, claim);
        let decision = volume::plan(&seen, &self.options);
        context.act(key, &decision.plan).await?;
        if decision.delete_folder {
            host_path::delete(&seen.volume, &self.options, key, context).await?;
        }
        Ok(decision.plan.requeue.map_or(Outcome::Settled, Outcome::again))
    }

    /// The claim that the volume is for. That there is none is not believed of the cache alone: the volume may be deleted
    /// for it.
    async fn surely_claim_of(
        &self,
        volume: &PersistentVolume,
        context: &Context,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Error> {
        let reference = volume.spec.claim_ref.as_deref().filter(|claim| !claim.uid.is_empty());
        let Some(reference) = reference else { return Ok(None) };
        if let Some(claim) = self.claim_of(volume) {
            return Ok(Some(claim));
        }
        let known = matches!(&*volume.status.phase, "Released" | "Failed");
        if known && self.claims.get(&reference.namespace, &reference.name).is_none() {
            return Ok(None);
        }
        let client = &context.env.client;
        let live = client.get::<PersistentVolumeClaim>(&reference.namespace, &reference.name).await;
        match live {
            Ok(claim) => Ok((claim.meta.uid == reference.uid).then(|| Arc::new(claim))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
