//! Admission webhooks that the server asks over TLS.

use std::sync::Arc;

use base64::Engine as _;
use http::StatusCode;
use rcgen::{ExtendedKeyUsagePurpose, IsCa};
use serde_json::{Value, json};

use crate::Client;
use crate::webhook::{Identity, Webhook};

const CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Denies what is labelled so.
fn verdict(review: &Value) -> (StatusCode, Value) {
    let request = &review["request"];
    let allowed = request["object"]["metadata"]["labels"]["deny"].is_null();
    let response = json!({"uid": request["uid"], "allowed": allowed, "status": {"message": "as its label says"}});
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (StatusCode::OK, answer)
}

/// Has this webhook asked about each ConfigMap that is made in the namespace `default`.
async fn configure(client: &Client, config: &Value) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
    let webhook = json!({"name": "maps.example.com", "clientConfig": config, "rules": [rule], "sideEffects": "None",
        "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]});
    let body = json!({"metadata": {"name": "maps"}, "webhooks": [webhook]});
    let (code, made) = client.ask("POST", CONFIGURATIONS, body).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
}

async fn make(client: &Client, name: &str, labels: Value) -> (StatusCode, Value) {
    client.ask("POST", MAPS, json!({"metadata": {"name": name, "labels": labels}})).await
}

#[tokio::test]
async fn a_webhook_with_a_self_signed_certificate_is_asked() {
    for is_ca in [None, Some(IsCa::ExplicitNoCa), Some(IsCa::NoCa)] {
        let own = Identity::own(|params| {
            if let Some(is_ca) = is_ca {
                params.is_ca = is_ca;
            }
        });
        let (client, hook) = (Client::start().await, Webhook::start(&own, "/maps", verdict).await);
        configure(&client, &hook.config).await;
        let (code, made) = make(&client, "a", json!({})).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
        let (code, denied) = make(&client, "b", json!({"deny": ""})).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{denied}");
        assert_eq!(
            denied["message"],
            "admission webhook \"maps.example.com\" denied the request: as its label says"
        );
        assert_eq!(hook.take().len(), 2);
    }
}

#[tokio::test]
async fn a_webhook_whose_certificate_is_not_believed_is_told_of_in_gos_words() {
    let other = Identity::own(|params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "other");
    });
    let own = Identity::own(|_| {});
    let clients = Identity::own(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let expired = Identity::own(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let elsewhere = Identity::own(|params| {
        params.subject_alt_names =
            vec![rcgen::SanType::DnsName("elsewhere".try_into().expect("a name"))];
    });
    for (identity, bundle, want) in [
        (&own, other.bundle(), "x509: certificate signed by unknown authority"),
        (&clients, clients.bundle(), "x509: certificate specifies an incompatible key usage"),
        (&expired, expired.bundle(), " is after 2020-01-01T00:00:00Z"),
        (&elsewhere, elsewhere.bundle(), "x509: certificate is valid for elsewhere, not localhost"),
    ] {
        let (client, hook) =
            (Client::start().await, Webhook::start(identity, "/maps", verdict).await);
        let mut config = hook.config.clone();
        config["caBundle"] = json!(bundle);
        configure(&client, &config).await;
        let (code, failed) = make(&client, "a", json!({})).await;
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{failed}");
        let message = failed["message"].as_str().unwrap_or_default();
        assert!(message.contains("tls: failed to verify certificate: x509: "), "{message}");
        assert!(message.ends_with(want), "{message}");
        assert_eq!(hook.take(), Vec::<Value>::new());
    }
}

/// Labels whatever it is asked about.
fn labelled(review: &Value) -> (StatusCode, Value) {
    let request = &review["request"];
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]);
    let patch = base64::prelude::BASE64_STANDARD.encode(patch.to_string());
    let response =
        json!({"uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch});
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (StatusCode::OK, answer)
}

#[tokio::test]
async fn what_is_posted_and_not_stored_passes_admission() {
    let client = Client::start().await;
    let own = Identity::own(|_| {});
    let asked = Webhook::start(&own, "/validate", verdict).await;
    let changing = Webhook::start(&own, "/mutate", labelled).await;
    let rule = json!({"apiGroups": ["", "authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources":
        ["pods/binding", "pods/eviction", "bindings", "serviceaccounts/token", "selfsubjectaccessreviews"]});
    for (kind, config) in [("validating", &asked.config), ("mutating", &changing.config)] {
        let webhook = json!({"name": "posted.example.com", "clientConfig": config, "rules": [rule], "sideEffects": "None",
            "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]});
        let body = json!({"metadata": {"name": kind}, "webhooks": [webhook]});
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        client.make(&path, body).await;
    }
    let base = "/api/v1/namespaces/default";
    client.make(&format!("{base}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    for name in ["p", "q"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        client.make(&format!("{base}/pods"), pod).await;
    }
    assert_eq!((asked.take().len(), changing.take().len()), (0, 0), "pods are not in the rules");
    let named = |name: &str| json!({"metadata": {"name": name}});
    let to_node = |name: &str| json!({"metadata": {"name": name}, "target": {"name": "n"}});
    let attributes = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (path, body, [kind, resource, part, name]) in [
        (format!("{base}/pods/p/binding"), to_node("p"), ["Binding", "pods", "binding", "p"]),
        (format!("{base}/bindings"), to_node("q"), ["Binding", "bindings", "", "q"]),
        (
            format!("{base}/serviceaccounts/default/token"),
            json!({"metadata": {}, "spec": {}}),
            ["TokenRequest", "serviceaccounts", "token", "default"],
        ),
        (
            reviews.to_owned(),
            json!({"metadata": {}, "spec": attributes}),
            ["SelfSubjectAccessReview", "selfsubjectaccessreviews", "", ""],
        ),
        (format!("{base}/pods/p/eviction"), named("p"), ["Eviction", "pods", "eviction", "p"]),
    ] {
        let mut denied = body.clone();
        denied["metadata"]["labels"] = json!({"deny": ""});
        // The mutating webhook takes the label off, unless it is not asked.
        changing.take();
        let (code, answer) = client.ask("POST", &path, denied).await;
        assert_eq!(code, StatusCode::CREATED, "{path}: {answer}");
        let (first, then) = (changing.take(), asked.take());
        assert_eq!((first.len(), then.len()), (1, 1), "{path}");
        let request = &then[0]["request"];
        assert_eq!(request["object"]["metadata"]["labels"], json!({"seen": "yes"}), "{path}");
        assert_eq!(request["object"]["kind"], kind, "{path}");
        let attributes = [
            &request["kind"]["kind"],
            &request["resource"]["resource"],
            &request["subResource"],
            &request["name"],
        ];
        assert_eq!(attributes, [kind, resource, part, name], "{path}");
        assert_eq!(request["operation"], "CREATE");
    }
}

fn allowed(review: &Value) -> (StatusCode, Value) {
    let response = json!({"uid": review["request"]["uid"], "allowed": true});
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (StatusCode::OK, answer)
}

/// None of three webhooks answers before all are asked.
#[tokio::test]
async fn validating_webhooks_are_asked_together() {
    let client = Client::start().await;
    let own = Identity::own(|_| {});
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
    let (all, mut webhooks) = (Arc::new(tokio::sync::Barrier::new(3)), Vec::new());
    for n in 0..3 {
        let hook = Webhook::start_with(&own, "/together", allowed, all.clone()).await;
        webhooks.push(json!({"name": format!("w{n}.example.com"), "clientConfig": hook.config, "rules": [rule],
            "sideEffects": "None", "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]}));
    }
    let body = json!({"metadata": {"name": "together"}, "webhooks": webhooks});
    client.make(CONFIGURATIONS, body).await;
    let (code, made) = make(&client, "a", json!({})).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
}
