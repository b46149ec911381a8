//! Changes that allocate, reserve, release and delete claims. [`act`] writes them.

pub(super) mod act;

use evenkeel_api::{
    Text,
    time::{self, Timestamp},
    views::{Pod, ResourceClaim},
};
use serde_json::{Value, json};

use super::{claims, result::Allocation};

/// Finalizer that protects allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Maximum number of attempts of a write that conflicts.
const MAX_ATTEMPTS: usize = 5;

/// Changes that allocate and reserve a claim for a pod.
#[derive(Debug, PartialEq, Eq)]
struct Reservation {
    /// Change of the metadata, to be written before the status, or `None` if it needs no finalizer.
    finalizers: Option<Value>,
    /// Change of the status.
    status: Value,
}

/// Returns the changes that allocate and reserve the claim for the pod.
///
/// # Errors
/// Fails if the claim was deleted, allocated or deallocated since the decision.
///
/// Upstream: `bindClaim`.
fn reservation(
    claim: &ResourceClaim,
    pod: &Pod,
    allocation: Option<&Allocation>,
    now: Timestamp,
) -> Result<Reservation, String> {
    let name = || format!("{}/{}", claim.meta.namespace, claim.meta.name);
    let refuse = |reason: &str| Err(format!("claim {} {reason}", name()));
    if claim.meta.deleting() {
        return refuse("got deleted in the meantime");
    }
    let current = claim.status.allocation.as_deref();
    let mut status = match (allocation, current) {
        (Some(_), Some(_)) => return refuse("got allocated elsewhere in the meantime"),
        (None, None) => return refuse("got deallocated elsewhere in the meantime"),
        (Some(allocation), None) => {
            let mut json = (*allocation.json).clone();
            json["allocationTimestamp"] = json!(time::seconds(now));
            json!({ "allocation": json })
        }
        (None, Some(current)) if current.allocation_timestamp.is_none() => {
            json!({ "allocation": { "allocationTimestamp": time::seconds(now) } })
        }
        (None, Some(_)) => json!({}),
    };
    let is_protected = claim.meta.finalizers.iter().any(|finalizer| **finalizer == *FINALIZER);
    let finalizers = (allocation.is_some() && !is_protected).then(|| {
        let present = claim.meta.finalizers.iter().map(|finalizer| &**finalizer);
        let finalizers: Vec<&str> = present.chain([FINALIZER]).collect();
        json!({ "metadata": { "finalizers": finalizers } })
    });
    status["reservedFor"] = reserved_for_with(claim, pod);
    Ok(Reservation { finalizers, status: json!({ "status": status }) })
}

/// Returns `status.reservedFor` with the pod added.
fn reserved_for_with(claim: &ResourceClaim, pod: &Pod) -> Value {
    let mut consumers: Vec<Value> = Vec::new();
    for consumer in &claim.status.reserved_for {
        let mut json =
            json!({ "resource": consumer.resource, "name": consumer.name, "uid": consumer.uid });
        if !consumer.api_group.is_empty() {
            json["apiGroup"] = json!(consumer.api_group);
        }
        consumers.push(json);
    }
    consumers.push(json!({ "resource": "pods", "name": pod.meta.name, "uid": pod.meta.uid }));
    Value::Array(consumers)
}

/// Makes the change conditional on the claim's uid and this resource version.
fn with_preconditions(claim: &ResourceClaim, version: &str, mut change: Value) -> Value {
    change["metadata"]["uid"] = json!(claim.meta.uid);
    change["metadata"]["resourceVersion"] = json!(version);
    change
}

/// Returns `current`, which a read after a conflict returned, if it is the same claim as `old`. Upstream in contrast
/// writes to any claim of the name.
///
/// # Errors
/// Fails if another claim already has the name.
fn same_claim(old: &ResourceClaim, current: ResourceClaim) -> Result<ResourceClaim, String> {
    if current.meta.uid == old.meta.uid {
        return Ok(current);
    }
    let meta = &old.meta;
    Err(format!("claim {}/{} got deleted in the meantime", meta.namespace, meta.name))
}

/// Returns the change that deallocates a claim.
fn deallocation() -> Value {
    json!({ "status": { "allocation": null, "reservedFor": null, "devices": null } })
}

/// Returns the change that removes the pod's reservation, or `None` if there is nothing to release.
fn release_of(claim: &ResourceClaim, pod: &Pod) -> Option<Value> {
    if claim.status.allocation.is_none() || !claims::is_reserved(claim, pod) {
        return None;
    }
    Some(json!({
        "metadata": { "uid": claim.meta.uid },
        "status": { "reservedFor": [{ "$patch": "delete", "uid": pod.meta.uid }] },
    }))
}

/// Returns the change that removes the finalizer, or `None` if the claim does not have it.
fn finalizer_removal(claim: &ResourceClaim) -> Option<Value> {
    let others: Vec<&Text> =
        claim.meta.finalizers.iter().filter(|finalizer| ***finalizer != *FINALIZER).collect();
    if others.len() == claim.meta.finalizers.len() {
        return None;
    }
    Some(json!({ "metadata": { "finalizers": others } }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::object;
    use super::*;
    use crate::fixtures::{at, info};
    use std::sync::Arc;

    fn claim(more: &Value) -> Arc<ResourceClaim> {
        object("c", more)
    }

    fn allocation() -> Allocation {
        let json = json!({ "devices": { "results": [] } });
        Allocation { result: Arc::default(), json: Arc::new(json), rank: 0 }
    }

    #[test]
    fn a_claim_that_changed_since_the_decision_is_refused() {
        let pod = info("web", &json!({}));
        let allocated = json!({ "status": { "allocation": {} } });
        let deleted = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } });
        for (current, decided, reason) in [
            (&deleted, Some(allocation()), "claim shop/c got deleted in the meantime"),
            (
                &allocated,
                Some(allocation()),
                "claim shop/c got allocated elsewhere in the meantime",
            ),
            (&json!({}), None, "claim shop/c got deallocated elsewhere in the meantime"),
        ] {
            let refused = reservation(&claim(current), &pod.pod, decided.as_ref(), at(0));
            assert_eq!(refused.unwrap_err(), reason);
        }
    }

    #[test]
    fn an_allocation_is_written_after_the_finalizer() {
        let pod = info("web", &json!({}));
        let user = json!({ "resource": "pods", "name": "web", "uid": "web" });
        let protected = json!({ "metadata": { "finalizers": ["other", FINALIZER] } });
        for (current, finalizers) in [
            (json!({}), Some(json!([FINALIZER]))),
            (json!({ "metadata": { "finalizers": ["other"] } }), Some(json!(["other", FINALIZER]))),
            (protected, None),
        ] {
            let change =
                reservation(&claim(&current), &pod.pod, Some(&allocation()), at(0)).unwrap();
            let finalizers = finalizers.map(|all| json!({ "metadata": { "finalizers": all } }));
            assert_eq!(change.finalizers, finalizers, "{current}");
            let allocation = json!({ "devices": { "results": [] }, "allocationTimestamp": time::seconds(at(0)) });
            let status = json!({ "allocation": allocation, "reservedFor": [user] });
            assert_eq!(change.status, json!({ "status": status }), "{current}");
        }
    }

    #[test]
    fn absent_reservations_and_finalizers_need_no_write() {
        let pod = info("web", &json!({}));
        let (none, user) = (claim(&json!({})), json!({ "name": "web", "uid": "web" }));
        assert_eq!((release_of(&none, &pod.pod), finalizer_removal(&none)), (None, None));
        let unallocated = claim(&json!({ "status": { "reservedFor": [user] } }));
        assert_eq!(release_of(&unallocated, &pod.pod), None);
        let protected = claim(&json!({ "metadata": { "finalizers": [FINALIZER, "other"] } }));
        let others = json!({ "metadata": { "finalizers": ["other"] } });
        assert_eq!(finalizer_removal(&protected), Some(others));
    }
}
