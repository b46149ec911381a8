//! ResourceClaims of a pod and their state.

use evenkeel_api::{
    time::Timestamp,
    views::{
        AllocatedDeviceStatus, AllocationResult, DeviceRequestAllocationResult, Pod, ResourceClaim,
    },
};
use std::{sync::Arc, time::Duration};

/// Name of a pod's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimName<'a> {
    pub(super) name: &'a str,
    /// Whether the claim was generated for the pod from a template.
    pub(super) is_generated: bool,
}

/// Returns the names of the pod's claims.
///
/// # Errors
/// Fails if a claim has not been generated yet, or the pod names neither claim nor template.
pub(super) fn names(pod: &Pod) -> Result<Vec<ClaimName<'_>>, String> {
    let mut names = Vec::new();
    for claim in &pod.spec.resource_claims {
        let namespace = &pod.meta.namespace;
        let name = &pod.meta.name;
        if !claim.resource_claim_name.is_empty() {
            names.push(ClaimName { name: &claim.resource_claim_name, is_generated: false });
        } else if claim.resource_claim_template_name.is_empty() {
            return Err(format!(
                "pod \"{namespace}/{name}\", spec.resourceClaim \"{}\": none of the supported fields are set",
                claim.name
            ));
        } else {
            let statuses = &pod.status.resource_claim_statuses;
            let generated = statuses.iter().find(|status| status.name == claim.name);
            let generated = generated.ok_or_else(|| {
                format!("pod \"{namespace}/{name}\": ResourceClaim not created yet")
            })?;
            // A status without a name means that the pod needs no claim.
            let name = generated.resource_claim_name.as_deref();
            names.extend(name.map(|name| ClaimName { name, is_generated: true }));
        }
    }
    Ok(names)
}

/// Returns the pod's claims.
///
/// # Errors
/// Fails if a claim does not exist, is being deleted, or was generated for another pod.
pub(super) fn of_pod(
    pod: &Pod,
    get: impl Fn(&str) -> Option<Arc<ResourceClaim>>,
) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let mut claims = Vec::new();
    for ClaimName { name, is_generated } in names(pod)? {
        let key = format!("{}/{name}", pod.meta.namespace);
        let claim = get(name).ok_or_else(|| not_found(&key))?;
        if claim.meta.deleting() {
            return Err(format!("resourceclaim \"{name}\" is being deleted"));
        }
        if is_generated && !claim.meta.is_controlled_by(&pod.meta.uid) {
            return Err(format!(
                "ResourceClaim {key} was not created for Pod {}/{} (Pod is not owner)",
                pod.meta.namespace, pod.meta.name
            ));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Returns the message for a claim that does not exist. `key` is `namespace/name`.
pub(super) fn not_found(key: &str) -> String {
    format!("resourceclaims.resource.k8s.io \"{key}\" not found")
}

/// Returns whether the claim is reserved for the pod.
pub(super) fn is_reserved(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.status.reserved_for.iter().any(|consumer| consumer.uid == pod.meta.uid)
}

/// Readiness of a claim's devices according to their binding conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All devices are ready.
    Ready,
    /// Some device is not ready yet, or the claim has no allocation.
    Waits,
    /// A device will never be ready, for this reason.
    Failed(String),
}

/// Returns the status of an allocated device in the claim.
fn status_of<'a>(
    claim: &'a ResourceClaim,
    device: &DeviceRequestAllocationResult,
) -> Option<&'a AllocatedDeviceStatus> {
    claim.status.devices.iter().find(|status| {
        status.device == device.device
            && status.driver == device.driver
            && status.pool == device.pool
    })
}

/// Returns the readiness of the claim's devices.
pub(super) fn readiness(claim: &ResourceClaim) -> Readiness {
    let Some(allocation) = claim.status.allocation.as_deref() else { return Readiness::Waits };
    for device in &allocation.devices.results {
        if device.binding_conditions.is_empty() {
            continue;
        }
        let Some(status) = status_of(claim, device) else { return Readiness::Waits };
        let true_condition = |name: &str| {
            let mut conditions = status.conditions.iter();
            conditions.find(|condition| *condition.type_ == *name && &*condition.status == "True")
        };
        let failure =
            device.binding_failure_conditions.iter().find_map(|name| true_condition(name));
        if let Some(failure) = failure {
            return Readiness::Failed(format!(
                "device binding failed: claim={}, reason={}, message={:?}",
                claim.meta.name, failure.reason, &*failure.message
            ));
        }
        if device.binding_conditions.iter().any(|name| true_condition(name).is_none()) {
            return Readiness::Waits;
        }
    }
    Readiness::Ready
}

/// Returns whether any allocated device has binding conditions.
pub(super) fn has_binding_conditions(allocation: &AllocationResult) -> bool {
    allocation.devices.results.iter().any(|device| !device.binding_conditions.is_empty())
}

/// Returns the deadline of the wait for the claim's devices, or `None` if the wait has not begun.
pub(super) fn wait_deadline(claim: &ResourceClaim, timeout: Duration) -> Option<Timestamp> {
    let allocation = claim
        .status
        .allocation
        .as_deref()
        .filter(|allocation| has_binding_conditions(allocation))?;
    allocation.allocation_timestamp?.saturating_add(timeout).ok()
}

/// Returns whether the claim's binding timeout has passed.
pub(super) fn is_overdue(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    wait_deadline(claim, timeout).is_some_and(|deadline| deadline < now)
}
