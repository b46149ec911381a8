//! Condition and finalizer of a ServiceCIDR. Upstream: `sync`.

use super::ranges;
use crate::wire;
use evenkeel_api::{
    cidr::Cidr,
    time::Timestamp,
    views::{MetaCondition, Metadata, ServiceCidr},
};
use evenkeel_runtime::plan::{EventRecord, Patch, PatchType, Plan};
use serde_json::json;
use std::{net::IpAddr, sync::Arc, time::Duration};

/// Finalizer of ServiceCIDRs. Upstream: `ServiceCIDRProtectionFinalizer`.
pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Field manager of the status. Upstream: `controllerName`.
const FIELD_MANAGER: &str = "service-cidr-controller";
/// Label of an IPAddress with its allocator. Upstream: `LabelManagedBy`.
const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
/// Value of the label for cluster IPs. Upstream: `ControllerName`.
const CLUSTER_IP_ALLOCATOR: &str = "ipallocator.k8s.io";
/// Time from the deletion to the removal of the finalizer, in which all allocators observe the deletion. Upstream:
/// `deletionGracePeriod`.
const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Observed state of a ServiceCIDR.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) cidr: Arc<ServiceCidr>,
    /// An allocated address that no other ServiceCIDR contains.
    pub(super) orphan: Option<IpAddr>,
}

/// Returns the address of an IPAddress, if the cluster IP allocator created it.
pub(super) fn allocated_ip(address: &Metadata) -> Option<IpAddr> {
    let meta = &address.meta;
    if meta.labels.get(MANAGED_BY_LABEL) == Some(CLUSTER_IP_ALLOCATOR) {
        meta.name.parse().ok()
    } else {
        None
    }
}

/// Returns whether a ServiceCIDR contains an address that is neither the network address nor the IPv4 broadcast
/// address.
pub(super) fn contains(cidr: &ServiceCidr, ip: IpAddr) -> bool {
    let is_excluded = |range: &Cidr| ip == range.first() || (range.is_ipv4() && ip == range.last());
    ranges(cidr).any(|range| range.contains(ip) && !is_excluded(&range))
}

/// Returns whether two ServiceCIDRs overlap.
pub(super) fn overlap(a: &ServiceCidr, b: &ServiceCidr) -> bool {
    ranges(a).any(|range| ranges(b).any(|other| range.overlaps(&other)))
}

/// Returns whether other ServiceCIDRs contain every CIDR of this one.
pub(super) fn is_covered(cidr: &ServiceCidr, others: &[Arc<ServiceCidr>]) -> bool {
    let other_ranges = || others.iter().flat_map(|other| ranges(other));
    ranges(cidr).all(|range| other_ranges().any(|other| other.covers(&range)))
}

/// Adds the finalizer and sets `Ready`. Removes the finalizer of a terminating ServiceCIDR once no address depends on
/// it and [`DELETION_GRACE_PERIOD`] has passed.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let cidr = &*observed.cidr;
    let mut plan = Plan::nothing();
    let has_finalizer = cidr.meta.finalizers.iter().any(|finalizer| **finalizer == *FINALIZER);
    match cidr.meta.deletion {
        None => {
            if !has_finalizer {
                plan.push(add_finalizer(cidr));
            }
            if let Some(patch) = ready_patch(cidr, &READY, now) {
                let message = "The ServiceCIDR Status can not be set to Ready=True";
                let event =
                    EventRecord::warning(wire::target(cidr), "KubernetesServiceCIDRError", message);
                plan.push(Patch { failed: Some(event), ..patch });
            }
        }
        Some(_) if observed.orphan.is_some() => {
            plan.actions.extend(ready_patch(cidr, &TERMINATING, now).map(Into::into));
        }
        Some(since) => {
            let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            let remaining = DELETION_GRACE_PERIOD.saturating_sub(passed);
            if !remaining.is_zero() {
                plan.requeue_after(remaining);
            } else if has_finalizer {
                plan.push(remove_finalizer(cidr));
            }
        }
    }
    plan
}

/// Returns the patch that adds the controller's finalizer.
fn add_finalizer(cidr: &ServiceCidr) -> Patch {
    let body = json!({"metadata": {"finalizers": [FINALIZER]}});
    Patch::new(wire::target(cidr), PatchType::Strategic, body.to_string())
}

/// Returns the patch that removes the controller's finalizer.
fn remove_finalizer(cidr: &ServiceCidr) -> Patch {
    let body = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    Patch::new(wire::target(cidr), PatchType::Strategic, body.to_string())
}

/// Fields of the condition `Ready`.
struct Ready {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

/// Condition of a ServiceCIDR that allocators may use.
const READY: Ready =
    Ready { status: "True", reason: "", message: "Kubernetes Service CIDR is ready" };
/// Condition of a terminating ServiceCIDR.
const TERMINATING: Ready = Ready {
    status: "False",
    reason: "Terminating",
    message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
};

/// Returns the patch that sets the condition `Ready`, or `None` if it has these fields already.
fn ready_patch(cidr: &ServiceCidr, ready: &Ready, now: Timestamp) -> Option<Patch> {
    let is_equal = |present: &MetaCondition| {
        &*present.type_ == "Ready"
            && *present.status == *ready.status
            && *present.reason == *ready.reason
            && *present.message == *ready.message
    };
    if cidr.status.conditions.iter().any(is_equal) {
        return None;
    }
    let condition = json!({
        "type": "Ready",
        "status": ready.status,
        "reason": ready.reason,
        "message": ready.message,
        "lastTransitionTime": wire::whole_second(now).to_string(),
    });
    let body = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": cidr.meta.name},
        "status": {"conditions": [condition]},
    });
    let patch = Patch::new(wire::target(cidr), PatchType::Apply(FIELD_MANAGER), body.to_string());
    Some(Patch { subresource: "status", ..patch })
}
