//! Writes claims for extended resources, and the allocations and reservations of claims.

use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Pod, ResourceClaim},
};
use evenkeel_runtime::{
    client::{ApiError, Client, DeleteOptions, Metadata},
    plan::PatchForm,
};
use serde_json::Value;
use std::sync::Arc;

use super::{
    MAX_ATTEMPTS, Reservation, at_version, deallocated, released, reservation, unprotected,
};
use crate::{
    framework::PreBindError,
    plugins::dynamic_resources::{
        extended::{self, Mapping},
        extended_claims::pod_status,
        result::Allocation,
    },
};

/// Allocates and reserves the claim for the pod. Every write requires the resource version that was read, so it cannot
/// overwrite a concurrent change. After a conflict it reads the claim again and retries.
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
                let meta = &claim.meta;
                claim = Arc::new(client.get(&meta.namespace, &meta.name).await?);
            }
            other => return other.map(Arc::new),
        }
    }
    Err(PreBindError::Refused("claim not reserved".to_owned()))
}

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
    let (meta, change) = (&claim.meta, at_version(claim, version, change).to_string());
    let (kind, form) = (ResourceClaim::kind(), PatchForm::Merge);
    client.patch(&kind, &meta.namespace, &meta.name, subresource, form, change.into()).await
}

/// Deallocates a claim that no other pod uses.
pub(in super::super) async fn deallocate(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<ResourceClaim, ApiError> {
    patch(client, claim, &claim.meta.resource_version, "status", deallocated()).await
}

/// Removes the pod's reservation, if the claim has it.
pub(in super::super) async fn release(
    client: &Client,
    claim: &ResourceClaim,
    pod: &Pod,
) -> Result<(), ApiError> {
    let Some(change) = released(claim, pod) else { return Ok(()) };
    let (meta, kind) = (&claim.meta, ResourceClaim::kind());
    let (form, change) = (PatchForm::Strategic, change.to_string().into());
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
    let body = extended::body(claim).to_string().into();
    client.create(&ResourceClaim::kind(), &claim.meta.namespace, body).await
}

/// Writes the claim's name and its mappings to the pod's status.
pub(in super::super) async fn patch_pod_status(
    client: &Client,
    pod: &Pod,
    claim: &str,
    mappings: &[Mapping],
) -> Result<(), ApiError> {
    let (kind, meta) = (Pod::kind(), &pod.meta);
    let change = pod_status(pod, claim, mappings).to_string().into();
    let (form, namespace, name) = (PatchForm::Strategic, &meta.namespace, &meta.name);
    client.patch::<Metadata>(&kind, namespace, name, "status", form, change).await.map(drop)
}

/// Removes the finalizer from a claim that no pod will use, and deletes the claim.
pub(in super::super) async fn delete(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<(), ApiError> {
    let ignore_missing = |outcome: Result<(), ApiError>| match outcome {
        Err(error) if error.is_not_found() || error.is_other_uid() => Ok(()),
        outcome => outcome,
    };
    let (kind, meta) = (ResourceClaim::kind(), &claim.meta);
    ignore_missing(unprotect(client, claim).await)?;
    let options = DeleteOptions { uid: meta.uid.to_string(), ..DeleteOptions::default() };
    ignore_missing(client.delete(&kind, &meta.namespace, &meta.name, &options).await.map(drop))
}

/// Removes the finalizer from the claim. After a conflict it reads the claim again and retries.
async fn unprotect(client: &Client, claim: &ResourceClaim) -> Result<(), ApiError> {
    let mut newer;
    let mut claim = claim;
    for attempt in 1.. {
        let Some(change) = unprotected(claim) else { break };
        match patch(client, claim, &claim.meta.resource_version, "", change).await {
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => {
                newer = client.get(&claim.meta.namespace, &claim.meta.name).await?;
                claim = &newer;
            }
            outcome => return outcome.map(drop),
        }
    }
    Ok(())
}
