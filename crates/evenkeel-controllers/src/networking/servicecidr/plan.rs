//! Condition and finalizer of a ServiceCIDR. Upstream: `sync`.

use super::ranges;
use crate::wire;
use evenkeel_api::{
    cidr::Cidr,
    time::Timestamp,
    views::{MetaCondition, Metadata, ServiceCidr},
};
use evenkeel_runtime::plan::{EventRecord, Patch, PatchForm, Plan};
use serde_json::json;
use std::{net::IpAddr, sync::Arc, time::Duration};

/// Finalizer of ServiceCIDRs. Upstream: `ServiceCIDRProtectionFinalizer`.
pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Field manager of the status. Upstream: `controllerName`.
const MANAGER: &str = "service-cidr-controller";
/// Label of an IPAddress with its allocator. Upstream: `LabelManagedBy`.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// Value of the label for cluster IPs. Upstream: `ControllerName`.
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// Time from the deletion to the removal of the finalizer, in which all allocators learn of the deletion. Upstream:
/// `deletionGracePeriod`.
const GRACE: Duration = Duration::from_secs(10);

/// Observed state of a ServiceCIDR.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) cidr: Arc<ServiceCidr>,
    /// An allocated address that no other ServiceCIDR contains.
    pub(super) orphan: Option<IpAddr>,
}

/// Returns the address of an IPAddress, if the cluster IP allocator created it.
pub(super) fn allocated(address: &Metadata) -> Option<IpAddr> {
    let meta = &address.meta;
    (meta.labels.get(MANAGED_BY) == Some(ALLOCATOR)).then(|| meta.name.parse().ok()).flatten()
}

/// Whether a ServiceCIDR contains an address that is neither the network address nor the IPv4 broadcast address.
pub(super) fn contains(cidr: &ServiceCidr, ip: IpAddr) -> bool {
    let is_end = |range: &Cidr| ip == range.first() || (range.is_ipv4() && ip == range.last());
    ranges(cidr).any(|range| range.contains(ip) && !is_end(&range))
}

/// Whether two ServiceCIDRs overlap.
pub(super) fn overlap(one: &ServiceCidr, other: &ServiceCidr) -> bool {
    ranges(one).any(|range| ranges(other).any(|other| range.overlaps(&other)))
}

/// Whether other ServiceCIDRs contain every CIDR of this one.
pub(super) fn is_covered(cidr: &ServiceCidr, others: &[Arc<ServiceCidr>]) -> bool {
    let all = || others.iter().flat_map(|other| ranges(other));
    ranges(cidr).all(|range| all().any(|other| other.covers(&range)))
}

/// Adds the finalizer and sets `Ready`. Removes the finalizer of a terminating ServiceCIDR once no address depends on
/// it and [`GRACE`] has passed.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let (cidr, mut plan) = (&*observed.cidr, Plan::nothing());
    let held = cidr.meta.finalizers.iter().any(|finalizer| **finalizer == *FINALIZER);
    match cidr.meta.deletion {
        None => {
            if !held {
                plan.push(finalizers(cidr, "finalizers"));
            }
            let ready = ("True", "", "Kubernetes Service CIDR is ready");
            let message = "The ServiceCIDR Status can not be set to Ready=True";
            let event =
                EventRecord::warning(wire::target(cidr), "KubernetesServiceCIDRError", message);
            plan.actions.extend(
                condition(cidr, ready, now)
                    .map(|patch| Patch { failed: Some(event), ..patch }.into()),
            );
        }
        Some(_) if observed.orphan.is_some() => {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            let waits = ("False", "Terminating", message);
            plan.actions.extend(condition(cidr, waits, now).map(Into::into));
        }
        Some(since) => {
            let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            match GRACE.checked_sub(passed).filter(|remaining| !remaining.is_zero()) {
                Some(remaining) => plan.requeue_after(remaining),
                None if held => plan.push(finalizers(cidr, "$deleteFromPrimitiveList/finalizers")),
                None => {}
            }
        }
    }
    plan
}

fn finalizers(cidr: &ServiceCidr, field: &str) -> Patch {
    let body = json!({"metadata": {field: [FINALIZER]}});
    Patch::new(wire::target(cidr), PatchForm::Strategic, body.to_string())
}

/// Returns the patch that sets the condition `Ready`; `None` if it is set like this.
fn condition(
    cidr: &ServiceCidr,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Option<Patch> {
    let is_so = |present: &MetaCondition| {
        &*present.type_ == "Ready"
            && *present.status == *status
            && *present.reason == *reason
            && *present.message == *message
    };
    if cidr.status.conditions.iter().any(is_so) {
        return None;
    }
    let condition = json!({
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": wire::whole_second(now).to_string(),
    });
    let body = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": cidr.meta.name},
        "status": {"conditions": [condition]},
    });
    let patch = Patch::new(wire::target(cidr), PatchForm::Apply(MANAGER), body.to_string());
    Some(Patch { subresource: "status", ..patch })
}
