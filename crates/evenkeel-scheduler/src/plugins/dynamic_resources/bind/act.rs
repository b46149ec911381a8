//! Requests that write claims: their creation and deletion, their allocations and their reservations.

use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Pod, ResourceClaim},
};
use evenkeel_runtime::{
    client::{ApiError, Client, DeleteOptions, Metadata},
    plan::PatchType,
};
use serde_json::Value;
use std::sync::Arc;

use super::{
    MAX_ATTEMPTS, Reservation, deallocation, finalizer_removal, release_of, reservation,
    same_claim, with_preconditions,
};
use crate::{
    framework::PreBindError,
    plugins::dynamic_resources::{
        extended::{self, Mapping},
        extended_claims::pod_status,
        result::Allocation,
    },
};

/// Allocates and reserves the claim for the pod. Every write requires the resource version that was read, so that it
/// cannot overwrite a concurrent change. After a conflict, reads the claim again and retries.
pub(in super::super) async fn reserve(
    client: &Client,
    pod: &Pod,
    claim: Arc<ResourceClaim>,
    allocation: Option<&Allocation>,
    now: Timestamp,
) -> Result<Arc<ResourceClaim>, PreBindError> {
    let mut claim = claim;
    for attempt in 1.. {
        match attempt_to_reserve(client, pod, &claim, allocation, now).await {
            Err(PreBindError::Api(error)) if error.is_conflict() && attempt < MAX_ATTEMPTS => {
                let current: ResourceClaim =
                    client.get(&claim.meta.namespace, &claim.meta.name).await?;
                claim = Arc::new(same_claim(&claim, current).map_err(PreBindError::Refused)?);
            }
            result => return result.map(Arc::new),
        }
    }
    Err(PreBindError::Refused("claim not reserved".to_owned()))
}

/// Writes the finalizer if the claim lacks it, then the allocation and the reservation.
async fn attempt_to_reserve(
    client: &Client,
    pod: &Pod,
    claim: &ResourceClaim,
    allocation: Option<&Allocation>,
    now: Timestamp,
) -> Result<ResourceClaim, PreBindError> {
    let Reservation { finalizers, status } =
        reservation(claim, pod, allocation, now).map_err(PreBindError::Refused)?;
    let mut version = claim.meta.resource_version.clone();
    if let Some(finalizers) = finalizers {
        version = patch(client, claim, &version, "", finalizers).await?.meta.resource_version;
    }
    patch(client, claim, &version, "status", status).await.map_err(Into::into)
}

/// Patches a claim, provided that it still has this resource version.
async fn patch(
    client: &Client,
    claim: &ResourceClaim,
    version: &str,
    subresource: &str,
    change: Value,
) -> Result<ResourceClaim, ApiError> {
    let meta = &claim.meta;
    let change = with_preconditions(claim, version, change).to_string();
    let kind = ResourceClaim::kind();
    let form = PatchType::Merge;
    client.patch(&kind, &meta.namespace, &meta.name, subresource, form, change.into()).await
}

/// Deallocates a claim that no other pod uses.
pub(in super::super) async fn deallocate(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<ResourceClaim, ApiError> {
    patch(client, claim, &claim.meta.resource_version, "status", deallocation()).await
}

/// Removes the pod's reservation, if the claim has it.
pub(in super::super) async fn release(
    client: &Client,
    claim: &ResourceClaim,
    pod: &Pod,
) -> Result<(), ApiError> {
    let Some(change) = release_of(claim, pod) else { return Ok(()) };
    let meta = &claim.meta;
    let kind = ResourceClaim::kind();
    let form = PatchType::Strategic;
    let change = change.to_string().into();
    client
        .patch::<ResourceClaim>(&kind, &meta.namespace, &meta.name, "status", form, change)
        .await
        .map(drop)
}

/// Creates the claim for extended resources, without an allocation.
pub(in super::super) async fn create_extended(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<ResourceClaim, ApiError> {
    let body = extended::create_body(claim).to_string().into();
    client.create(&ResourceClaim::kind(), &claim.meta.namespace, body).await
}

/// Writes the claim's name and its mappings to the pod's status.
pub(in super::super) async fn patch_pod_status(
    client: &Client,
    pod: &Pod,
    claim: &str,
    mappings: &[Mapping],
) -> Result<(), ApiError> {
    let kind = Pod::kind();
    let meta = &pod.meta;
    let change = pod_status(pod, claim, mappings).to_string().into();
    let form = PatchType::Strategic;
    let namespace = &meta.namespace;
    let name = &meta.name;
    client.patch::<Metadata>(&kind, namespace, name, "status", form, change).await.map(drop)
}

/// Removes the finalizer from a claim that no pod will use, and deletes the claim.
pub(in super::super) async fn delete(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<(), ApiError> {
    // A claim that no longer exists, or whose name another claim has, counts as deleted.
    let ignore_missing = |outcome: Result<(), ApiError>| match outcome {
        Err(error) if error.is_not_found_or_replaced() => Ok(()),
        outcome => outcome,
    };
    let kind = ResourceClaim::kind();
    let meta = &claim.meta;
    ignore_missing(remove_finalizer(client, claim).await)?;
    let options = DeleteOptions { uid: meta.uid.to_string(), ..DeleteOptions::default() };
    ignore_missing(client.delete(&kind, &meta.namespace, &meta.name, &options).await.map(drop))
}

/// Removes the finalizer from the claim. After a conflict, reads the claim again and retries.
async fn remove_finalizer(client: &Client, claim: &ResourceClaim) -> Result<(), ApiError> {
    let mut current;
    let mut claim = claim;
    for attempt in 1.. {
        let Some(change) = finalizer_removal(claim) else { break };
        match patch(client, claim, &claim.meta.resource_version, "", change).await {
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => {
                let read = client.get(&claim.meta.namespace, &claim.meta.name).await?;
                // Another claim with the same name keeps its finalizer.
                let Ok(same) = same_claim(claim, read) else { break };
                current = same;
                claim = &current;
            }
            outcome => return outcome.map(drop),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{at, info},
        plugins::dynamic_resources::tests::object,
        scripted::{Answer, Script},
    };
    use evenkeel_runtime::clock::Clock;
    use serde_json::json;

    const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/c";
    const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

    /// Returns the scripted responses of a server on which a claim with this uid has replaced the one that was read.
    fn replaced_by(uid: &str) -> Vec<Answer> {
        let live = json!({
            "kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
            "metadata": {
                "name": "c", "namespace": "shop", "uid": uid, "resourceVersion": "9", "finalizers": [FINALIZER],
            },
            "spec": {},
        });
        let conflict = json!({ "kind": "Status", "code": 409, "reason": "Conflict" });
        vec![Answer::Body(409, conflict), Answer::object(live.clone()), Answer::object(live)]
    }

    fn patch(subresource: &str) -> String {
        format!("PATCH {CLAIM}{subresource}")
    }

    fn get() -> String {
        format!("GET {CLAIM}")
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_never_leads_to_a_write_to_another_claim_of_the_name() {
        let clock = Clock::starting_at(at(0));
        let protected = json!({ "metadata": { "finalizers": [FINALIZER] } });
        let claim: Arc<ResourceClaim> = object("c", &protected);
        for (uid, same) in [(&*claim.meta.uid, true), ("another", false)] {
            let script = Script::new(replaced_by(uid));
            remove_finalizer(&script.client(&clock), &claim).await.unwrap();
            let calls = [patch(""), get(), patch("")];
            assert_eq!(script.take_calls(), calls[..if same { 3 } else { 2 }], "{uid}");

            let script = Script::new(replaced_by(uid));
            let (pod, allocation) = (
                info("web", &json!({})),
                Allocation {
                    result: Arc::default(),
                    json: Arc::new(json!({ "devices": { "results": [] } })),
                    rank: 0,
                },
            );
            let client = script.client(&clock);
            let reserved =
                reserve(&client, &pod.pod, Arc::clone(&claim), Some(&allocation), at(0)).await;
            let calls = [patch("/status"), get(), patch("/status")];
            assert_eq!(script.take_calls(), calls[..if same { 3 } else { 2 }], "{uid}");
            match reserved {
                Ok(_) => assert!(same),
                Err(PreBindError::Refused(message)) => {
                    assert_eq!(
                        (same, &*message),
                        (false, "claim shop/c got deleted in the meantime")
                    );
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}
