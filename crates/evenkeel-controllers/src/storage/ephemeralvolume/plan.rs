//! Plan that creates the missing claims of a pod's ephemeral volumes.

use crate::wire;
use evenkeel_api::{
    View,
    views::{PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::{claims, ephemeral};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Create, EventRecord, OnError, Outcomes, Plan, PlanError},
};
use std::sync::Arc;

/// A pod with the claims of its ephemeral volumes.
pub(super) struct Observed {
    pod: Arc<Pod>,
    /// The claim of each ephemeral volume, in the pod's order. `None` if it does not exist.
    claims: Vec<Option<Arc<PersistentVolumeClaim>>>,
}

impl Observed {
    /// Observes the pod. `claim_by_name` returns a claim of the pod's namespace.
    pub(super) fn new(
        pod: Arc<Pod>,
        claim_by_name: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
    ) -> Self {
        let volumes = claims::of_pod(&pod).filter(|used| used.is_ephemeral);
        let claims = volumes.map(|used| claim_by_name(&used.claim_name(&pod))).collect();
        Self { pod, claims }
    }
}

/// Step for one ephemeral volume.
#[derive(Debug, PartialEq)]
enum Step {
    /// Create the claim.
    Create(Box<Create>),
    /// Record this event, because the claim with this name belongs to another owner.
    ReportConflict(EventRecord),
}

/// Returns whether the pod has ephemeral volumes and is not terminating.
pub(super) fn needs_claims(pod: &Pod) -> bool {
    !pod.meta.deleting() && claims::of_pod(pod).any(|used| used.is_ephemeral)
}

/// Creates the missing claims one after the other. The reconciliation ends at the first volume whose claim cannot be
/// created or belongs to another owner. Upstream: `syncHandler`.
pub(super) fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::nothing();
    for step in steps(observed) {
        match step {
            Step::Create(create) => plan.push(*create),
            Step::ReportConflict(event) => {
                plan.error = Some(PlanError::new(event.message.clone()));
                plan.push(event);
                break;
            }
        }
    }
    plan
}

/// Number of requests to create a claim, and number of failed ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CreateCounts {
    pub(super) requests: u64,
    pub(super) failures: u64,
}

/// Counts the creation requests among the actions of a reconciliation. The only other action is an event. Its outcome
/// has neither a name nor an error.
pub(super) fn count_creates(outcomes: &Outcomes) -> CreateCounts {
    let mut requests = 0;
    let mut failures = 0;
    for outcome in &outcomes.0 {
        let is_request = outcome.created.is_some() || outcome.error.is_some();
        // As upstream, a refusal because the namespace terminates is not a failure.
        let is_failure = outcome.error.as_ref().is_some_and(|error| !error.namespace_terminating);
        requests += u64::from(is_request);
        failures += u64::from(is_failure);
    }
    CreateCounts { requests, failures }
}

/// Describes the claims that belong to another owner.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    for step in steps(observed) {
        if let Step::ReportConflict(event) = step {
            description.waits(event.message);
        }
    }
    description
}

/// Returns the steps, in the order of the pod's volumes.
fn steps(observed: &Observed) -> Vec<Step> {
    let pod = &*observed.pod;
    if pod.meta.deleting() {
        return Vec::new();
    }
    let volumes = claims::of_pod(pod).filter(|used| used.is_ephemeral);
    let steps = volumes
        .zip(&observed.claims)
        .filter_map(|(used, claim)| volume_step(pod, &used, claim.as_deref()));
    steps.collect()
}

/// Returns the step for an ephemeral volume, or `None` if the pod owns its claim.
fn volume_step(
    pod: &Pod,
    used: &claims::ClaimUse<'_>,
    claim: Option<&PersistentVolumeClaim>,
) -> Option<Step> {
    let Some(claim) = claim else {
        return Some(Step::Create(Box::new(create_action(pod, used)?)));
    };
    let error = ephemeral::made_for_pod(claim, pod).err()?;
    let message = format!("ephemeral volume {}: {error}", used.volume.name);
    Some(Step::ReportConflict(failed_binding(pod, &message)))
}

/// Returns the creation of a claim from the volume's template.
fn create_action(pod: &Pod, used: &claims::ClaimUse<'_>) -> Option<Create> {
    let template = &used.volume.source.ephemeral.as_deref()?.volume_claim_template;
    let name = used.claim_name(pod);
    let namespace = &*pod.meta.namespace;
    let owner = wire::controller_reference(&wire::target(pod));
    let volume = &used.volume.name;
    Some(Create {
        failed: Some(failed_binding(
            pod,
            &format!("ephemeral volume {volume}: create PVC {name}: {{error}}"),
        )),
        waits_for_earlier_creates: true,
        on_error: OnError::Abort,
        ..Create::new(
            PersistentVolumeClaim::kind(),
            namespace,
            template.claim_json(&name, namespace, &owner),
        )
    })
}

/// Returns the event about a claim that cannot be created or used.
fn failed_binding(pod: &Pod, message: &str) -> EventRecord {
    EventRecord::warning(wire::target(pod), "FailedBinding", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, object};
    use evenkeel_runtime::plan::{Action, Failure, Outcome};
    use serde_json::{Value, json};

    /// Returns a pod with the ephemeral volume `data`.
    fn pod() -> Pod {
        object(&json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
            "spec": {"volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "data", "ephemeral": {"volumeClaimTemplate": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["no"]},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
            ]},
        }))
    }

    #[test]
    fn claim_is_created_from_the_template() {
        let observed = Observed::new(Arc::new(pod()), |_| None);
        let steps = steps(&observed);
        let [Step::Create(create)] = &steps[..] else { panic!("{steps:?}") };
        let body: Value = serde_json::from_slice(&create.body).unwrap();
        assert_eq!(
            body["metadata"],
            json!({
                "name": "web-data", "namespace": "ns", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true}],
            })
        );
        assert_eq!(body["spec"]["resources"]["requests"]["storage"], "1Gi");
    }

    #[test]
    fn existing_claim_must_be_owned_by_the_pod() {
        let claim = |owner: &str| {
            let claim: PersistentVolumeClaim = object(
                &json!({"metadata": {"name": "web-data", "namespace": "ns",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": true}]}}),
            );
            Arc::new(claim)
        };
        let steps_with =
            |owner: &str| steps(&Observed::new(Arc::new(pod()), |_| Some(claim(owner))));
        assert!(steps_with("u").is_empty());
        let steps = steps_with("other");
        let [Step::ReportConflict(event)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(
            event.message,
            "ephemeral volume data: PVC ns/web-data was not created for pod ns/web (pod is not owner)"
        );
    }

    #[test]
    fn terminating_pods_get_no_claims() {
        let mut terminating = pod();
        assert!(needs_claims(&terminating));
        terminating.meta.deletion = Some(T0);
        assert!(
            !needs_claims(&terminating)
                && steps(&Observed::new(Arc::new(terminating), |_| None)).is_empty()
        );
    }

    #[test]
    fn first_claim_of_another_owner_ends_the_plan() {
        let volume = |name: &str| {
            let template = json!({"volumeClaimTemplate": {"spec": {}}});
            json!({"name": name, "ephemeral": template})
        };
        let pod: Pod = object(&json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
            "spec": {"volumes": [volume("a"), volume("b"), volume("c")]},
        }));
        let claim = Arc::new(object(&json!({"metadata": {"name": "web-b", "namespace": "ns"}})));
        let observed =
            Observed::new(Arc::new(pod), |name| (name == "web-b").then(|| Arc::clone(&claim)));
        let plan = plan(&observed);
        let [Action::Create(create), Action::Event(event)] = &plan.actions[..] else {
            panic!("{plan:?}")
        };
        assert!(create.waits_for_earlier_creates && create.on_error == OnError::Abort);
        assert_eq!(plan.error, Some(PlanError::new(event.message.clone())));
        assert!(event.message.starts_with("ephemeral volume b: "), "{event:?}");
    }

    #[test]
    fn create_requests_and_failures_are_counted() {
        let failure = |namespace_terminating| {
            let (reason, message) = (String::new(), String::new());
            Outcome::failure(Failure { code: 403, reason, message, namespace_terminating })
        };
        let created = Outcome { created: Some("web-a".into()), ..Outcome::success() };
        for (outcomes, requests, failures) in [
            (vec![], 0, 0),
            (vec![created.clone(), Outcome::success()], 1, 0),
            (vec![created, failure(false)], 2, 1),
            (vec![failure(true)], 1, 0),
        ] {
            assert_eq!(count_creates(&Outcomes(outcomes)), CreateCounts { requests, failures });
        }
    }
}
