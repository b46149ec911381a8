//! ResourceClaims of pods: their names, owners and reservations. An "entry" is an element of a pod's `spec.resourceClaims`.

#[cfg(k8s_v1_37)]
use crate::newer_kinds::AllocatedDevice;
use crate::newer_kinds::ResourceClaim;
use evenkeel_api::{
    View as _,
    views::{Pod, PodResourceClaim},
};
use evenkeel_runtime::cache::{Cache, Full, Index};

/// A ResourceClaim with all fields. All controllers of claims share its cache.
pub(crate) type Claim = Full<ResourceClaim>;

/// API group of PodGroups.
#[cfg(k8s_v1_37)]
const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// Name of the ResourceClaim for an entry of a pod. Upstream: `resourceclaim.Name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimName<'a> {
    /// The claim has this name.
    Is(&'a str),
    /// The claim is not created yet.
    NotYet,
    /// The pod needs no claim.
    NotNeeded,
    /// The entry names neither a claim nor a template, so its source is unknown to this version.
    Unknown,
}

/// Returns the name of the ResourceClaim for an entry of a pod. Upstream: `resourceclaim.Name`.
pub(crate) fn claim_name<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> ClaimName<'a> {
    if !claim.resource_claim_name.is_empty() {
        return ClaimName::Is(&claim.resource_claim_name);
    }
    if !is_from_template(claim) {
        return ClaimName::Unknown;
    }
    match pod.status.resource_claim_statuses.iter().find(|status| status.name == claim.name) {
        None => ClaimName::NotYet,
        Some(status) => {
            status.resource_claim_name.as_deref().map_or(ClaimName::NotNeeded, ClaimName::Is)
        }
    }
}

/// Returns whether the entry's claim is created from a template.
pub(crate) fn is_from_template(claim: &PodResourceClaim) -> bool {
    claim.resource_claim_name.is_empty() && !claim.resource_claim_template_name.is_empty()
}

/// Returns the names of all claims of the pod, including the scheduler's claim for extended resources.
pub(crate) fn claim_names(pod: &Pod) -> impl Iterator<Item = &str> + Clone {
    let from_spec =
        pod.spec.resource_claims.iter().filter_map(|claim| match claim_name(pod, claim) {
            ClaimName::Is(name) => Some(name),
            ClaimName::NotYet | ClaimName::NotNeeded | ClaimName::Unknown => None,
        });
    let extended = pod.status.extended_resource_claim_status.as_deref();
    let extended = extended.map(|status| &*status.resource_claim_name);
    from_spec.chain(extended).filter(|name| !name.is_empty())
}

/// Returns the index of pods by their ResourceClaims. Its keys are those of [`index_key`].
pub(crate) fn pods_by_claim(pods: &Cache<Pod>) -> Index<Pod> {
    pods.index("claims", |pod, key| {
        for claim in &pod.spec.resource_claims {
            if let ClaimName::Is(name) = claim_name(pod, claim) {
                key(&index_key(&pod.meta.namespace, name));
            }
        }
    })
}

/// Returns the key of a claim or template in the indexes of pods.
pub(crate) fn index_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Returns whether the claim was created for this pod. Upstream: `resourceclaim.IsForPod`.
pub(crate) fn is_for_pod(claim: &Claim, pod: &Pod) -> bool {
    claim.meta().is_controlled_by(&pod.meta.uid)
}

/// Returns whether the claim was created for the pod's PodGroup. Upstream: `isForPodGroupByPod`.
#[cfg(k8s_v1_37)]
pub(crate) fn is_for_pod_group(claim: &Claim, pod: &Pod) -> bool {
    let Some(group) = &pod.spec.scheduling_group else { return false };
    claim.meta().controller().is_some_and(|owner| {
        let api_group = owner.api_version.split_once('/').map(|(api_group, _)| api_group);
        owner.name == group.pod_group_name
            && &*owner.kind == "PodGroup"
            && api_group == Some(SCHEDULING_GROUP)
    })
}

/// Returns whether the claim is reserved for the pod, or for its PodGroup if `accept_pod_group` is set. Upstream:
/// `resourceclaim.IsReservedForPod`.
#[cfg(k8s_v1_37)]
pub(crate) fn is_reserved_for_pod(claim: &Claim, pod: &Pod, accept_pod_group: bool) -> bool {
    let status = claim.status.as_ref();
    let mut consumers =
        status.and_then(|status| status.reserved_for.as_deref()).into_iter().flatten();
    let group = pod.spec.scheduling_group.as_deref().filter(|_| accept_pod_group);
    consumers.any(|consumer| {
        *consumer.uid == *pod.meta.uid
            || group.is_some_and(|group| {
                consumer.api_group.as_deref() == Some(SCHEDULING_GROUP)
                    && consumer.resource == "podgroups"
                    && *consumer.name == *group.pod_group_name
            })
    })
}

/// Returns the devices that are allocated to the claim, in the order of the allocation.
#[cfg(k8s_v1_37)]
pub(crate) fn allocated_devices(claim: &Claim) -> &[AllocatedDevice] {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default()
}
