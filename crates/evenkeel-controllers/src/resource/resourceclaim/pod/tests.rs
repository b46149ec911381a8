use super::*;
use crate::fixtures::object;
use evenkeel_runtime::plan::{Action, Reply};
use serde_json::{Value, json};

/// Returns a claim of the pod with the uid `owner`; `more` overrides its fields.
fn claim(name: &str, owner: &str, more: &Value) -> Arc<Claim> {
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
    let mut claim = json!({"metadata": {"name": name, "namespace": "ns", "ownerReferences": [owner]}, "spec": {}});
    for (field, value) in more.as_object().unwrap() {
        claim[field] = value.clone();
    }
    Arc::new(object(&claim))
}

/// Returns a pod on `node` with claims `a` and `b`, both from the template `t`, and with these statuses.
fn observed(statuses: &Value, node: &str) -> Observed {
    let pod: Pod = object(&json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": node, "resourceClaims": [
            {"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimTemplateName": "t"},
        ]},
        "status": {"resourceClaimStatuses": statuses},
    }));
    let template: Arc<Template> = Arc::new(object(
        &json!({"metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": {}}}),
    ));
    let named = || NamedObjects { claim: None, template: Some(Arc::clone(&template)) };
    let named = vec![named(), named()];
    let gates = FeatureGates { admin_access: false, prioritized_list: false };
    Observed { pod: Arc::new(pod), named, owned: vec![], gates }
}

fn created(name: &str) -> Outcome {
    Outcome { created: Some(name.into()), ..Outcome::success() }
}

fn failure(code: u16, message: &str) -> Outcome {
    Outcome::failure(Failure {
        code,
        reason: String::new(),
        message: message.to_owned(),
        namespace_terminating: false,
    })
}

fn after(observed: &Observed, done: &[Outcome]) -> Option<Plan> {
    next(observed, &Outcomes(done.to_vec()))
}

/// Returns the actions as text, and the error.
fn summaries_and_error(plan: &Plan) -> (Vec<String>, Option<String>) {
    let summaries = plan.actions.iter().map(|action| match action {
        Action::Read(read) => format!("read {}", read.path()),
        Action::Create(create) => {
            let body: Value = serde_json::from_slice(&create.body).unwrap();
            format!("create {}", body["metadata"]["generateName"].as_str().unwrap())
        }
        Action::Patch(patch) => {
            let body: Value = serde_json::from_slice(&patch.body).unwrap();
            format!("status {}", body["status"]["resourceClaimStatuses"])
        }
        Action::Update(update) => format!("reserve {}", update.target.name),
        Action::Event(event) => format!("{}: {}", event.reason, event.message),
        other => panic!("{other:?}"),
    });
    (summaries.collect(), plan.error.as_ref().map(|error| error.message.clone()))
}

fn actions(plan: &Plan) -> Vec<String> {
    let (actions, error) = summaries_and_error(plan);
    assert_eq!(error, None);
    actions
}

#[test]
fn missing_claims_are_created_and_recorded_in_the_status() {
    let observed_pod = observed(&json!([]), "");
    assert_eq!(actions(&plan(&observed_pod)), ["create p-a-"]);
    assert_eq!(actions(&after(&observed_pod, &[created("p-a-x")]).unwrap()), ["create p-b-"]);
    let both = [created("p-a-x"), created("p-b-x")];
    assert_eq!(
        actions(&after(&observed_pod, &both).unwrap()),
        [
            r#"status [{"name":"a","resourceClaimName":"p-a-x"},{"name":"b","resourceClaimName":"p-b-x"}]"#
        ]
    );
    let [a, b] = both;
    assert_eq!(after(&observed_pod, &[a, b, Outcome::success()]), None);
    let names = |done: &[Outcome]| -> Vec<(Option<String>, bool)> {
        let creations = creations(&observed_pod, &Outcomes(done.to_vec())).into_iter();
        creations.map(|made| (made.claim.metadata.generate_name, made.succeeded)).collect()
    };
    let (a, b) = (Some("p-a-".to_owned()), Some("p-b-".to_owned()));
    assert_eq!(names(&[created("x"), failure(500, "no")]), [(a.clone(), true), (b, false)]);
    assert_eq!(
        names(&[failure(500, "no"), Outcome::success()]),
        [(a, false)],
        "an event is not a claim"
    );
    assert_eq!(names(&[]), []);
}

#[test]
fn failed_claim_creation_ends_the_pass_with_an_event() {
    let observed_pod = observed(&json!([]), "");
    let message = "PodResourceClaim b: create ResourceClaim : quota";
    assert_eq!(
        summaries_and_error(
            &after(&observed_pod, &[created("p-a-x"), failure(403, "quota")]).unwrap()
        ),
        (
            vec![format!("FailedResourceClaimCreation: {message}")],
            Some(format!("pod ns/p, {message}"))
        )
    );
    let mut observed_pod = observed(&json!([]), "");
    observed_pod.named[0].template = None;
    let (events, error) = summaries_and_error(&plan(&observed_pod));
    assert!(events[0].contains(r#"resource claim template "t""#) && error.is_some(), "{events:?}");
}

#[test]
fn owned_claim_is_reused() {
    let mut observed_pod = observed(&json!([]), "");
    let note = json!({"metadata": {"name": "found", "namespace": "ns", "annotations": {plan::POD_CLAIM: "a"}}});
    observed_pod.owned = vec![claim("found", "u", &note)];
    assert_eq!(actions(&plan(&observed_pod)), ["create p-b-"]);
    assert_eq!(
        actions(&after(&observed_pod, &[created("p-b-x")]).unwrap()),
        [
            r#"status [{"name":"a","resourceClaimName":"found"},{"name":"b","resourceClaimName":"p-b-x"}]"#
        ]
    );
}

#[test]
fn claims_missing_from_the_cache_are_read_live() {
    let statuses = json!([{"name": "a", "resourceClaimName": "p-a-x"}, {"name": "b", "resourceClaimName": "p-b-x"}]);
    let mut observed_pod = observed(&statuses, "node");
    observed_pod.named[1].claim = Some(claim("p-b-x", "u", &json!({"status": {"allocation": {}}})));
    let path = "read /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/p-a-x";
    assert_eq!(actions(&plan(&observed_pod)), [path]);
    let read = |owner: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {},
            "metadata": {"name": "p-a-x", "namespace": "ns", "ownerReferences": [owner]},
        });
        Outcome { reply: Some(Reply::json(claim.to_string())), ..Outcome::success() }
    };
    // The cache lacks the first claim, so this pass reserves nothing.
    assert_eq!(after(&observed_pod, &[read("u")]), Some(Plan::nothing()));
    for other in [read("before"), failure(404, "gone")] {
        assert_eq!(actions(&after(&observed_pod, &[other]).unwrap()), ["create p-a-"]);
    }
    let (events, error) =
        summaries_and_error(&after(&observed_pod, &[failure(500, "down")]).unwrap());
    assert_eq!(
        events,
        ["FailedResourceClaimCreation: PodResourceClaim a: checking claim existence: down"]
    );
    assert!(error.is_some());
}

#[test]
fn allocated_claims_of_a_scheduled_pod_are_reserved() {
    let statuses = json!([{"name": "a", "resourceClaimName": "p-a-x"}, {"name": "b", "resourceClaimName": "p-b-x"}]);
    let observed_on = |node: &str, owner: &str| {
        let mut observed_pod = observed(&statuses, node);
        for (named, name) in observed_pod.named.iter_mut().zip(["p-a-x", "p-b-x"]) {
            named.claim = Some(claim(name, "u", &json!({"status": {"allocation": {}}})));
        }
        observed_pod.named[1].claim = Some(claim("p-b-x", owner, &json!({"status": {}})));
        observed_pod
    };
    assert_eq!(actions(&plan(&observed_on("node", "u"))), ["reserve p-a-x"]);
    assert_eq!(after(&observed_on("node", "u"), &[Outcome::success()]), None);
    assert_eq!(plan(&observed_on("", "u")), Plan::nothing());
    // A claim that another pod owns does not count: a new claim is created.
    assert_eq!(actions(&plan(&observed_on("node", "before"))), ["create p-b-"]);
    let mut done = observed_on("node", "u");
    let mut pod = (*done.pod).clone();
    pod.status.phase = "Succeeded".into();
    done.pod = Arc::new(pod);
    assert_eq!((plan(&done), after(&done, &[])), (Plan::nothing(), None));
}
