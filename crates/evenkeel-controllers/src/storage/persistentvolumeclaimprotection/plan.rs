//! Whether a claim may go, and what it says of who uses it.

use crate::{conditions::Condition, storage::finalizers, wire};
use evenkeel_api::{
    storage,
    time::Timestamp,
    views::{ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod},
};
use evenkeel_runtime::plan::{Action, PatchForm, Plan, Rewrite};
use serde_json::json;
use std::sync::Arc;

pub(super) const FINALIZER: &str = "kubernetes.io/pvc-protection";
const UNUSED: &str = "Unused";

/// What the claim says of being used.
pub(super) fn condition(claim: &PersistentVolumeClaim) -> Option<&PersistentVolumeClaimCondition> {
    claim.status.conditions.iter().find(|condition| &*condition.type_ == UNUSED)
}

/// Whether the pod keeps the claim from being deleted: one that was scheduled does, even when it has ended; one whose
/// containers are gone no longer does so for a claim that is its own.
pub(super) fn keeps(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let shut_down = pod.meta.deleting() && pod.meta.deletion_grace_seconds == Some(0);
    !pod.spec.node_name.is_empty() && names(pod, claim, shut_down)
}

/// Whether the claim counts as used by the pod, wherever the pod is.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    !is_terminated(pod) && names(pod, claim, false)
}

fn names(pod: &Pod, claim: &PersistentVolumeClaim, only_by_name: bool) -> bool {
    pod.meta.namespace == claim.meta.namespace
        && storage::claims_of(pod).any(|used| {
            used.claim_name(pod) == *claim.meta.name
                && (!used.ephemeral || (!only_by_name && storage::made_for_pod(claim, pod).is_ok()))
        })
}

/// Whether the pod has ended, or goes and nothing of it runs.
pub(in crate::storage) fn is_terminated(pod: &Pod) -> bool {
    let idle = |statuses: &[ContainerStatus]| {
        statuses
            .iter()
            .all(|status| status.state.terminated.is_some() || status.state.waiting.is_some())
    };
    crate::pods::is_terminal(pod)
        || (pod.meta.deleting()
            && idle(&pod.status.init_container_statuses)
            && idle(&pod.status.container_statuses)
            && idle(&pod.status.ephemeral_container_statuses))
}

/// Whether a pod's change is of no concern to its claims.
pub(super) fn uses_alike(old: &Pod, new: &Pod) -> bool {
    let of = |pod: &Pod| {
        let shut_down = pod.meta.deleting() && pod.meta.deletion_grace_seconds == Some(0);
        (is_terminated(pod), pod.spec.node_name.is_empty(), shut_down)
    };
    of(old) == of(new)
}

/// Whether something would follow from the claim's not being used, so that the cache alone is not to be trusted.
pub(super) fn must_be_sure(
    claim: &PersistentVolumeClaim,
    users: &[Arc<Pod>],
    noting: bool,
) -> bool {
    let would_go =
        finalizers::holds(&claim.meta, FINALIZER) && !users.iter().any(|pod| keeps(pod, claim));
    let would_say = noting
        && is_noted(claim)
        && !users.iter().any(|pod| uses(pod, claim))
        && condition(claim).is_none_or(|condition| &*condition.status != "True");
    would_go || would_say
}

fn is_noted(claim: &PersistentVolumeClaim) -> bool {
    !claim.meta.deleting() && &*claim.status.phase == "Bound"
}

/// What is done about a claim that these pods, and no others, may use.
pub(super) fn plan(
    claim: &PersistentVolumeClaim,
    pods: &[Arc<Pod>],
    noting: bool,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::nothing();
    if noting && is_noted(claim) {
        let used = pods.iter().any(|pod| uses(pod, claim));
        if let Some(change) = note(claim, used, now) {
            plan.push(change);
        }
    }
    let kept = pods.iter().any(|pod| keeps(pod, claim));
    let mut protection = finalizers::protect(claim, FINALIZER, kept);
    if let (false, Some(Action::Rewrite(second))) =
        (plan.actions.is_empty(), protection.actions.first_mut())
    {
        // The condition was written before it.
        second.resource_version = Arc::from("");
    }
    plan.actions.extend(protection.actions);
    plan
}

/// Says since when the claim is used, or is not, where it does not say so yet.
fn note(claim: &PersistentVolumeClaim, used: bool, now: Timestamp) -> Option<Rewrite> {
    let (status, reason, message) = if used {
        ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
    } else {
        ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    };
    // As upstream, a condition that is neither is taken for an answer where the claim is used.
    let known = condition(claim).is_some_and(|known| match (used, &*known.status) {
        (true, known) => known != "True",
        (false, known) => known == "True",
    });
    if known {
        return None;
    }
    let fresh = Condition::new(UNUSED, status, reason, message).with_transition_time(now);
    let mut conditions: Vec<Condition> =
        claim.status.conditions.iter().map(Condition::from).collect();
    match conditions.iter_mut().find(|condition| &*condition.type_ == UNUSED) {
        Some(old) => *old = fresh,
        None => conditions.push(fresh),
    }
    let body = json!({"status": {"conditions": conditions}}).to_string();
    let version = &claim.meta.resource_version;
    Some(Rewrite::new(wire::target(claim), version, PatchForm::Merge, body).of_status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, object};
    use serde_json::Value;

    fn claim(going: bool, unused: Option<&str>) -> PersistentVolumeClaim {
        let conditions: Vec<Value> = unused
            .map(|status| json!({"type": UNUSED, "status": status, "lastTransitionTime": T0.to_string()}))
            .into_iter()
            .chain([json!({"type": "Resizing", "status": "True"})])
            .collect();
        let mut claim: PersistentVolumeClaim = object(&json!({
            "metadata": {"name": "p-data", "namespace": "ns", "uid": "c", "resourceVersion": "7", "finalizers": [FINALIZER],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]},
            "status": {"phase": "Bound", "conditions": conditions},
        }));
        claim.meta.deletion = going.then_some(T0);
        claim
    }

    fn pod(change: &Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
            "spec": {"nodeName": "n", "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "p-data"}}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]},
        });
        json_patch_merge(&mut pod, change);
        Arc::new(object(&pod))
    }

    fn json_patch_merge(into: &mut Value, change: &Value) {
        for (key, value) in change.as_object().into_iter().flatten() {
            if value.is_object() && into.get(key).is_some_and(Value::is_object) {
                json_patch_merge(&mut into[key], value);
            } else {
                into[key] = value.clone();
            }
        }
    }

    #[test]
    fn who_keeps_a_claim() {
        let ephemeral = json!({"spec": {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}});
        let gone = json!({"metadata": {"deletionTimestamp": T0.to_string(), "deletionGracePeriodSeconds": 0}});
        let both = |a: &Value, b: &Value| {
            let mut it = a.clone();
            json_patch_merge(&mut it, b);
            it
        };
        for (what, change, keeps_it, uses_it) in [
            ("a running pod", json!({}), true, true),
            ("one that was not scheduled", json!({"spec": {"nodeName": ""}}), false, true),
            ("one that has ended", json!({"status": {"phase": "Failed"}}), true, false),
            (
                "one of another name",
                json!({"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "o"}}]}}),
                false,
                false,
            ),
            ("its own", ephemeral.clone(), true, true),
            (
                "its own, of another uid",
                both(&ephemeral, &json!({"metadata": {"uid": "q"}})),
                false,
                false,
            ),
            ("its own, shut down", both(&ephemeral, &gone), false, true),
            ("by name, shut down", gone.clone(), true, true),
            (
                "going, and nothing runs",
                both(&gone, &json!({"status": {"containerStatuses": []}})),
                true,
                false,
            ),
            (
                "going, and somebody looks around in it",
                both(
                    &gone,
                    &json!({"status": {"containerStatuses": [],
                        "ephemeralContainerStatuses": [{"name": "e", "state": {"running": {}}}]}}),
                ),
                true,
                true,
            ),
        ] {
            let (claim, pod) = (claim(true, None), pod(&change));
            assert_eq!((keeps(&pod, &claim), uses(&pod, &claim)), (keeps_it, uses_it), "{what}");
        }
    }

    fn bodies(plan: &Plan) -> Vec<Value> {
        let rewrites = plan.actions.iter().map(|action| match action {
            Action::Rewrite(rewrite) => serde_json::from_slice(&rewrite.body).unwrap(),
            other => panic!("{other:?}"),
        });
        rewrites.collect()
    }

    #[test]
    fn since_when_a_claim_is_used_is_noted_once() {
        let users = [pod(&json!({}))];
        for (said, used, want) in [
            (None, true, Some("False")),
            (None, false, Some("True")),
            (Some("True"), true, Some("False")),
            (Some("True"), false, None),
            (Some("False"), true, None),
            (Some("False"), false, Some("True")),
            (Some("Unknown"), true, None),
            (Some("Unknown"), false, Some("True")),
        ] {
            let pods = if used { &users[..] } else { &[] };
            let bodies = bodies(&plan(&claim(false, said), pods, true, T0));
            let told = bodies.first().map(|body| {
                let conditions = body["status"]["conditions"].as_array().unwrap();
                assert_eq!(conditions.len(), 2, "others stay");
                let ours = conditions.iter().find(|c| c["type"] == UNUSED).unwrap();
                ours["status"].as_str().unwrap().to_owned()
            });
            assert_eq!(told.as_deref(), want, "{said:?} {used}");
            assert!(plan(&claim(false, said), pods, false, T0).is_nothing(), "without the gate");
        }
    }

    #[test]
    fn only_what_has_consequences_is_made_sure_of() {
        let users = [pod(&json!({}))];
        for (claim, pods, sure) in [
            (claim(true, None), &users[..], false),
            (claim(true, None), &[], true),
            (claim(false, Some("True")), &[], false),
            (claim(false, Some("False")), &[], true),
            (claim(false, None), &users, false),
        ] {
            assert_eq!(must_be_sure(&claim, pods, true), sure, "{:?}", claim.status);
        }
        let plan = plan(&claim(true, None), &[], true, T0);
        assert_eq!(bodies(&plan), [json!({"metadata": {"finalizers": []}})]);
    }
}
