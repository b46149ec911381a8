//! Release of claims: removes reservations of finished pods, deallocates, and deletes claims created for such pods.
//! Upstream: `syncClaim`.

use super::{Claim, plan};
use evenkeel_api::{View as _, views::Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};

/// Finalizer of allocated claims. Upstream: `resourceapi.Finalizer`.
const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// Decision about a consumer of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The reservation stays.
    Keep,
    /// The reservation is removed.
    Drop,
    /// The cache lacks the pod: a live read decides, because the scheduler may be ahead of the cache.
    Ask,
}

/// Decides about a consumer, where the cache has `pod` by its name. Consumers other than pods stay.
pub(super) fn need(
    consumer: &ResourceClaimConsumerReference,
    known_gone: bool,
    pod: Option<&Pod>,
) -> Need {
    let is_pod =
        consumer.api_group.as_deref().unwrap_or_default().is_empty() && consumer.resource == "pods";
    match pod {
        _ if !is_pod => Need::Keep,
        _ if known_gone => Need::Drop,
        None => Need::Ask,
        Some(pod) if *pod.meta.uid != *consumer.uid || plan::is_done(pod) => Need::Drop,
        Some(_) => Need::Keep,
    }
}

/// Writes that release a claim, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Release {
    /// The claim with a new status.
    pub(super) status: Option<ResourceClaim>,
    /// Whether the finalizer is removed after that.
    pub(super) unprotect: bool,
}

/// Returns the writes for a claim whose reservations are `remaining`.
pub(super) fn release(claim: &Claim, remaining: &[ResourceClaimConsumerReference]) -> Release {
    let protected = claim.meta().finalizers.iter().any(|one| &**one == PROTECTION);
    let status = claim.status.as_ref();
    let before = status.and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
    let allocated = status.is_some_and(|status| status.allocation.is_some());
    let with = |allocated: bool| {
        let mut changed = written(claim);
        let status = changed.status.get_or_insert_default();
        status.reserved_for = (!remaining.is_empty()).then(|| remaining.to_vec());
        if !allocated {
            status.allocation = None;
        }
        changed
    };
    if remaining.len() < before.len() {
        // The claim is deallocated with its last reservation.
        let stays = allocated && !(remaining.is_empty() && protected);
        return Release { status: Some(with(stays)), unprotect: protected && !stays };
    }
    if protected && claim.meta().deleting() && remaining.is_empty() {
        return Release { status: allocated.then(|| with(false)), unprotect: true };
    }
    Release::default()
}

/// Returns the claim without the finalizer.
pub(super) fn unprotected(mut claim: ResourceClaim) -> ResourceClaim {
    claim.metadata.managed_fields = None;
    if let Some(finalizers) = &mut claim.metadata.finalizers {
        finalizers.retain(|one| one != PROTECTION);
    }
    claim
}

/// Returns the claim as it is written.
pub(super) fn written(claim: &Claim) -> ResourceClaim {
    let mut claim: ResourceClaim = (**claim).clone();
    claim.metadata.managed_fields = None;
    claim
}

/// Whether an unreserved claim is deleted, where the cache has `owner` by the owning pod's name. Without it, the
/// garbage collector deletes the claim.
pub(super) fn is_useless(claim: &Claim, owner: Option<&Pod>) -> bool {
    let Some(made_for) = plan::owning_pod(claim) else { return false };
    owner.is_some_and(|pod| pod.meta.uid != made_for.uid || plan::is_done(pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, object, pod};
    use serde_json::{Value, json};

    fn consumer(resource: &str, uid: &str) -> ResourceClaimConsumerReference {
        ResourceClaimConsumerReference {
            api_group: (resource != "pods").then(|| "example.test".to_owned()),
            resource: resource.to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn who_keeps_a_claim() {
        let running = pod("p", Some(T0));
        let mut done = pod("p", None);
        done.status.phase = "Failed".into();
        let mut leaving = pod("p", None);
        leaving.meta.deletion = Some(T0);
        let mut never = leaving.clone();
        never.spec.node_name = "".into();
        let me = consumer("pods", "p");
        let table = [
            (&me, false, Some(&running), Need::Keep),
            (&me, false, Some(&done), Need::Drop),
            (&me, false, Some(&leaving), Need::Keep),
            (&me, false, Some(&never), Need::Drop),
            (&me, true, None, Need::Drop),
            (&me, false, None, Need::Ask),
            (&consumer("pods", "before"), false, Some(&running), Need::Drop),
            (&consumer("widgets", "w"), true, None, Need::Keep),
        ];
        for (number, (consumer, gone, pod, want)) in table.into_iter().enumerate() {
            assert_eq!(need(consumer, gone, pod), want, "{number}");
        }
    }

    fn claim(finalizers: &Value, deleting: bool, status: &Value) -> Claim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "c", "finalizers": finalizers}, "spec": {}, "status": status,
        });
        if deleting {
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        object(&claim)
    }

    /// Whether the status is written, what is allocated then, how many are left, and whether the finalizer goes.
    fn told(claim: &Claim, remaining: usize) -> (Option<(bool, usize)>, bool) {
        let all = claim
            .status
            .as_ref()
            .and_then(|status| status.reserved_for.clone())
            .unwrap_or_default();
        let release = release(claim, &all[..remaining]);
        let status = release.status.map(|claim| {
            let status = claim.status.unwrap();
            (status.allocation.is_some(), status.reserved_for.map_or(0, |all| all.len()))
        });
        (status, release.unprotect)
    }

    #[test]
    fn devices_are_given_back_with_the_last() {
        let (ours, none) = (json!([PROTECTION]), json!([]));
        let two = json!({"allocation": {}, "reservedFor": [consumer("pods", "a"), consumer("pods", "b")]});
        let free = json!({"allocation": {}});
        let table = [
            (claim(&ours, false, &two), 2, (None, false)),
            (claim(&ours, false, &two), 1, (Some((true, 1)), false)),
            (claim(&ours, false, &two), 0, (Some((false, 0)), true)),
            // What somebody else allocated, without the finalizer, is theirs to take back.
            (claim(&none, false, &two), 0, (Some((true, 0)), false)),
            (claim(&ours, false, &free), 0, (None, false)),
            (claim(&ours, true, &free), 0, (Some((false, 0)), true)),
            (claim(&ours, true, &json!({})), 0, (None, true)),
            (claim(&ours, true, &two), 2, (None, false)),
            (claim(&none, true, &free), 0, (None, false)),
        ];
        for (number, (claim, remaining, want)) in table.into_iter().enumerate() {
            assert_eq!(told(&claim, remaining), want, "{number}");
        }
    }

    #[test]
    fn claims_of_pods_that_are_done_go() {
        let owned = |uid: &str| -> Claim {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
            object(
                &json!({"metadata": {"name": "c", "namespace": "ns", "ownerReferences": [owner]}, "spec": {}}),
            )
        };
        let running = pod("p", Some(T0));
        let mut done = pod("p", None);
        done.status.phase = "Succeeded".into();
        assert!(!is_useless(&owned("p"), Some(&running)));
        assert!(is_useless(&owned("p"), Some(&done)));
        assert!(is_useless(&owned("before"), Some(&running)));
        assert!(!is_useless(&owned("p"), None));
        assert!(!is_useless(&claim(&json!([]), false, &json!({})), Some(&done)));
    }
}
