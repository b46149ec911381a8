//! Writes allocations and reservations of claims.

use evenkeel_api::{
    View,
    time::{self, Timestamp},
    views::{Pod, ResourceClaim},
};
use evenkeel_runtime::{
    client::{ApiError, Client},
    plan::PatchForm,
};
use serde_json::{Value, json};
use std::sync::Arc;

use super::{claims, result::Allocation};
use crate::framework::PreBindError;

/// Finalizer of allocated claims.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Maximum number of attempts on conflicts.
pub(super) const MAX_ATTEMPTS: usize = 5;

/// Allocates and reserves the claim for the pod. Writes with the resource version that was read, so that no concurrent write
/// is lost.
pub(super) async fn reserve(
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
    let name = || format!("{}/{}", claim.meta.namespace, claim.meta.name);
    let refuse = |why: &str| Err(PreBindError::Refused(format!("claim {} {why}", name())));
    if claim.meta.deleting() {
        return refuse("got deleted in the meantime");
    }
    let known = claim.status.allocation.as_deref();
    let mut status = match (allocation, known) {
        (Some(_), Some(_)) => return refuse("got allocated elsewhere in the meantime"),
        (None, None) => return refuse("got deallocated elsewhere in the meantime"),
        (Some(allocation), None) => {
            let mut written = (*allocation.written).clone();
            written["allocationTimestamp"] = json!(time::seconds(now));
            json!({ "allocation": written })
        }
        (None, Some(known)) if known.allocation_timestamp.is_none() => {
            json!({ "allocation": { "allocationTimestamp": time::seconds(now) } })
        }
        (None, Some(_)) => json!({}),
    };
    let mut version = claim.meta.resource_version.clone();
    if allocation.is_some() && !claim.meta.finalizers.iter().any(|one| **one == *FINALIZER) {
        let finalizers: Vec<&str> =
            claim.meta.finalizers.iter().map(|one| &**one).chain([FINALIZER]).collect();
        let change = json!({ "metadata": { "finalizers": finalizers } });
        version = patch(client, claim, &version, "", change).await?.meta.resource_version;
    }
    status["reservedFor"] = reserved_with(claim, pod);
    patch(client, claim, &version, "status", json!({ "status": status })).await.map_err(Into::into)
}

/// Returns `reservedFor` with the pod added.
fn reserved_with(claim: &ResourceClaim, pod: &Pod) -> Value {
    let mut reserved: Vec<Value> = Vec::new();
    for one in &claim.status.reserved_for {
        let mut written = json!({ "resource": one.resource, "name": one.name, "uid": one.uid });
        if !one.api_group.is_empty() {
            written["apiGroup"] = json!(one.api_group);
        }
        reserved.push(written);
    }
    reserved.push(json!({ "resource": "pods", "name": pod.meta.name, "uid": pod.meta.uid }));
    Value::Array(reserved)
}

/// Patches a claim at this resource version.
pub(super) async fn patch(
    client: &Client,
    claim: &ResourceClaim,
    version: &str,
    subresource: &str,
    mut change: Value,
) -> Result<ResourceClaim, ApiError> {
    let meta = &claim.meta;
    change["metadata"]["uid"] = json!(meta.uid);
    change["metadata"]["resourceVersion"] = json!(version);
    let (kind, form) = (ResourceClaim::kind(), PatchForm::Merge);
    client
        .patch(&kind, &meta.namespace, &meta.name, subresource, form, change.to_string().into())
        .await
}

/// Deallocates a claim that no pod uses.
pub(super) async fn deallocate(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<ResourceClaim, ApiError> {
    let change = json!({ "status": { "allocation": null, "reservedFor": null, "devices": null } });
    patch(client, claim, &claim.meta.resource_version, "status", change).await
}

/// Removes the pod's reservation.
pub(super) async fn release(
    client: &Client,
    claim: &ResourceClaim,
    pod: &Pod,
) -> Result<(), ApiError> {
    if claim.status.allocation.is_none() || !claims::is_reserved(claim, pod) {
        return Ok(());
    }
    let (meta, kind) = (&claim.meta, ResourceClaim::kind());
    let change = json!({
        "metadata": { "uid": meta.uid },
        "status": { "reservedFor": [{ "$patch": "delete", "uid": pod.meta.uid }] },
    });
    let form = PatchForm::Strategic;
    let change = change.to_string().into();
    client
        .patch::<ResourceClaim>(&kind, &meta.namespace, &meta.name, "status", form, change)
        .await
        .map(drop)
}
