//! Evictions that `NoExecute` taints of allocated devices cause. Upstream: `claimEvictionTime`, `podEvictionTime`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | taints of a device in the slices of its pool's newest generation | `find_device` |
//! | DeviceTaintRule: `deviceSelector` | `../rules.rs` |
//! | tolerations of an allocated device: `key`, `operator`, `value`, `effect` | `tolerates` |
//! | `tolerationSeconds`: the shortest of the matching tolerations; negative values count as 0 | `toleration_time` |
//! | `timeAdded`: the toleration begins with the taint | `claim_eviction` |
//! | a pod of several claims: the earliest time | `pod_eviction` |

use crate::newer_kinds::{AllocatedDevice, DeviceToleration};
use crate::resource::{
    podclaims::{
        Claim, ClaimName, allocated_devices, claim_name, is_for_pod, is_for_pod_group,
        is_from_template, is_reserved_for_pod,
    },
    rules::{Rule, selects},
};
use evenkeel_api::{
    Text, View as _,
    time::{SignedDuration, Timestamp, saturating_add},
    views::{Pod, PodResourceClaim},
};
use evenkeel_runtime::cache::Full;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint, ResourceSlice};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// A ResourceSlice with the taints of its devices and their times.
pub(super) type Slice = Full<ResourceSlice>;

/// Effect of the taints that evict pods.
pub(super) const NO_EXECUTE: &str = "NoExecute";

/// Origin of a taint that causes an eviction. Rules come before slices. Upstream: `trackedTaint`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    Rule { name: Text, uid: Text },
    Slice { driver: Text, pool: Text, device: Text, index: usize, slice: Text },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { name, .. } => write!(f, "DeviceTaintRule {name}"),
            Self::Slice { driver, pool, device, index, slice } => {
                write!(f, "ResourceSlice {slice} {driver}/{pool}/{device} taint #{index}")
            }
        }
    }
}

/// Time of an eviction, and the origins of all taints that cause it. Upstream: `evictionAndReason`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Eviction {
    pub(super) due: Timestamp,
    pub(super) origins: BTreeSet<Origin>,
}

impl Eviction {
    /// Combines two evictions of a pod: the earlier time, and the origins of both.
    fn join(mut self, other: Self) -> Self {
        self.due = self.due.min(other.due);
        self.origins.extend(other.origins);
        self
    }

    /// Returns names and uids of the rules that cause the eviction.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&Text, &Text)> {
        self.origins.iter().filter_map(|origin| match origin {
            Origin::Rule { name, uid } => Some((name, uid)),
            Origin::Slice { .. } => None,
        })
    }
}

/// A pod, and the inputs for its eviction.
pub(super) struct ObservedPod {
    pub(super) pod: Arc<Pod>,
    /// Those claims of the pod that the cache has.
    pub(super) claims: Vec<ObservedClaim>,
    /// Whether claims may belong to the pod's PodGroup: gate `DRAWorkloadResourceClaims`.
    pub(super) accepts_pod_groups: bool,
}

/// A claim, and the slices of the pools of its allocated devices, in all generations.
pub(super) struct ObservedClaim {
    pub(super) claim: Arc<Claim>,
    pub(super) slices: Vec<Arc<Slice>>,
}

/// Returns whether the rule's taint evicts pods.
pub(super) fn evicts(rule: &Rule) -> bool {
    rule.spec.taint.effect == NO_EXECUTE
}

/// Returns whether the rule selects this allocated device.
pub(super) fn selects_allocated(rule: &Rule, allocated: &AllocatedDevice) -> bool {
    selects(rule, &allocated.driver, &allocated.pool, &allocated.device)
}

/// Returns the `NoExecute` taints of a slice, each with its device and its index among the device's taints.
pub(super) fn no_execute_taints(
    slice: &Slice,
) -> impl Iterator<Item = (&Device, usize, &DeviceTaint)> {
    slice.spec.devices.iter().flatten().flat_map(|device| {
        let taints = device.taints.iter().flatten().enumerate();
        taints
            .filter(|(_, taint)| taint.effect == NO_EXECUTE)
            .map(move |(index, taint)| (device, index, taint))
    })
}

/// Returns the eviction of a pod at the time that its claims' devices require, or `None` if all their taints are
/// tolerated. `rules` are those that evict. A pod without a node stays. Upstream: `podEvictionTime`.
pub(super) fn pod_eviction(observed: &ObservedPod, rules: &[Arc<Rule>]) -> Option<Eviction> {
    let pod = &*observed.pod;
    if pod.spec.node_name.is_empty() {
        return None;
    }
    let evictions = pod.spec.resource_claims.iter().filter_map(|entry| {
        let observed_claim = claim_of_entry(observed, entry)?;
        claim_eviction(observed_claim, rules)
    });
    evictions.reduce(Eviction::join)
}

/// Returns the claim of an entry of the pod, if it belongs to the pod and is reserved for it.
fn claim_of_entry<'a>(
    observed: &'a ObservedPod,
    entry: &PodResourceClaim,
) -> Option<&'a ObservedClaim> {
    let (pod, accepts_pod_groups) = (&*observed.pod, observed.accepts_pod_groups);
    let ClaimName::Is(name) = claim_name(pod, entry) else { return None };
    let found = observed.claims.iter().find(|claim| &*claim.claim.meta().name == name)?;
    let claim = &*found.claim;
    let is_owned = || is_for_pod(claim, pod) || accepts_pod_groups && is_for_pod_group(claim, pod);
    let is_own = !is_from_template(entry) || is_owned();
    (is_own && is_reserved_for_pod(claim, pod, accepts_pod_groups)).then_some(found)
}

/// Returns the eviction of the pods that use a claim: the earliest time at which a taint of an allocated device is no
/// longer tolerated. Upstream: `claimEvictionTime`.
fn claim_eviction(observed: &ObservedClaim, rules: &[Arc<Rule>]) -> Option<Eviction> {
    let (mut due, mut origins) = (None::<Timestamp>, BTreeSet::new());
    for allocated in allocated_devices(&observed.claim) {
        let tolerations = allocated.tolerations.as_deref().unwrap_or_default();
        for (taint, origin) in taints_of(allocated, &observed.slices, rules) {
            let Some(tolerated) = toleration_time(taint, tolerations) else { continue };
            origins.insert(origin);
            if let Some(added) = &taint.time_added {
                let time = saturating_add(added.0, tolerated);
                due = Some(due.map_or(time, |earliest| earliest.min(time)));
            }
        }
    }
    due.map(|due| Eviction { due, origins })
}

/// Returns the `NoExecute` taints of an allocated device, from its slice and from rules. Upstream:
/// `allEvictingDeviceTaints`.
fn taints_of<'a>(
    allocated: &'a AllocatedDevice,
    slices: &'a [Arc<Slice>],
    rules: &'a [Arc<Rule>],
) -> impl Iterator<Item = (&'a DeviceTaint, Origin)> {
    let published = find_device(slices, allocated).into_iter().flat_map(move |(slice, device)| {
        let taints = device.taints.iter().flatten().enumerate();
        taints.filter(|(_, taint)| taint.effect == NO_EXECUTE).map(move |(index, taint)| {
            let origin = Origin::Slice {
                driver: (&*allocated.driver).into(),
                pool: (&*allocated.pool).into(),
                device: (&*allocated.device).into(),
                index,
                slice: slice.meta().name.clone(),
            };
            (taint, origin)
        })
    });
    let of_rules = rules.iter().filter(|rule| selects_allocated(rule, allocated)).map(|rule| {
        let meta = rule.meta();
        let origin = Origin::Rule { name: meta.name.clone(), uid: meta.uid.clone() };
        (&rule.spec.taint, origin)
    });
    published.chain(of_rules)
}

/// Returns an allocated device and its slice, from the newest generation of its pool. Upstream: `getDevice`.
fn find_device<'a>(
    slices: &'a [Arc<Slice>],
    allocated: &AllocatedDevice,
) -> Option<(&'a Slice, &'a Device)> {
    let of_pool = slices.iter().filter(|slice| {
        slice.spec.driver == allocated.driver && slice.spec.pool.name == allocated.pool
    });
    let newest = of_pool.clone().map(|slice| slice.spec.pool.generation).max()?;
    let mut current = of_pool.filter(|slice| slice.spec.pool.generation == newest);
    current.find_map(|slice| {
        let mut devices = slice.spec.devices.iter().flatten();
        devices.find(|device| device.name == allocated.device).map(|device| (&**slice, device))
    })
}

/// Returns the time for which a `NoExecute` taint is tolerated: zero without a matching toleration, `None` without a time
/// limit.
fn toleration_time(
    taint: &DeviceTaint,
    tolerations: &[DeviceToleration],
) -> Option<SignedDuration> {
    let mut shortest = None::<i64>;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        let seconds = toleration.toleration_seconds?.max(0);
        shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
    }
    Some(SignedDuration::from_secs(shortest.unwrap_or(0)))
}

/// Returns whether a toleration applies to a `NoExecute` taint. Unlike for scheduling, a toleration without an effect
/// does not. Upstream: `ToleratesTaint`.
fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = text(&toleration.key);
    let is_tolerated = match &*text(&toleration.operator) {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    };
    toleration.effect.as_deref() == Some(NO_EXECUTE)
        && (key.is_empty() || key == taint.key)
        && is_tolerated
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{NEVER, claim, observed_pod, pod, rule, slice, toleration};
    use super::*;
    use crate::fixtures::at;
    use serde_json::{Value, json};

    /// Returns the eviction of a pod on a node, as seconds after `T0`, with the descriptions of its origins.
    fn eviction(
        tolerations: &Value,
        slices: &[Slice],
        rules: &[Rule],
    ) -> Option<(Timestamp, Vec<String>)> {
        let observed = observed_pod(pod(), claim(tolerations), slices);
        let rules: Vec<_> = rules.iter().cloned().map(Arc::new).collect();
        let eviction = pod_eviction(&observed, &rules)?;
        Some((eviction.due, eviction.origins.iter().map(Origin::to_string).collect()))
    }

    #[test]
    fn taints_of_slices_and_rules_evict_unless_tolerated() {
        let (slices, rules) = ([slice("s", 1, &[("d", 5)])], [rule("r", NO_EXECUTE, "d", 9)]);
        let of_slice = "ResourceSlice s gpu.test/node/d taint #0".to_owned();
        let of_rule = "DeviceTaintRule r".to_owned();
        let both = vec![of_rule.clone(), of_slice.clone()];
        // Tolerations, slices, rules, and the eviction.
        let table = [
            (json!([]), &slices[..0], &rules[..0], None),
            (json!([]), &slices[..], &rules[..0], Some((at(5), vec![of_slice.clone()]))),
            (json!([]), &slices[..0], &rules[..], Some((at(9), vec![of_rule.clone()]))),
            (json!([]), &slices[..], &rules[..], Some((at(5), both.clone()))),
            // The shortest time counts, from the time of the taint.
            (
                json!([toleration("k", 30), toleration("", 20)]),
                &slices[..],
                &rules[..],
                Some((at(25), both.clone())),
            ),
            (json!([toleration("k", -3)]), &slices[..], &rules[..], Some((at(5), both))),
            (json!([toleration("k", NEVER)]), &slices[..], &rules[..], None),
            (
                json!([toleration("other", NEVER)]),
                &slices[..0],
                &rules[..],
                Some((at(9), vec![of_rule])),
            ),
            // A toleration of all effects does not keep pods.
            (
                json!([{"key": "k", "operator": "Exists"}]),
                &slices[..],
                &rules[..0],
                Some((at(5), vec![of_slice.clone()])),
            ),
            (
                json!([{"key": "k", "value": "v", "effect": NO_EXECUTE}]),
                &slices[..],
                &rules[..0],
                None,
            ),
            (
                json!([{"key": "k", "value": "w", "effect": NO_EXECUTE}]),
                &slices[..],
                &rules[..0],
                Some((at(5), vec![of_slice])),
            ),
        ];
        for (number, (tolerations, slices, rules, want)) in table.into_iter().enumerate() {
            assert_eq!(eviction(&tolerations, slices, rules), want, "{number}");
        }
    }

    #[test]
    fn only_the_newest_generation_of_the_pool_counts() {
        let due = |slices: &[Slice]| eviction(&json!([]), slices, &[]).map(|(due, _)| due);
        let (old, tainted) = (slice("old", 1, &[("d", 3)]), slice("new", 2, &[("d", 4)]));
        assert_eq!(due(&[old.clone(), tainted]), Some(at(4)));
        assert_eq!(due(&[old.clone(), slice("new", 2, &[])]), None);
        assert_eq!(due(&[slice("other", 1, &[("e", 1)]), old]), Some(at(3)));
    }

    #[test]
    fn pods_without_node_claim_or_reservation_stay() {
        let slices = [slice("s", 1, &[("d", 5)])];
        let evicts = |observed: &ObservedPod| pod_eviction(observed, &[]).is_some();
        let usual = || observed_pod(pod(), claim(&json!([])), &slices);
        assert!(evicts(&usual()));
        let mut without_node = pod();
        without_node.spec.node_name = "".into();
        assert!(!evicts(&observed_pod(without_node, claim(&json!([])), &slices)));
        assert!(!evicts(&ObservedPod { claims: Vec::new(), ..usual() }));
        let changed = |change: &dyn Fn(&mut crate::newer_kinds::ResourceClaim)| {
            let mut object = (*claim(&json!([]))).clone();
            change(&mut object);
            observed_pod(pod(), Claim::new(object), &slices)
        };
        let reserved_for_other = changed(&|claim| {
            claim.status.as_mut().unwrap().reserved_for.as_mut().unwrap()[0].uid = "other".into();
        });
        assert!(!evicts(&reserved_for_other));
        let mut reserved_for_group = changed(&|claim| {
            let consumer = &mut claim.status.as_mut().unwrap().reserved_for.as_mut().unwrap()[0];
            consumer.uid = "group-uid".into();
            consumer.api_group = Some("scheduling.k8s.io".into());
            consumer.resource = "podgroups".into();
            consumer.name = "group".into();
        });
        let mut member = pod();
        member.spec.scheduling_group = Some(Box::new(evenkeel_api::views::PodSchedulingGroup {
            pod_group_name: "group".into(),
        }));
        reserved_for_group.pod = Arc::new(member);
        assert!(!evicts(&reserved_for_group));
        assert!(evicts(&ObservedPod { accepts_pod_groups: true, ..reserved_for_group }));
        // The claim of a template must be the pod's own.
        let mut of_template = pod();
        of_template.spec.resource_claims[0].resource_claim_name = "".into();
        of_template.spec.resource_claims[0].resource_claim_template_name = "t".into();
        of_template.status.resource_claim_statuses =
            Box::new([evenkeel_api::views::PodResourceClaimStatus {
                name: "gpu".into(),
                resource_claim_name: Some("c".into()),
            }]);
        assert!(!evicts(&observed_pod(of_template, claim(&json!([])), &slices)));
    }
}
