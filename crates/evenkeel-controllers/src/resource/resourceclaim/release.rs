//! Release of claims: removes reservations of finished pods, deallocates claims without reservations, and deletes
//! claims that were created for finished pods. Upstream: `syncClaim`.
//!
//! The first step reads live the pods that the cache lacks. Each later step is one write.

use super::{Claim, plan};
use crate::{
    newer_kinds::{ResourceClaim, ResourceClaimConsumerReference},
    wire,
};
use evenkeel_api::{View as _, views::Pod};
use evenkeel_runtime::{
    client::Metadata,
    introspect::Description,
    plan::{Delete, Failure, LiveRead, OnError, Outcome, Outcomes, Plan, Update},
};
use std::sync::Arc;

/// Finalizer of allocated claims. Upstream: `resourceapi.Finalizer`.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// A claim, and its pods in the caches.
pub(super) struct Observed {
    pub(super) claim: Arc<Claim>,
    /// Decisions about the consumers, in the order of `status.reservedFor`.
    pub(super) decisions: Vec<ConsumerDecision>,
    /// The cached pod that has the name of the owning pod.
    pub(super) owner: Option<Arc<Pod>>,
}

/// Returns the consumers for which a claim is reserved.
pub(super) fn consumers(claim: &Claim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// Reads live the pods that the cache lacks. If the cache has all pods, takes the next step immediately.
pub(super) fn plan(observed: &Observed) -> Plan {
    let consumers = consumers(&observed.claim).iter().zip(&observed.decisions);
    let to_read = consumers.filter(|(_, decision)| **decision == ConsumerDecision::ReadLive);
    let namespace = &observed.claim.meta().namespace;
    let read = |consumer: &ResourceClaimConsumerReference| {
        let read = LiveRead::get::<Metadata>(&Pod::kind(), namespace, &consumer.name);
        LiveRead { on_error: OnError::Abort, ..read }.into()
    };
    let reads: Vec<_> = to_read.map(|(consumer, _)| read(consumer)).collect();
    if reads.is_empty() {
        return next(observed, &Outcomes::default()).unwrap_or_default();
    }
    Plan::of(reads)
}

/// Writes the status without the reservations of finished pods, then removes the finalizer, then deletes an unused
/// claim.
pub(super) fn next(observed: &Observed, outcomes: &Outcomes) -> Option<Plan> {
    let claim = &*observed.claim;
    let n_reads = observed
        .decisions
        .iter()
        .filter(|decision| **decision == ConsumerDecision::ReadLive)
        .count();
    let (live_reads, writes) = outcomes.0.split_at(n_reads.min(outcomes.0.len()));
    let remaining = match remaining_consumers(observed, live_reads) {
        Ok(remaining) => remaining,
        Err(error) => return Some(Plan::failure(error.message)),
    };
    let release = Release::new(claim, &remaining);
    let mut writes = writes.iter();
    let mut latest = None;
    if let Some(mut changed) = release.with_new_status {
        let Some(outcome) = writes.next() else {
            let update = Update::status(wire::target(claim), wire::json(&changed));
            return Some(Plan::one(Update { on_error: OnError::Abort, ..update }));
        };
        changed.metadata.resource_version = outcome.resource_version.as_deref().map(str::to_owned);
        latest = Some(changed);
    }
    if release.removes_finalizer {
        let Some(outcome) = writes.next() else {
            let latest = latest.unwrap_or_else(|| wire::copy_for_update(&**claim));
            let update = Update::new(wire::target(claim), wire::json(&without_finalizer(latest)));
            return Some(Plan::one(Update { on_error: OnError::Ignore, ..update }));
        };
        if let Some(error) = outcome.error.as_ref().filter(|error| !error.is_not_found()) {
            return Some(Plan::failure(error.message.clone()));
        }
    }
    let must_delete = remaining.is_empty() && is_useless(claim, observed.owner.as_deref());
    let was_deleted = writes.next().is_some();
    if !must_delete || was_deleted {
        return None;
    }
    Some(Plan::one(Delete { on_error: OnError::Abort, ..Delete::new(wire::target(claim)) }))
}

/// Returns the consumers whose reservations stay.
fn remaining_consumers(
    observed: &Observed,
    live_reads: &[Outcome],
) -> Result<Vec<ResourceClaimConsumerReference>, Failure> {
    let mut remaining = Vec::new();
    let mut live_reads = live_reads.iter();
    for (consumer, decision) in consumers(&observed.claim).iter().zip(&observed.decisions) {
        let stays = match decision {
            ConsumerDecision::Keep => true,
            ConsumerDecision::Remove => false,
            ConsumerDecision::ReadLive => {
                match live_reads.next().and_then(|read| read.reply.as_ref()) {
                    Some(reply) => *reply.object::<Metadata>()?.meta.uid == *consumer.uid,
                    None => false,
                }
            }
        };
        if stays {
            remaining.push(consumer.clone());
        }
    }
    Ok(remaining)
}

/// Describes the consumers of a claim.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    let names: Vec<&str> =
        consumers(&observed.claim).iter().map(|consumer| &*consumer.name).collect();
    description.fact("reserved for", names.join(", "));
    description
}

/// Decision about a consumer of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConsumerDecision {
    /// The reservation stays.
    Keep,
    /// The reservation is removed.
    Remove,
    /// The cache lacks the pod, so a live read decides. The scheduler may have observed newer pods than the cache.
    ReadLive,
}

/// Decides about a consumer. `is_deleted` means that its pod was observed as deleted. `pod` is the cached pod with the
/// consumer's name. Reservations for other resources than pods stay.
pub(super) fn decide_consumer(
    consumer: &ResourceClaimConsumerReference,
    is_deleted: bool,
    pod: Option<&Pod>,
) -> ConsumerDecision {
    let is_pod =
        consumer.api_group.as_deref().unwrap_or_default().is_empty() && consumer.resource == "pods";
    match pod {
        _ if !is_pod => ConsumerDecision::Keep,
        _ if is_deleted => ConsumerDecision::Remove,
        None => ConsumerDecision::ReadLive,
        Some(pod) if *pod.meta.uid != *consumer.uid || plan::is_done(pod) => {
            ConsumerDecision::Remove
        }
        Some(_) => ConsumerDecision::Keep,
    }
}

/// Writes that release a claim, in order.
#[derive(Debug, Clone, Default, PartialEq)]
struct Release {
    /// The claim for the status update. `None` without an update.
    with_new_status: Option<ResourceClaim>,
    /// Whether the finalizer is removed after the status update.
    removes_finalizer: bool,
}

impl Release {
    /// Returns the writes for a claim whose consumers are still `remaining`.
    fn new(claim: &Claim, remaining: &[ResourceClaimConsumerReference]) -> Self {
        let has_finalizer =
            claim.meta().finalizers.iter().any(|finalizer| &**finalizer == FINALIZER);
        let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
        let with_remaining = || {
            let mut changed = wire::copy_for_update(&**claim);
            let status = changed.status.get_or_insert_default();
            status.reserved_for = (!remaining.is_empty()).then(|| remaining.to_vec());
            changed
        };
        let deallocated = || {
            let mut changed = with_remaining();
            changed.status.get_or_insert_default().allocation = None;
            changed
        };
        let is_unreserved = remaining.is_empty();
        if remaining.len() < consumers(claim).len() {
            // Without the finalizer, another allocator owns the claim, and deallocates it.
            let stays_allocated = is_allocated && !(is_unreserved && has_finalizer);
            let changed = if stays_allocated { with_remaining() } else { deallocated() };
            let removes_finalizer = has_finalizer && !stays_allocated;
            return Self { with_new_status: Some(changed), removes_finalizer };
        }
        if has_finalizer && claim.meta().deleting() && is_unreserved {
            let with_new_status = is_allocated.then(deallocated);
            return Self { with_new_status, removes_finalizer: true };
        }
        Self::default()
    }
}

/// Returns the claim without the finalizer.
fn without_finalizer(mut claim: ResourceClaim) -> ResourceClaim {
    if let Some(finalizers) = &mut claim.metadata.finalizers {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    claim
}

/// Returns whether an unreserved claim must be deleted, because its owning pod is finished or replaced. `owner` is the
/// cached pod with the owning pod's name. If there is none, the garbage collector deletes the claim.
fn is_useless(claim: &Claim, owner: Option<&Pod>) -> bool {
    let Some(reference) = plan::owning_pod(claim) else { return false };
    owner.is_some_and(|pod| pod.meta.uid != reference.uid || plan::is_done(pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, object, pod};
    use evenkeel_runtime::plan::{Action, Reply};
    use serde_json::{Value, json};

    /// Returns an entry of `reservedFor`. Its name equals its uid.
    fn consumer(resource: &str, uid: &str) -> ResourceClaimConsumerReference {
        ResourceClaimConsumerReference {
            api_group: (resource != "pods").then(|| "example.test".to_owned()),
            resource: resource.to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn reservation_of_a_finished_replaced_or_deleted_pod_is_removed() {
        let running = pod("p", Some(T0));
        let mut finished = pod("p", None);
        finished.status.phase = "Failed".into();
        let mut terminating = pod("p", None);
        terminating.meta.deletion = Some(T0);
        let mut unscheduled = terminating.clone();
        unscheduled.spec.node_name = "".into();
        let me = consumer("pods", "p");
        // Consumer, whether its pod was observed as deleted, the cached pod, and the decision.
        let table = [
            (&me, false, Some(&running), ConsumerDecision::Keep),
            (&me, false, Some(&finished), ConsumerDecision::Remove),
            (&me, false, Some(&terminating), ConsumerDecision::Keep),
            (&me, false, Some(&unscheduled), ConsumerDecision::Remove),
            (&me, true, None, ConsumerDecision::Remove),
            (&me, false, None, ConsumerDecision::ReadLive),
            (&consumer("pods", "before"), false, Some(&running), ConsumerDecision::Remove),
            (&consumer("widgets", "w"), true, None, ConsumerDecision::Keep),
        ];
        for (number, (consumer, gone, pod, want)) in table.into_iter().enumerate() {
            assert_eq!(decide_consumer(consumer, gone, pod), want, "{number}");
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

    /// Returns the written status (allocated, number of reservations), if any, and whether the finalizer is removed.
    fn outcome(claim: &Claim, remaining: usize) -> (Option<(bool, usize)>, bool) {
        let all = claim
            .status
            .as_ref()
            .and_then(|status| status.reserved_for.clone())
            .unwrap_or_default();
        let release = Release::new(claim, &all[..remaining]);
        let status = release.with_new_status.map(|claim| {
            let status = claim.status.unwrap();
            (status.allocation.is_some(), status.reserved_for.map_or(0, |all| all.len()))
        });
        (status, release.removes_finalizer)
    }

    #[test]
    fn last_consumer_deallocates_the_claim() {
        let (ours, none) = (json!([FINALIZER]), json!([]));
        let two = json!({"allocation": {}, "reservedFor": [consumer("pods", "a"), consumer("pods", "b")]});
        let unreserved = json!({"allocation": {}});
        // Claim, number of consumers that remain, and the expected outcome.
        let table = [
            (claim(&ours, false, &two), 2, (None, false)),
            (claim(&ours, false, &two), 1, (Some((true, 1)), false)),
            (claim(&ours, false, &two), 0, (Some((false, 0)), true)),
            // Without the finalizer, another allocator owns the claim, and deallocates it.
            (claim(&none, false, &two), 0, (Some((true, 0)), false)),
            (claim(&ours, false, &unreserved), 0, (None, false)),
            (claim(&ours, true, &unreserved), 0, (Some((false, 0)), true)),
            (claim(&ours, true, &json!({})), 0, (None, true)),
            (claim(&ours, true, &two), 2, (None, false)),
            (claim(&none, true, &unreserved), 0, (None, false)),
        ];
        for (number, (claim, remaining, want)) in table.into_iter().enumerate() {
            assert_eq!(outcome(&claim, remaining), want, "{number}");
        }
    }

    #[test]
    fn claims_of_finished_or_replaced_pods_are_useless() {
        let owned = |uid: &str| -> Claim {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
            object(
                &json!({"metadata": {"name": "c", "namespace": "ns", "ownerReferences": [owner]}, "spec": {}}),
            )
        };
        let running = pod("p", Some(T0));
        let mut finished = pod("p", None);
        finished.status.phase = "Succeeded".into();
        assert!(!is_useless(&owned("p"), Some(&running)));
        assert!(is_useless(&owned("p"), Some(&finished)));
        assert!(is_useless(&owned("before"), Some(&running)));
        assert!(!is_useless(&owned("p"), None));
        assert!(!is_useless(&claim(&json!([]), false, &json!({})), Some(&finished)));
    }

    fn observed(claim: Claim, decisions: Vec<ConsumerDecision>, owner: Option<Pod>) -> Observed {
        Observed { claim: Arc::new(claim), decisions, owner: owner.map(Arc::new) }
    }

    fn after(observed: &Observed, outcomes: &[Outcome]) -> Option<Plan> {
        next(observed, &Outcomes(outcomes.to_vec()))
    }

    fn failed(code: u16) -> Outcome {
        let (reason, message) = (String::new(), "down".to_owned());
        Outcome::failure(Failure { code, reason, message, namespace_terminating: false })
    }

    /// Returns the subresource and the body of the plan's only action, an update.
    fn update(plan: Option<Plan>) -> (&'static str, Value) {
        let plan = plan.unwrap();
        let [Action::Update(update)] = &plan.actions[..] else { panic!("{plan:?}") };
        (update.subresource, serde_json::from_slice(&update.body).unwrap())
    }

    #[test]
    fn release_updates_status_then_finalizers() {
        let reserved = json!({"allocation": {}, "reservedFor": [consumer("pods", "a"), consumer("pods", "b")]});
        let observed_claim = observed(
            claim(&json!([FINALIZER]), false, &reserved),
            vec![ConsumerDecision::Remove, ConsumerDecision::ReadLive],
            None,
        );
        let reads = plan(&observed_claim);
        let [Action::Read(read)] = &reads.actions[..] else { panic!("{reads:?}") };
        assert_eq!((read.path(), read.on_error), ("/api/v1/namespaces/ns/pods/b", OnError::Abort));
        let found = |uid: &str| {
            let pod =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "uid": uid}});
            Outcome { reply: Some(Reply::json(pod.to_string())), ..Outcome::success() }
        };
        let (part, body) = update(after(&observed_claim, &[found("b")]));
        assert_eq!((part, body["status"]["reservedFor"].as_array().unwrap().len()), ("status", 1));
        assert!(
            after(&observed_claim, &[found("b"), Outcome::success()]).is_none(),
            "the claim stays allocated"
        );
        for gone in [failed(404), found("another")] {
            let (part, body) = update(after(&observed_claim, std::slice::from_ref(&gone)));
            assert_eq!((part, &body["status"]["allocation"]), ("status", &Value::Null));
            let written = Outcome { resource_version: Some("9".into()), ..Outcome::success() };
            let (part, body) = update(after(&observed_claim, &[gone.clone(), written.clone()]));
            assert_eq!((part, &body["metadata"]["finalizers"]), ("", &json!([])));
            assert_eq!(body["metadata"]["resourceVersion"], "9");
            let ended = |last| after(&observed_claim, &[gone.clone(), written.clone(), last]);
            assert_eq!(ended(Outcome::success()), None);
            assert_eq!(ended(failed(404)), None);
            assert_eq!(ended(failed(500)), Some(Plan::failure("down")));
        }
    }

    #[test]
    fn unused_claim_is_deleted_after_its_release() {
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true});
        let claim = || -> Claim {
            object(&json!({
                "metadata": {"name": "c", "namespace": "ns", "uid": "c", "ownerReferences": [owner]}, "spec": {},
                "status": {"reservedFor": [consumer("pods", "p")]},
            }))
        };
        let mut finished = pod("p", None);
        finished.status.phase = "Failed".into();
        let observed_claim = observed(claim(), vec![ConsumerDecision::Remove], Some(finished));
        assert_eq!(update(Some(plan(&observed_claim))).0, "status");
        let delete = after(&observed_claim, &[Outcome::success()]).unwrap();
        assert!(
            matches!(&delete.actions[..], [Action::Delete(delete)] if &*delete.target.uid == "c"),
            "{delete:?}"
        );
        assert_eq!(after(&observed_claim, &[Outcome::success(), Outcome::success()]), None);
        let used = observed(claim(), vec![ConsumerDecision::Keep], Some(pod("p", None)));
        assert_eq!((plan(&used), after(&used, &[])), (Plan::nothing(), None));
    }
}
