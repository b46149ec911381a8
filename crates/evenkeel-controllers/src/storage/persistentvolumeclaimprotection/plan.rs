//! Decides whether a claim's finalizer is added or removed, and sets the claim's condition `Unused`.
//!
//! If a claim is unused according to the cache, the first step lists the pods of the namespace live. The next step
//! decides by this list.

use crate::{conditions::Condition, finalizers, wire};
use evenkeel_api::{
    Text, View as _,
    time::Timestamp,
    views::{ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod},
};
use evenkeel_component_helpers::storage::{
    claims::{self, ClaimUse},
    ephemeral,
};
use evenkeel_runtime::{
    client::ListOptions,
    introspect::Description,
    plan::{Action, LiveRead, OnError, Outcomes, PatchType, Plan, Rewrite},
};
use serde_json::json;
use std::sync::Arc;

/// Finalizer that protects a claim. Upstream: `PVCProtectionFinalizer`.
pub(super) const FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Condition type: no pod uses the claim.
const UNUSED: &str = "Unused";

/// Queued claims of a namespace.
pub(super) struct Observed {
    pub(super) namespace: Arc<str>,
    pub(super) queued: Vec<QueuedClaim>,
    /// Queued claims that exist in the cache.
    pub(super) claims: Vec<ClaimWithUsers>,
    /// Whether claims get the condition `Unused`.
    pub(super) sets_unused_condition: bool,
}

/// A queued claim, whether or not it exists.
pub(super) struct QueuedClaim {
    pub(super) name: Text,
    /// Sequence number of the claim's last event.
    pub(super) event: u64,
}

/// A claim and the pods that use it, according to the cache.
pub(super) struct ClaimWithUsers {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) users: Vec<Arc<Pod>>,
}

/// Decides about all queued claims, or requests a live list of the namespace's pods. Upstream:
/// `processPVCsByNamespace`.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    if needs_list(observed) {
        let options = ListOptions::default();
        let list = LiveRead::list::<Pod>(&Pod::kind(), &observed.namespace, &options);
        return Plan::one(LiveRead { on_error: OnError::Abort, ..list });
    }
    protect_all(observed, None, now)
}

/// Decides by the live list of pods if [`plan`] requested it. Upstream: `askAPIServer`.
pub(super) fn next(observed: &Observed, done: &Outcomes, now: Timestamp) -> Option<Plan> {
    let [listed] = &done.0[..] else { return None };
    let pods = match (&listed.reply, &listed.error) {
        (Some(reply), _) => reply.list::<Pod>(),
        (None, Some(error)) if needs_list(observed) => Err(error.clone()),
        (None, _) => return None,
    };
    Some(match pods {
        Ok(pods) => {
            let pods: Vec<_> = pods.items.into_iter().map(Arc::new).collect();
            protect_all(observed, Some(&pods), now)
        }
        Err(error) => Plan::failure(error.message),
    })
}

/// Returns whether the decision about a queued claim needs a live list of pods.
fn needs_list(observed: &Observed) -> bool {
    let sets_unused_condition = observed.sets_unused_condition;
    observed
        .claims
        .iter()
        .any(|queued| needs_live_pods(&queued.claim, &queued.users, sets_unused_condition))
}

/// Returns the changes of all claims. `live_pods` are the namespace's pods, if they were listed.
fn protect_all(observed: &Observed, live_pods: Option<&[Arc<Pod>]>, now: Timestamp) -> Plan {
    let sets_unused_condition = observed.sets_unused_condition;
    let mut plan = Plan::nothing();
    for ClaimWithUsers { claim, users } in &observed.claims {
        let pods = match live_pods {
            Some(live_pods) if needs_live_pods(claim, users, sets_unused_condition) => live_pods,
            _ => users,
        };
        plan.actions.extend(protect(claim, pods, sets_unused_condition, now).actions);
    }
    plan
}

/// Returns whether the finalizer keeps the claim from being deleted now.
pub(super) fn is_deletion_blocked(claim: &PersistentVolumeClaim) -> bool {
    finalizers::blocks_deletion(&claim.meta, FINALIZER)
}

/// Describes the pods that block the deletion of claims.
pub(super) fn describe(blocked: impl Iterator<Item = ClaimWithUsers>) -> Description {
    let mut description = Description::new();
    for ClaimWithUsers { claim, users } in blocked {
        let users = users.iter().filter(|pod| blocks_deletion(pod, &claim));
        let names: Vec<&str> = users.map(|pod| &*pod.meta.name).collect();
        if !names.is_empty() {
            let claim = &claim.meta.name;
            let users = names.join(", ");
            description.waits(format!("claim {claim} is being deleted and used by {users}"));
        }
    }
    description
}

/// Returns the claim's condition `Unused`.
pub(super) fn condition(claim: &PersistentVolumeClaim) -> Option<&PersistentVolumeClaimCondition> {
    claim.status.conditions.iter().find(|condition| &*condition.type_ == UNUSED)
}

/// Returns whether the pod blocks the deletion of the claim. A scheduled pod blocks it even after the pod has ended. A
/// pod that has shut down does not block the deletion of its own ephemeral claim.
fn blocks_deletion(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let is_scheduled = !pod.spec.node_name.is_empty();
    is_scheduled && volumes_of(pod, claim).any(|used| !used.is_ephemeral || !has_shut_down(pod))
}

/// Returns whether the pod uses the claim, whether or not it is scheduled.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    !is_terminated(pod) && volumes_of(pod, claim).next().is_some()
}

/// Returns the volumes of the pod that are backed by the claim. An ephemeral volume is backed only by a claim that was
/// created for this pod.
fn volumes_of<'a>(
    pod: &'a Pod,
    claim: &'a PersistentVolumeClaim,
) -> impl Iterator<Item = ClaimUse<'a>> {
    claims::of_pod(pod).filter(move |used| {
        pod.meta.namespace == claim.meta.namespace
            && used.claim_name(pod) == *claim.meta.name
            && (!used.is_ephemeral || ephemeral::made_for_pod(claim, pod).is_ok())
    })
}

/// Returns whether the containers of a deleted pod have stopped. The kubelet then sets the grace period to zero.
fn has_shut_down(pod: &Pod) -> bool {
    pod.meta.deleting() && pod.meta.deletion_grace_seconds == Some(0)
}

/// Returns whether the pod has ended, or is terminating without running containers.
pub(in crate::storage) fn is_terminated(pod: &Pod) -> bool {
    let none_runs = |statuses: &[ContainerStatus]| {
        statuses
            .iter()
            .all(|status| status.state.terminated.is_some() || status.state.waiting.is_some())
    };
    crate::pods::is_terminal(pod)
        || (pod.meta.deleting()
            && none_runs(&pod.status.init_container_statuses)
            && none_runs(&pod.status.container_statuses)
            && none_runs(&pod.status.ephemeral_container_statuses))
}

/// Returns whether a pod's update cannot affect its claims.
pub(super) fn is_irrelevant_update(old: &Pod, new: &Pod) -> bool {
    let state = |pod: &Pod| (is_terminated(pod), pod.spec.node_name.is_empty(), has_shut_down(pod));
    state(old) == state(new)
}

/// Returns whether the claim would be changed because it is unused according to `users`. Such a change requires a live
/// list of pods.
fn needs_live_pods(
    claim: &PersistentVolumeClaim,
    users: &[Arc<Pod>],
    sets_unused_condition: bool,
) -> bool {
    let would_lose_finalizer =
        is_deletion_blocked(claim) && !users.iter().any(|pod| blocks_deletion(pod, claim));
    let would_become_unused = sets_unused_condition
        && may_have_unused_condition(claim)
        && !users.iter().any(|pod| uses(pod, claim))
        && condition(claim).is_none_or(|condition| &*condition.status != "True");
    would_lose_finalizer || would_become_unused
}

/// Returns whether the claim is in a state in which the controller sets the condition.
fn may_have_unused_condition(claim: &PersistentVolumeClaim) -> bool {
    !claim.meta.deleting() && &*claim.status.phase == "Bound"
}

/// Returns the changes of a claim, given all pods that may use it. Upstream: `processPVC`.
fn protect(
    claim: &PersistentVolumeClaim,
    pods: &[Arc<Pod>],
    sets_unused_condition: bool,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::nothing();
    if sets_unused_condition && may_have_unused_condition(claim) {
        let is_used = pods.iter().any(|pod| uses(pod, claim));
        if let Some(change) = unused_condition_update(claim, is_used, now) {
            plan.push(change);
        }
    }
    let is_needed =
        is_deletion_blocked(claim) && pods.iter().any(|pod| blocks_deletion(pod, claim));
    let mut protection = finalizers::protect(claim, FINALIZER, is_needed);
    if !plan.actions.is_empty()
        && let Some(Action::Rewrite(finalizer_change)) = protection.actions.first_mut()
    {
        // The write of the condition comes first and changes the resource version. Therefore, this write requires none.
        finalizer_change.resource_version = Arc::from("");
    }
    plan.actions.extend(protection.actions);
    plan
}

/// Returns the update of the claim's condition `Unused`, or `None` if its status is correct.
fn unused_condition_update(
    claim: &PersistentVolumeClaim,
    is_used: bool,
    now: Timestamp,
) -> Option<Rewrite> {
    let (status, reason, message) = if is_used {
        ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
    } else {
        ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    };
    // As upstream, any status except `True` counts as correct for a claim in use.
    let is_correct =
        condition(claim).is_some_and(|current| (&*current.status == "True") != is_used);
    if is_correct {
        return None;
    }
    let new = Condition::new(UNUSED, status, reason, message).with_transition_time(now);
    let mut conditions: Vec<Condition> =
        claim.status.conditions.iter().map(Condition::from).collect();
    match conditions.iter_mut().find(|condition| &*condition.type_ == UNUSED) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    let body = json!({"status": {"conditions": conditions}}).to_string();
    let version = &claim.meta.resource_version;
    Some(Rewrite::new(wire::target(claim), version, PatchType::Merge, body).of_status())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, object};
    use evenkeel_runtime::plan::{Failure, Outcome, Reply};
    use serde_json::Value;

    /// Returns the claim `p-data` of the pod `p`, with this status of its condition `Unused`.
    fn claim(terminating: bool, unused: Option<&str>) -> PersistentVolumeClaim {
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
        claim.meta.deletion = terminating.then_some(T0);
        claim
    }

    /// Returns the pod `p`, which uses the claim `p-data`, with these changes.
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
    fn scheduled_pods_block_deletion_and_unfinished_pods_use_the_claim() {
        let ephemeral = json!({"spec": {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}});
        let shut_down = json!({"metadata": {"deletionTimestamp": T0.to_string(), "deletionGracePeriodSeconds": 0}});
        let merged = |a: &Value, b: &Value| {
            let mut result = a.clone();
            json_patch_merge(&mut result, b);
            result
        };
        for (case, change, blocks, used) in [
            ("a running pod", json!({}), true, true),
            ("an unscheduled pod", json!({"spec": {"nodeName": ""}}), false, true),
            ("a finished pod", json!({"status": {"phase": "Failed"}}), true, false),
            (
                "another claim name",
                json!({"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "o"}}]}}),
                false,
                false,
            ),
            ("an ephemeral volume", ephemeral.clone(), true, true),
            (
                "an ephemeral volume of another uid",
                merged(&ephemeral, &json!({"metadata": {"uid": "q"}})),
                false,
                false,
            ),
            ("an ephemeral volume, pod shut down", merged(&ephemeral, &shut_down), false, true),
            ("a claim name, pod shut down", shut_down.clone(), true, true),
            (
                "terminating, no running container",
                merged(&shut_down, &json!({"status": {"containerStatuses": []}})),
                true,
                false,
            ),
            (
                "terminating, running ephemeral container",
                merged(
                    &shut_down,
                    &json!({"status": {"containerStatuses": [],
                        "ephemeralContainerStatuses": [{"name": "e", "state": {"running": {}}}]}}),
                ),
                true,
                true,
            ),
        ] {
            let (claim, pod) = (claim(true, None), pod(&change));
            assert_eq!(
                (blocks_deletion(&pod, &claim), uses(&pod, &claim)),
                (blocks, used),
                "{case}"
            );
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
    fn unused_condition_follows_use() {
        let users = [pod(&json!({}))];
        for (status, used, want) in [
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
            let bodies = bodies(&protect(&claim(false, status), pods, true, T0));
            let body = bodies.first().map(|body| {
                let conditions = body["status"]["conditions"].as_array().unwrap();
                assert_eq!(conditions.len(), 2, "other conditions are kept");
                let ours = conditions.iter().find(|c| c["type"] == UNUSED).unwrap();
                ours["status"].as_str().unwrap().to_owned()
            });
            assert_eq!(body.as_deref(), want, "{status:?} {used}");
            assert!(
                protect(&claim(false, status), pods, false, T0).is_nothing(),
                "without the gate"
            );
        }
    }

    #[test]
    fn pods_are_listed_live_only_before_a_change() {
        let users = [pod(&json!({}))];
        for (claim, pods, needs_list) in [
            (claim(true, None), &users[..], false),
            (claim(true, None), &[], true),
            (claim(false, Some("True")), &[], false),
            (claim(false, Some("False")), &[], true),
            (claim(false, None), &users, false),
        ] {
            assert_eq!(needs_live_pods(&claim, pods, true), needs_list, "{:?}", claim.status);
        }
        let plan = protect(&claim(true, None), &[], true, T0);
        assert_eq!(bodies(&plan), [json!({"metadata": {"finalizers": []}})]);
    }

    fn observed(claims: Vec<PersistentVolumeClaim>, users: &[Arc<Pod>]) -> Observed {
        let with_users = |claim| ClaimWithUsers { claim: Arc::new(claim), users: users.to_vec() };
        let claims = claims.into_iter().map(with_users).collect();
        Observed { namespace: "ns".into(), queued: vec![], claims, sets_unused_condition: false }
    }

    #[test]
    fn finalizer_stays_if_the_live_list_has_a_user() {
        let observed = observed(vec![claim(true, None), claim(true, None)], &[]);
        let first = plan(&observed, T0);
        let [Action::Read(read)] = &first.actions[..] else { panic!("{first:?}") };
        assert_eq!((read.path(), read.on_error), ("/api/v1/namespaces/ns/pods", OnError::Abort));
        let after = |outcomes: Vec<Outcome>| next(&observed, &Outcomes(outcomes), T0);
        let listed = |items: Value| Outcome {
            reply: Some(Reply::json(
                json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items})
                    .to_string(),
            )),
            ..Outcome::success()
        };
        let user = json!({
            "metadata": {"name": "q", "namespace": "ns", "uid": "q"},
            "spec": {"nodeName": "n", "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "p-data"}}]},
        });
        assert_eq!(after(vec![listed(json!([user]))]), Some(Plan::nothing()));
        let unused = after(vec![listed(json!([]))]).unwrap();
        assert_eq!(bodies(&unused), vec![json!({"metadata": {"finalizers": []}}); 2]);
        assert_eq!(after(vec![listed(json!([])), Outcome::success()]), None);
        let missing = Failure {
            code: 404,
            reason: String::new(),
            message: "no pods here".into(),
            namespace_terminating: false,
        };
        assert_eq!(after(vec![Outcome::failure(missing)]), Some(Plan::failure("no pods here")));
    }

    #[test]
    fn no_pods_are_listed_if_a_cached_pod_uses_the_claim() {
        let used = observed(vec![claim(true, None)], &[pod(&json!({}))]);
        assert_eq!(plan(&used, T0), Plan::nothing());
        assert_eq!(next(&used, &Outcomes::default(), T0), None);
        let not_terminating = observed(vec![claim(false, None)], &[]);
        assert_eq!(next(&not_terminating, &Outcomes(vec![Outcome::success()]), T0), None);
    }
}
