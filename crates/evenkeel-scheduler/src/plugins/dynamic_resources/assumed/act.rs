//! Reserve, PreBind and PostBind of the plugin.

use evenkeel_api::views::ResourceClaim;
use evenkeel_runtime::client::Client;
use std::sync::{Arc, PoisonError};

use super::{ExtendedClaimInCreation, must_wait};
use crate::{
    framework::{
        CycleState, PluginFuture, PostBind, PreBind, PreBindError, PreBindPreFlight, Reserve,
        Status, StatusResult,
    },
    plugins::dynamic_resources::{
        AttemptState, DynamicResources, Observed, bind::act as writes, claims, lock,
    },
    pod::PodInfo,
};

impl Reserve for DynamicResources {
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> StatusResult {
        let (Some(attempt_state), Some(observed)) =
            (state.get::<AttemptState>(), self.observed.get())
        else {
            return Ok(());
        };
        let assumed = attempt_state
            .attempt
            .assumed_claims(node, &lock(&attempt_state.results))
            .ok_or_else(|| Status::error("claim allocation not found for node"))?;
        let mut tracker = lock(&observed.tracker);
        for (uid, allocation) in assumed.new_allocations() {
            tracker.add_pending(uid, Arc::clone(&allocation.result));
        }
        drop(tracker);
        // Dropping the state releases its reference to the inventory, so that a later update need not copy it.
        state.remove::<AttemptState>();
        if !assumed.claims.is_empty() || assumed.extended_claim.is_some() {
            lock(&self.assumed).insert(pod.uid().into(), assumed);
        }
        Ok(())
    }

    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        let assumed = lock(&self.assumed).remove(pod.uid());
        let (Some(assumed), Some(observed)) = (assumed, self.observed.get()) else { return };
        let mut tracker = lock(&observed.tracker);
        assumed.new_allocations().for_each(|(uid, _)| tracker.remove_unwritten(uid));
        drop(tracker);
        for (claim, _) in assumed.claims {
            let (namespace, name) = (&claim.meta.namespace, &claim.meta.name);
            let claim = self.claim(observed, namespace, name).unwrap_or(claim);
            if claim.status.allocation.is_none() || !claims::is_reserved(&claim, &pod.pod) {
                continue;
            }
            let (client, pod) = (observed.handle.client.clone(), Arc::clone(&pod.pod));
            observed.handle.tasks.spawn_finite("claim release", async move {
                if let Err(error) = writes::release(&client, &claim, &pod).await {
                    // The pod's next attempt or the ResourceClaim controller repeats a failed write.
                    let (namespace, name) = (&claim.meta.namespace, &claim.meta.name);
                    tracing::debug!(%namespace, %name, %error, "Claim not released");
                }
            });
        }
        if let Some(written) = assumed.extended_claim.and_then(|in_creation| in_creation.written) {
            release_claim(observed, written);
        }
    }
}

/// Deletes a claim for extended resources that is no longer needed.
fn release_claim(observed: &Observed, written: Arc<ResourceClaim>) {
    let extended_claims = Arc::clone(&observed.extended_claims);
    extended_claims.lock().unwrap_or_else(PoisonError::into_inner).release_claim(&written);
    let client = observed.handle.client.clone();
    observed.handle.tasks.spawn_finite("claim deletion", async move {
        if let Err(error) = writes::delete(&client, &written).await {
            // The pod's next attempt finds the claim and retries the deletion.
            let (namespace, name) = (&written.meta.namespace, &written.meta.name);
            tracing::debug!(%namespace, %name, %error, "Claim for extended resources not deleted");
            extended_claims.lock().unwrap_or_else(PoisonError::into_inner).undo_release(&written);
        }
    });
}

impl PreBind for DynamicResources {
    fn pre_bind_pre_flight(&self, pod: &PodInfo, _: &str) -> PreBindPreFlight {
        if lock(&self.assumed).contains_key(pod.uid()) {
            PreBindPreFlight::Act { parallel: true }
        } else {
            PreBindPreFlight::Skip
        }
    }

    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> PluginFuture<'a, Result<(), PreBindError>> {
        Box::pin(async move {
            let assumed = lock(&self.assumed).get(pod.uid()).cloned();
            let (Some(assumed), Some(observed)) = (assumed, self.observed.get()) else {
                return Ok(());
            };
            let mut must_wait_for_devices = false;
            for (claim, allocation) in assumed.claims {
                let claim = if claims::is_reserved(&claim, &pod.pod) {
                    claim
                } else {
                    let now = observed.handle.clock.now();
                    let written =
                        writes::reserve(client, &pod.pod, claim, allocation.as_ref(), now).await?;
                    lock(&observed.tracker).record_write(Arc::clone(&written));
                    written
                };
                must_wait_for_devices |= must_wait(&claim);
            }
            if let Some(in_creation) = assumed.extended_claim {
                must_wait_for_devices |= must_wait(
                    &*self.create_extended_claim(observed, client, pod, in_creation).await?,
                );
            }
            if must_wait_for_devices { self.wait(observed, pod, node).await } else { Ok(()) }
        })
    }
}

impl PostBind for DynamicResources {
    fn post_bind(&self, pod: &PodInfo, _: &str) {
        lock(&self.assumed).remove(pod.uid());
    }
}

impl DynamicResources {
    /// Creates the claim for the pod's extended resources, writes its allocation, and sets the pod's status.
    async fn create_extended_claim(
        &self,
        observed: &Observed,
        client: &Client,
        pod: &PodInfo,
        in_creation: ExtendedClaimInCreation,
    ) -> Result<Arc<ResourceClaim>, PreBindError> {
        let ExtendedClaimInCreation { extended_claim, allocation, .. } = in_creation;
        let created = writes::create_extended(client, &extended_claim.claim).await;
        observed.handle.metrics.claims().count_creation(created.is_ok());
        let created = Arc::new(created?);
        self.record_written_claim(pod, &created);
        lock(&observed.tracker).rename_pending(&extended_claim.claim.meta.uid, &created.meta.uid);
        let now = observed.handle.clock.now();
        let written = writes::reserve(client, &pod.pod, created, Some(&allocation), now).await?;
        self.record_written_claim(pod, &written);
        lock(&observed.tracker).record_write(Arc::clone(&written));
        writes::patch_pod_status(client, &pod.pod, &written.meta.name, &extended_claim.mappings)
            .await?;
        Ok(written)
    }

    /// Records the written claim, so that `unreserve` deletes it if the pod is not bound.
    fn record_written_claim(&self, pod: &PodInfo, claim: &Arc<ResourceClaim>) {
        let mut assumed = lock(&self.assumed);
        if let Some(in_creation) =
            assumed.get_mut(pod.uid()).and_then(|claims| claims.extended_claim.as_mut())
        {
            in_creation.written = Some(Arc::clone(claim));
        }
    }
}
