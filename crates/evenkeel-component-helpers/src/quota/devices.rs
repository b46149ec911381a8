//! Quota usage of ResourceClaims (KEP-4381, KEP-5004).

use super::{Usage, pods};
use evenkeel_api::text::Text;
use evenkeel_api::{
    quantity::Quantity,
    time::Timestamp,
    views::{DeviceClass, Pod, ResourceClaim},
};
use std::collections::BTreeMap;

const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// Maximum number of devices of a claim. Quotas charge this number for `allocationMode: All`.
const MAX_DEVICES: i64 = 32;
const EXTENDED_RESOURCE_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// Names of the device classes, each with the name of the extended resource that the class provides, or an empty
/// string.
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

/// Returns whether the claim was generated for the extended resources of `pod`, which quotas already charge for
/// them. `claims` are the claims of the namespace. Only the oldest claim for a pod counts as its own.
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

fn is_generated_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    let of_pod = claim.meta.controller().is_some_and(|owner| {
        &*owner.kind == "Pod" && &*owner.api_version == "v1" && owner.uid == pod.meta.uid
    });
    of_pod && claim.meta.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == Some("true")
}

pub(super) fn usage(
    claim: &ResourceClaim,
    pod: Option<&Pod>,
    classes: &Classes,
    now: Timestamp,
    usage: &mut Usage,
) {
    let devices = devices(claim);
    let mut of_pod = Usage::default();
    if let Some(pod) = pod {
        pods::usage(pod, now, &mut of_pod);
    }
    for (class, count) in devices {
        let amount = Quantity::from_units(count);
        usage.set(format!("{class}{DEVICES}"), amount);
        let extended = classes.0.get(class).filter(|extended| !extended.is_empty());
        let by_class = format!("requests.{}{class}", pods::DEVICE_CLASS);
        let by_name = extended.map(|extended| format!("requests.{extended}"));
        for name in [Some(by_class), by_name].into_iter().flatten() {
            let rest = of_pod.get(&name).map_or(amount, |counted| amount.minus(counted));
            if rest.sign() > 0 {
                usage.set(name, rest);
            }
        }
    }
}

/// Returns the maximum number of devices of each class that the claim may allocate.
fn devices(claim: &ResourceClaim) -> BTreeMap<&str, i64> {
    let count = |mode: &str, count: i64| match mode {
        "ExactCount" => count,
        "All" => MAX_DEVICES,
        _ => 0,
    };
    let mut total: BTreeMap<&str, i64> = BTreeMap::new();
    for request in &claim.spec.devices.requests {
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        if let Some(exactly) =
            request.exactly.as_deref().filter(|_| request.first_available.is_empty())
        {
            most.insert(&exactly.device_class_name, count(&exactly.allocation_mode, exactly.count));
        }
        for choice in &request.first_available {
            let number = count(&choice.allocation_mode, choice.count);
            if number > 0 {
                let most = most.entry(&choice.device_class_name).or_default();
                *most = number.max(*most);
            }
        }
        for (class, number) in most {
            let sum = total.entry(class).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    total
}
