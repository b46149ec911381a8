//! Admission of deletions: policies and webhooks get the request, and may warn.

use base64::Engine as _;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::Client;
use crate::webhook::{Identity, Webhook};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFAULT: &str = "/api/v1/namespaces/default";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn response(review: &Value, mut response: Value) -> (StatusCode, Value) {
    response["uid"] = review["request"]["uid"].clone();
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (StatusCode::OK, answer)
}

/// Allows with a warning that names the old object.
fn warns(review: &Value) -> (StatusCode, Value) {
    let name = review["request"]["oldObject"]["metadata"]["name"].as_str().unwrap_or_default();
    response(review, json!({"allowed": true, "warnings": [format!("{name} is deleted")]}))
}

/// Patches each object, unless its name is `empty`.
fn patches(review: &Value) -> (StatusCode, Value) {
    let mut patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]);
    if review["request"]["name"] == "empty" {
        patch = json!([]);
    }
    let patch = base64::prelude::BASE64_STANDARD.encode(patch.to_string());
    response(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// Configures a webhook for the operations on the resources of a group in v1.
async fn configure(
    client: &Client,
    kind: &str,
    hook: &Webhook,
    (group, resource): (&str, &str),
    match_policy: &str,
) {
    let rule = json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["DELETE"]});
    let webhook = json!({"name": "deletions.example.com", "clientConfig": hook.config, "rules": [rule],
        "matchPolicy": match_policy, "sideEffects": "None", "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]});
    let name = format!("{kind}-{}-{resource}-{}", group.len(), match_policy.to_lowercase());
    let body = json!({"metadata": {"name": name}, "webhooks": [webhook]});
    client.make(&format!("{REGISTRATION}/{kind}webhookconfigurations"), body).await;
}

/// Deletes with `DELETE`, and returns code and warnings.
async fn delete(client: &Client, path: &str) -> (StatusCode, Vec<String>) {
    let answer = client.send("DELETE", path, &[], Bytes::new()).await;
    let warnings = answer.headers().get_all("warning").iter();
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    (answer.status(), warnings.map(text).collect())
}

#[tokio::test]
async fn webhooks_see_the_version_of_the_request_and_may_warn() {
    let (client, own) = (Client::start().await, Identity::own(|_| {}));
    let [exact_core, exact, equivalent] = [
        Webhook::start(&own, "/core", warns).await,
        Webhook::start(&own, "/exact", warns).await,
        Webhook::start(&own, "/equivalent", warns).await,
    ];
    configure(&client, "validating", &exact_core, ("", "events"), "Exact").await;
    configure(&client, "validating", &exact, ("events.k8s.io", "events"), "Exact").await;
    configure(&client, "validating", &equivalent, ("events.k8s.io", "events"), "Equivalent").await;
    for name in ["a", "b", "c"] {
        let pod = json!({"kind": "Pod", "namespace": "default", "name": "p"});
        let event = json!({"metadata": {"name": name, "namespace": "default", "labels": {name: ""}},
            "involvedObject": pod, "reason": "r", "type": "Normal"});
        client.make(&format!("{DEFAULT}/events"), event).await;
    }
    let asked = |hook: &Webhook| {
        let requests = hook.take().into_iter().map(|review| review["request"].clone());
        requests.collect::<Vec<_>>()
    };
    let warning = |name: &str| vec![format!("299 - \"{name} is deleted\"")];

    let answer = delete(&client, &format!("{EVENTS}/a")).await;
    assert_eq!(answer, (StatusCode::OK, warning("a")));
    assert_eq!(asked(&exact_core), Vec::<Value>::new());
    for hook in [&exact, &equivalent] {
        let [request] = &asked(hook)[..] else { panic!("the webhook is asked once") };
        assert_eq!(request["name"], "a");
        for field in ["kind", "requestKind", "resource", "requestResource"] {
            assert_eq!(request[field]["group"], "events.k8s.io", "{field}");
        }
        assert!(request["oldObject"]["regarding"].is_object(), "{request}");
    }

    let answer = delete(&client, &format!("{DEFAULT}/events/b")).await;
    assert_eq!(answer, (StatusCode::OK, warning("b")));
    assert_eq!((asked(&exact_core).len(), asked(&exact).len()), (1, 0));
    let request = &asked(&equivalent)[0];
    assert_eq!(
        (&request["requestKind"]["group"], &request["kind"]["group"]),
        (&json!(""), &json!("events.k8s.io"))
    );

    // A collection has no name.
    let answer = delete(&client, &format!("{EVENTS}?labelSelector=c")).await;
    assert_eq!(answer, (StatusCode::OK, warning("c")));
    let request = &asked(&exact)[0];
    assert!(request["name"].is_null(), "{request}");
}

#[tokio::test]
async fn a_mutating_webhook_cannot_change_what_is_deleted() {
    let (client, own) = (Client::start().await, Identity::own(|_| {}));
    let hook = Webhook::start(&own, "/patches", patches).await;
    configure(&client, "mutating", &hook, ("", "configmaps"), "Equivalent").await;
    for name in ["empty", "full"] {
        client.make(&format!("{DEFAULT}/configmaps"), json!({"metadata": {"name": name}})).await;
    }
    let (code, _) = delete(&client, &format!("{DEFAULT}/configmaps/empty")).await;
    assert_eq!(code, StatusCode::OK);
    let path = format!("{DEFAULT}/configmaps/full");
    let (code, status) = client.ask("DELETE", &path, Value::Null).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{status}");
    let why = "Internal error occurred: admission webhook \"deletions.example.com\" attempted to modify the object, \
        which is not supported for this operation";
    assert_eq!(status["message"], why);
    assert_eq!(client.get(&path).await["metadata"]["name"], "full");
}

#[tokio::test]
async fn the_deletions_of_evictions_and_definitions_pass_no_admission() {
    let (client, own) = (Client::start().await, Identity::own(|_| {}));
    let hook = Webhook::start(&own, "/deletions", warns).await;
    configure(&client, "validating", &hook, ("", "pods"), "Equivalent").await;
    client
        .make(&format!("{DEFAULT}/serviceaccounts"), json!({"metadata": {"name": "default"}}))
        .await;
    for name in ["p", "q"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        client.make(&format!("{DEFAULT}/pods"), pod).await;
    }
    let eviction = json!({"metadata": {"name": "p"}});
    client.make(&format!("{DEFAULT}/pods/p/eviction"), eviction).await;
    assert_eq!(hook.take(), Vec::<Value>::new());
    let (code, warnings) = delete(&client, &format!("{DEFAULT}/pods/q")).await;
    assert_eq!((code, warnings.len(), hook.take().len()), (StatusCode::OK, 1, 1));
}

#[tokio::test]
async fn a_policy_names_no_object_of_a_collection_that_it_refuses() {
    let client = Client::start().await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]});
    let validation =
        json!({"expression": "oldObject.metadata.name != 'kept'", "message": "it is kept"});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    client.make(&format!("{REGISTRATION}/validatingadmissionpolicies"), policy).await;
    for (name, action) in [("b", "Deny"), ("w", "Warn")] {
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": "p", "validationActions": [action]}});
        client.make(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), binding).await;
    }
    client.make(&format!("{DEFAULT}/configmaps"), json!({"metadata": {"name": "kept"}})).await;
    for (path, name) in [("/kept", "kept"), ("", "Unknown")] {
        let path = format!("{DEFAULT}/configmaps{path}");
        let (code, status) = client.ask("DELETE", &path, Value::Null).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{status}");
        let why = format!(
            "configmaps \"{name}\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: it is kept"
        );
        assert_eq!(status["message"], why);
        let (_, warnings) = delete(&client, &path).await;
        let warning =
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'w': it is kept";
        assert_eq!(warnings, [format!("299 - \"{warning}\"")]);
    }
}
