//! Quota usage of ResourceClaims (KEP-4381, KEP-5004).

use super::{Usage, pods};
use evenkeel_api::text::Text;
use evenkeel_api::{
    quantity::Quantity,
    time::Timestamp,
    views::{DeviceClass, Pod, ResourceClaim},
};
use std::collections::BTreeMap;

/// Suffix of the quota resource that counts the devices of a class. The name of the class precedes it.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// Maximum number of devices of a claim. Quotas charge this number for `allocationMode: All`.
const MAX_DEVICES: i64 = 32;
/// Annotation of claims that the scheduler generates for extended resources.
const EXTENDED_RESOURCE_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// Names of the device classes, each with the name of the extended resource that the class provides. The name of the
/// resource is empty if the class provides none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classes(BTreeMap<Text, Text>);

impl<'a> FromIterator<&'a DeviceClass> for Classes {
    fn from_iter<I: IntoIterator<Item = &'a DeviceClass>>(classes: I) -> Self {
        let entry = |class: &DeviceClass| {
            (class.meta.name.clone(), class.spec.extended_resource_name.clone())
        };
        Self(classes.into_iter().map(entry).collect())
    }
}

/// Returns whether a quota resource counts claims: the devices of a class, or an extended resource that a class provides.
pub(super) fn matches_resource(name: &str, classes: &Classes) -> bool {
    if name.ends_with(DEVICES) {
        return true;
    }
    let extended = name.strip_prefix("requests.").filter(|_| pods::is_extended(name));
    extended.is_some_and(|resource| match resource.strip_prefix(pods::DEVICE_CLASS) {
        Some(class) => classes.0.contains_key(class),
        None => classes.0.values().any(|extended| **extended == *resource),
    })
}

/// Returns whether the claim was generated for the extended resources of `pod`. Quotas already count these resources
/// as requests of the pod. `claims` are the claims of the namespace. If several claims were generated for the pod, only
/// the oldest counts as its claim.
pub fn is_claim_of<'c>(
    claim: &ResourceClaim,
    pod: &Pod,
    mut claims: impl Iterator<Item = &'c ResourceClaim>,
) -> bool {
    if !is_generated_for(claim, pod) {
        return false;
    }
    match &pod.status.extended_resource_claim_status {
        Some(status) => status.resource_claim_name == claim.meta.name,
        None => {
            let age = |claim: &ResourceClaim| (claim.meta.creation, claim.meta.name.clone());
            !claims.any(|other| is_generated_for(other, pod) && age(other) < age(claim))
        }
    }
}

/// Returns whether the scheduler generated the claim for the extended resources of the pod.
fn is_generated_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    let is_controlled_by_pod = claim.meta.controller().is_some_and(|owner| {
        &*owner.kind == "Pod" && &*owner.api_version == "v1" && owner.uid == pod.meta.uid
    });
    is_controlled_by_pod
        && claim.meta.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == Some("true")
}

/// Adds the claim's usage of devices and of extended resources. `pod` is the pod for whose extended resources the claim
/// was generated.
pub(super) fn usage(
    claim: &ResourceClaim,
    pod: Option<&Pod>,
    classes: &Classes,
    now: Timestamp,
    usage: &mut Usage,
) {
    let mut pod_usage = Usage::default();
    if let Some(pod) = pod {
        pods::usage(pod, now, &mut pod_usage);
    }
    for (class, count) in max_devices_by_class(claim) {
        let amount = Quantity::from_units(count);
        usage.set(format!("{class}{DEVICES}"), amount);
        let extended = classes.0.get(class).filter(|extended| !extended.is_empty());
        let implicit_name = format!("requests.{}{class}", pods::DEVICE_CLASS);
        let explicit_name = extended.map(|extended| format!("requests.{extended}"));
        for name in [Some(implicit_name), explicit_name].into_iter().flatten() {
            // Quotas already count the pod's own requests of the extended resource.
            let uncounted = pod_usage.get(&name).map_or(amount, |counted| amount.minus(counted));
            if uncounted.sign() > 0 {
                usage.set(name, uncounted);
            }
        }
    }
}

/// Returns the maximum number of devices of each class that the claim may allocate.
fn max_devices_by_class(claim: &ResourceClaim) -> BTreeMap<&str, i64> {
    let device_count = |mode: &str, count: i64| match mode {
        "ExactCount" => count,
        "All" => MAX_DEVICES,
        _ => 0,
    };
    let mut total: BTreeMap<&str, i64> = BTreeMap::new();
    for request in &claim.spec.devices.requests {
        let mut maximum: BTreeMap<&str, i64> = BTreeMap::new();
        if let Some(exactly) = request.exactly.as_deref()
            && request.first_available.is_empty()
        {
            let count = device_count(&exactly.allocation_mode, exactly.count);
            maximum.insert(&exactly.device_class_name, count);
        }
        // The scheduler allocates only one of the alternatives, so the maximum per class counts.
        for alternative in &request.first_available {
            let count = device_count(&alternative.allocation_mode, alternative.count);
            if count > 0 {
                let maximum = maximum.entry(&alternative.device_class_name).or_default();
                *maximum = count.max(*maximum);
            }
        }
        for (class, count) in maximum {
            let sum = total.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    total
}
