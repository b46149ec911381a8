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
        AttemptState, ClusterState, DynamicResources, bind::act as writes, claims, lock,
    },
    pod::PodInfo,
};

impl Reserve for DynamicResources {
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> StatusResult {
        let (Some(attempt_state), Some(cluster)) =
            (state.get::<AttemptState>(), self.cluster.get())
        else {
            return Ok(());
        };
        let AttemptState { attempt, results, .. } = attempt_state;
        let assumed = attempt
            .assumed_claims(node, &lock(results))
            .ok_or_else(|| Status::error("claim allocation not found for node"))?;
        let mut tracker = lock(&cluster.allocation_tracker);
        for (uid, allocation) in assumed.new_allocations() {
            tracker.add_pending(uid, Arc::clone(&allocation.result));
        }
        drop(tracker);
        // The attempt no longer needs this state. Dropping its reference to the devices in use avoids a copy at their next
        // change.
        state.remove::<AttemptState>();
        if !assumed.claims.is_empty() || assumed.extended_claim.is_some() {
            lock(&self.assumed).insert(pod.uid().into(), assumed);
        }
        Ok(())
    }

    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        let assumed = lock(&self.assumed).remove(pod.uid());
        let (Some(assumed), Some(cluster)) = (assumed, self.cluster.get()) else { return };
        let mut tracker = lock(&cluster.allocation_tracker);
        assumed.new_allocations().for_each(|(uid, _)| tracker.remove_unwritten(uid));
        drop(tracker);
        for (assumed_claim, _) in assumed.claims {
            let namespace = &assumed_claim.meta.namespace;
            let name = &assumed_claim.meta.name;
            let claim = self.claim(cluster, namespace, name).unwrap_or(assumed_claim);
            if claim.status.allocation.is_none() || !claims::is_reserved(&claim, &pod.pod) {
                continue;
            }
            let client = cluster.handle.client.clone();
            let pod = Arc::clone(&pod.pod);
            cluster.handle.tasks.spawn_finite("claim release", async move {
                if let Err(error) = writes::release(&client, &claim, &pod).await {
                    // The pod's next attempt or the ResourceClaim controller repeats a failed write.
                    let namespace = &claim.meta.namespace;
                    let name = &claim.meta.name;
                    tracing::debug!(%namespace, %name, %error, "Claim not released");
                }
            });
        }
        if let Some(written) = assumed.extended_claim.and_then(|in_creation| in_creation.written) {
            delete_extended_claim(cluster, written);
        }
    }
}

/// Deletes a claim for extended resources that is no longer needed. Until the cache shows the deletion, the plugin
/// hides the claim from other attempts.
fn delete_extended_claim(cluster: &ClusterState, written: Arc<ResourceClaim>) {
    let extended_claims = Arc::clone(&cluster.extended_claims);
    extended_claims.lock().unwrap_or_else(PoisonError::into_inner).hide(&written);
    let client = cluster.handle.client.clone();
    cluster.handle.tasks.spawn_finite("claim deletion", async move {
        if let Err(error) = writes::delete(&client, &written).await {
            // The pod's next attempt finds the claim and retries the deletion.
            let namespace = &written.meta.namespace;
            let name = &written.meta.name;
            tracing::debug!(%namespace, %name, %error, "Claim for extended resources not deleted");
            extended_claims.lock().unwrap_or_else(PoisonError::into_inner).unhide(&written);
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
            let (Some(assumed), Some(cluster)) = (assumed, self.cluster.get()) else {
                return Ok(());
            };
            let mut must_wait_for_devices = false;
            for (claim, allocation) in assumed.claims {
                let claim = if claims::is_reserved(&claim, &pod.pod) {
                    claim
                } else {
                    let now = cluster.handle.clock.now();
                    let written =
                        writes::reserve(client, &pod.pod, claim, allocation.as_ref(), now).await?;
                    lock(&cluster.allocation_tracker).record_write(Arc::clone(&written));
                    written
                };
                must_wait_for_devices |= must_wait(&claim);
            }
            if let Some(in_creation) = assumed.extended_claim {
                let created = self.create_extended_claim(cluster, client, pod, in_creation).await?;
                must_wait_for_devices |= must_wait(&created);
            }
            if must_wait_for_devices { self.wait(cluster, pod, node).await } else { Ok(()) }
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
        cluster: &ClusterState,
        client: &Client,
        pod: &PodInfo,
        in_creation: ExtendedClaimInCreation,
    ) -> Result<Arc<ResourceClaim>, PreBindError> {
        let ExtendedClaimInCreation { planned, allocation, .. } = in_creation;
        let created = writes::create_extended(client, &planned.claim).await;
        cluster.handle.metrics.claims().count_creation(created.is_ok());
        let created = Arc::new(created?);
        self.remember_claim_to_delete(pod, &created);
        lock(&cluster.allocation_tracker)
            .replace_placeholder_uid(&planned.claim.meta.uid, &created.meta.uid);
        let now = cluster.handle.clock.now();
        let written = writes::reserve(client, &pod.pod, created, Some(&allocation), now).await?;
        self.remember_claim_to_delete(pod, &written);
        lock(&cluster.allocation_tracker).record_write(Arc::clone(&written));
        writes::patch_pod_status(client, &pod.pod, &written.meta.name, &planned.mappings).await?;
        Ok(written)
    }

    /// Records the written claim, so that `unreserve` deletes it if the pod is not bound.
    fn remember_claim_to_delete(&self, pod: &PodInfo, claim: &Arc<ResourceClaim>) {
        let mut assumed_by_pod = lock(&self.assumed);
        let assumed = assumed_by_pod.get_mut(pod.uid());
        if let Some(in_creation) = assumed.and_then(|assumed| assumed.extended_claim.as_mut()) {
            in_creation.written = Some(Arc::clone(claim));
        }
    }
}
