//! Admission webhooks that the server calls over TLS.

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

/// Denies objects with the label `deny`.
fn verdict(review: &Value) -> (StatusCode, Value) {
    let request = &review["request"];
    let allowed = request["object"]["metadata"]["labels"]["deny"].is_null();
    let response = json!({"uid": request["uid"], "allowed": allowed, "status": {"message": "as its label says"}});
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (StatusCode::OK, answer)
}

/// Registers this webhook for the creation of ConfigMaps in the namespace `default`.
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
async fn a_webhook_whose_certificate_is_not_believed_is_reported_in_gos_words() {
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

#[tokio::test]
async fn a_webhook_is_found_by_its_url_or_service() {
    let own = Identity::own(|params| {
        let names = ["localhost", "hook.default.svc"];
        let name = |name: &str| rcgen::SanType::DnsName(name.try_into().expect("a name"));
        params.subject_alt_names = names.map(name).into();
    });
    let client = Client::start().await;
    let hook = Webhook::start(&own, "/maps", verdict).await;
    let url = hook.config["url"].as_str().unwrap_or_default().to_owned();
    let port: u16 =
        url.split([':', '/']).nth(4).and_then(|port| port.parse().ok()).expect("a port");
    configure(&client, &hook.config).await;
    let (code, made) = make(&client, "a", json!({})).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(hook.host(), format!("localhost:{port}"));

    let configuration = format!("{CONFIGURATIONS}/maps");
    client.ask("DELETE", &configuration, Value::Null).await;
    let service = json!({"name": "hook", "namespace": "default", "path": "/maps", "port": port});
    let config = json!({"service": service, "caBundle": hook.config["caBundle"]});
    configure(&client, &config).await;
    let failed = async |name: &str| {
        let (code, status) = make(&client, name, json!({})).await;
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{status}");
        status["message"].as_str().unwrap_or_default().to_owned()
    };
    let post = format!("Post \"https://hook.default.svc:{port}/maps?timeout=30s\"");
    let why = format!("{post}: service \"hook\" not found");
    assert!(failed("b").await.ends_with(&why));
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    client.make(services, service).await;
    let why = format!("{post}: no service port {port} found for service \"hook\"");
    assert!(failed("b").await.ends_with(&why));

    client.ask("DELETE", &format!("{services}/hook"), Value::Null).await;
    let spec = json!({"type": "ExternalName", "externalName": "localhost"});
    client.make(services, json!({"metadata": {"name": "hook"}, "spec": spec})).await;
    let (code, made) = make(&client, "b", json!({})).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(hook.host(), format!("hook.default.svc:{port}"));
}

/// Allows the request with a JSON patch.
fn patched(review: &Value, patch: &Value) -> (StatusCode, Value) {
    let patch = base64::prelude::BASE64_STANDARD.encode(patch.to_string());
    let response = json!({"uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch});
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (StatusCode::OK, answer)
}

/// Adds a label to each object.
fn labelled(review: &Value) -> (StatusCode, Value) {
    patched(review, &json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]))
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
        (format!("{base}/pods/p/eviction"), named("p"), ["Eviction", "pods", "eviction", "p"]),
    ] {
        let mut denied = body.clone();
        denied["metadata"]["labels"] = json!({"deny": ""});
        // The mutating webhook removes the label, unless it is not called.
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
        let attributes = attributes.map(|attribute| attribute.as_str().unwrap_or_default());
        assert_eq!(attributes, [kind, resource, part, name], "{path}");
        assert_eq!(request["operation"], "CREATE");
    }
    // Reviews are never sent to webhooks.
    let (code, answer) = client.ask("POST", reviews, json!({"spec": attributes})).await;
    assert_eq!((code, &answer["status"]["allowed"]), (StatusCode::CREATED, &json!(true)));
    assert_eq!((changing.take().len(), asked.take().len()), (0, 0), "{answer}");
}

fn allowed(review: &Value) -> (StatusCode, Value) {
    let response = json!({"uid": review["request"]["uid"], "allowed": true});
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    (StatusCode::OK, answer)
}

/// None of three webhooks responds before all of them are called.
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

const CORE_EVENTS: &str = "/api/v1/namespaces/default/events";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

/// Returns an object for one of the three webhooks.
fn posted(path: &str, name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    let pod = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    match path {
        CORE_EVENTS => {
            json!({"metadata": metadata, "involvedObject": pod, "reason": "r", "type": "Normal"})
        }
        EVENTS => {
            json!({"metadata": metadata, "regarding": pod, "reason": "r", "type": "Normal", "action": "a",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i"})
        }
        _ => {
            json!({"metadata": metadata, "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": 3, "metrics": [{"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
        }
    }
}

#[tokio::test]
async fn webhooks_are_asked_in_the_version_that_their_rules_name() {
    let (client, own) = (Client::start().await, Identity::own(|_| {}));
    let hook = Webhook::start(&own, "/versions", allowed).await;
    for (n, (group, version, policy, path, seen)) in [
        ("events.k8s.io", "v1", "Equivalent", CORE_EVENTS, Some("regarding")),
        ("events.k8s.io", "v1", "Exact", CORE_EVENTS, None),
        ("events.k8s.io", "v1", "Exact", EVENTS, Some("regarding")),
        ("", "v1", "Exact", EVENTS, None),
        ("", "v1", "Equivalent", EVENTS, Some("involvedObject")),
        ("", "v1", "Exact", CORE_EVENTS, Some("involvedObject")),
        ("", "v2", "Equivalent", CORE_EVENTS, None),
        ("autoscaling", "v1", "Equivalent", AUTOSCALERS, Some("spec")),
        ("autoscaling", "v1", "Exact", AUTOSCALERS, None),
    ]
    .into_iter()
    .enumerate()
    {
        let rule = json!({"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"],
            "resources": ["events", "horizontalpodautoscalers"]});
        let webhook = json!({"name": "versions.example.com", "clientConfig": hook.config, "rules": [rule],
            "matchPolicy": policy, "sideEffects": "None", "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]});
        let (name, webhooks) = (format!("n{n}"), json!([webhook]));
        client
            .make(CONFIGURATIONS, json!({"metadata": {"name": name}, "webhooks": webhooks}))
            .await;
        client.make(path, posted(path, &name)).await;
        client.ask("DELETE", &format!("{CONFIGURATIONS}/{name}"), Value::Null).await;
        let asked = hook.take();
        let case = format!("{group} {version} {policy} {path}");
        assert_eq!(asked.len(), usize::from(seen.is_some()), "{case}");
        let (Some(field), Some(review)) = (seen, asked.first()) else { continue };
        let request = &review["request"];
        assert!(request["object"][field].is_object(), "{case}: {request}");
        let slash = if group.is_empty() { "" } else { "/" };
        assert_eq!(request["object"]["apiVersion"], format!("{group}{slash}{version}"), "{case}");
        assert_eq!(
            [&request["kind"]["group"], &request["kind"]["version"]],
            [group, version],
            "{case}"
        );
        assert_eq!(request["resource"]["group"], group, "{case}");
        let own = if path == CORE_EVENTS { "" } else { path.split('/').nth(2).unwrap_or_default() };
        assert_eq!(request["requestKind"]["group"], own, "{case}");
        assert_eq!(request["requestResource"]["group"], own, "{case}");
    }
}

#[tokio::test]
async fn a_mutation_in_another_version_is_stored() {
    let (client, own) = (Client::start().await, Identity::own(|_| {}));
    let hook = Webhook::start(&own, "/mutate", labelled).await;
    let rule = json!({"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"]});
    let webhook = json!({"name": "versions.example.com", "clientConfig": hook.config, "rules": [rule],
        "sideEffects": "None", "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    client.make(path, json!({"metadata": {"name": "m"}, "webhooks": [webhook]})).await;
    let made = client.make(AUTOSCALERS, posted(AUTOSCALERS, "a")).await;
    let asked = hook.take();
    assert_eq!(asked[0]["request"]["object"]["spec"]["targetCPUUtilizationPercentage"], 50);
    assert_eq!(made["apiVersion"], "autoscaling/v2");
    assert_eq!(made["metadata"]["labels"], json!({"seen": "yes"}));
    assert_eq!(made["spec"]["metrics"], posted(AUTOSCALERS, "a")["spec"]["metrics"]);
}

#[tokio::test]
async fn policies_are_for_the_same_objects_in_other_groups() {
    let client = Client::start().await;
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"]});
    let validation = json!({"expression": "!has(object.regarding) || object.regarding.name != 'p'", "message": "not of p"});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]});
    client
        .make(
            &format!("{policies}/validatingadmissionpolicies"),
            json!({"metadata": {"name": "p"}, "spec": spec}),
        )
        .await;
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    client.make(&format!("{policies}/validatingadmissionpolicybindings"), binding).await;
    for path in [CORE_EVENTS, EVENTS] {
        let (code, answer) = client.ask("POST", path, posted(path, "e")).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{path}: {answer}");
    }
    let mut other = posted(CORE_EVENTS, "other");
    other["involvedObject"]["name"] = json!("q");
    client.make(CORE_EVENTS, other).await;
}

/// Sets fields of a new object that only the server may set: status, UID and generation.
fn forgery(review: &Value) -> (StatusCode, Value) {
    let patch = json!([
        {"op": "add", "path": "/status", "value": {"replicas": 7, "active": 7}},
        {"op": "add", "path": "/metadata/uid", "value": "forged"},
        {"op": "add", "path": "/metadata/generation", "value": 7},
        {"op": "add", "path": "/metadata/annotations", "value": {"webhook": "was here"}},
    ]);
    patched(review, &patch)
}

#[tokio::test]
async fn mutating_webhooks_come_before_what_the_server_sets() {
    let own = Identity::own(|_| {});
    let (client, hook) = (Client::start().await, Webhook::start(&own, "/forge", forgery).await);
    let rule = json!({"apiGroups": ["apps", "batch"], "apiVersions": ["v1"], "resources": ["deployments", "jobs"],
        "operations": ["CREATE"]});
    let webhook = json!({"name": "forge.example.com", "clientConfig": hook.config, "rules": [rule],
        "sideEffects": "None", "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let body = json!({"metadata": {"name": "forge"}, "webhooks": [webhook]});
    let (code, configured) = client.ask("POST", configurations, body).await;
    assert_eq!(code, StatusCode::CREATED, "{configured}");

    let labels = json!({"app": "web"});
    let pod = json!({"containers": [{"name": "c", "image": "img:1"}], "restartPolicy": "Never"});
    let deployment = json!({"metadata": {"generateName": "web-"}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}}});
    let job = json!({"metadata": {"generateName": "web-"}, "spec": {"template": {"spec": pod}}});
    for (path, object) in [
        ("/apis/apps/v1/namespaces/default/deployments", deployment),
        ("/apis/batch/v1/namespaces/default/jobs", job),
    ] {
        let (code, made) = client.ask("POST", path, object).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
        assert_eq!(made["status"], json!({}), "{made}");
        assert_ne!(made["metadata"]["uid"], "forged");
        assert_eq!(made["metadata"]["generation"], 1);
        assert_eq!(made["metadata"]["annotations"]["webhook"], "was here");
        let [review] = &hook.take()[..] else { panic!("the webhook is asked once") };
        let asked = &review["request"];
        assert!(asked["name"].is_null(), "{asked}");
        for generated in ["name", "uid", "generation"] {
            assert!(asked["object"]["metadata"][generated].is_null(), "{generated}: {asked}");
        }
        let labels = &asked["object"]["spec"]["template"]["metadata"]["labels"];
        assert!(labels["batch.kubernetes.io/controller-uid"].is_null(), "{asked}");
    }
}

/// Configures mutating webhooks for one resource, in this order. Each has a name, a `clientConfig` and a
/// `reinvocationPolicy`.
async fn mutating(client: &Client, rule: &Value, webhooks: &[(&str, &Value, &str)]) {
    let webhooks: Vec<Value> = webhooks
        .iter()
        .map(|(name, config, policy)| {
            json!({"name": format!("{name}.example.com"), "clientConfig": config, "rules": [rule], "sideEffects": "None",
                "reinvocationPolicy": policy, "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]})
        })
        .collect();
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    client.make(path, json!({"metadata": {"name": "mutating"}, "webhooks": webhooks})).await;
}

/// Returns the number of containers of the pod under review.
fn containers(review: &Value) -> usize {
    let containers = review["request"]["object"]["spec"]["containers"].as_array();
    containers.map_or(0, Vec::len)
}

/// Adds a container to a pod.
fn with_sidecar(review: &Value) -> (StatusCode, Value) {
    let n = containers(review);
    let sidecar = json!({"name": format!("sidecar-{n}"), "image": "proxy:1"});
    patched(review, &json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]))
}

#[tokio::test]
async fn webhooks_that_want_it_and_plugins_see_what_later_webhooks_changed() {
    let own = Identity::own(|_| {});
    let client = Client::start().await;
    let base = "/api/v1/namespaces/default";
    client.make(&format!("{base}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let (first, never, adds) = (
        Webhook::start(&own, "/first", labelled).await,
        Webhook::start(&own, "/never", labelled).await,
        Webhook::start(&own, "/adds", with_sidecar).await,
    );
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]});
    let webhooks = [
        ("first", &first.config, "IfNeeded"),
        ("never", &never.config, "Never"),
        ("adds", &adds.config, "IfNeeded"),
    ];
    mutating(&client, &rule, &webhooks).await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, made) = client.ask("POST", &format!("{base}/pods"), pod).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");

    let seen = |hook: &Webhook| hook.take().iter().map(containers).collect::<Vec<_>>();
    // The plug-in for service accounts mounts the token into the added container: that is a change since the last call.
    assert_eq!((seen(&first), seen(&never)), (vec![1, 2], vec![1]));
    let added = adds.take();
    assert_eq!(added.len(), 2, "{added:?}");
    let made = made["spec"]["containers"].as_array().cloned().unwrap_or_default();
    assert_eq!(made.len(), 3, "{made:?}");
    let mounted: Vec<bool> =
        made.iter().map(|c| !c["volumeMounts"][0]["mountPath"].is_null()).collect();
    assert_eq!(mounted, [true, true, false], "{made:?}");
}

/// Moves the object to another namespace.
fn moved(review: &Value) -> (StatusCode, Value) {
    patched(review, &json!([{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}]))
}

#[tokio::test]
async fn a_webhook_cannot_move_an_object_to_another_namespace() {
    let own = Identity::own(|_| {});
    let client = Client::start().await;
    let moves = Webhook::start(&own, "/moves", moved).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    client.make(maps, json!({"metadata": {"name": "old"}})).await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]});
    mutating(&client, &rule, &[("moves", &moves.config, "Never")]).await;
    let patch = json!({"data": {"a": "b"}});
    for (method, path, body) in [
        ("POST", maps, json!({"metadata": {"name": "new"}})),
        ("PUT", &*format!("{maps}/old"), json!({"metadata": {"name": "old"}, "data": {"a": "b"}})),
        ("PATCH", &*format!("{maps}/old"), patch),
    ] {
        let (code, refused) = client.ask(method, path, body).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{method}: {refused}");
        assert_eq!(
            refused["message"],
            "the namespace of the provided object does not match the namespace sent on the request"
        );
    }
    let left = client.get(maps).await;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");
}

/// Allows each request without changes.
fn unchanged(review: &Value) -> (StatusCode, Value) {
    patched(review, &json!([]))
}

#[tokio::test]
async fn webhooks_see_an_update_as_it_was_sent_and_its_options() {
    let own = Identity::own(|_| {});
    let (client, hook) = (Client::start().await, Webhook::start(&own, "/see", unchanged).await);
    let base = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}}});
    let made = client.make(base, deployment).await;
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["deployments", "deployments/status"]});
    mutating(&client, &rule, &[("see", &hook.config, "Never")]).await;
    let path = format!("{base}/web");
    let see = async |method: &str, path: String, body: Value| {
        let (code, answer) = client.ask(method, &path, body).await;
        assert_eq!(code, StatusCode::OK, "{method} {path}: {answer}");
        let [review] = &hook.take()[..] else {
            panic!("{method} {path}: the webhook is called once")
        };
        (answer, review["request"].clone())
    };

    let mut sent = made;
    sent["status"] = json!({"replicas": 9});
    sent["spec"]["replicas"] = json!(2);
    let (put, seen) =
        see("PUT", format!("{path}?fieldManager=me&fieldValidation=Strict"), sent.clone()).await;
    assert_eq!(seen["object"]["status"]["replicas"], 9, "{seen}");
    assert_eq!(put["status"]["replicas"], Value::Null, "{put}");
    let mine = put["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let mine = mine.iter().find(|entry| entry["manager"] == "me").cloned().unwrap_or_default();
    assert_eq!(mine["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}), "{put}");
    let options = json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Strict"});
    assert_eq!(seen["options"], options);

    let mut sent = put;
    sent["spec"]["replicas"] = json!(3);
    sent["status"] = json!({"replicas": 5});
    let (status, seen) = see("PUT", format!("{path}/status?dryRun=All"), sent).await;
    assert_eq!(seen["object"]["spec"]["replicas"], 3, "{seen}");
    assert_eq!(
        (&status["spec"]["replicas"], &status["status"]["replicas"]),
        (&json!(2), &json!(5))
    );
    let options =
        json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]});
    assert_eq!(seen["options"], options);
}

#[tokio::test]
async fn validating_webhooks_see_the_options_of_a_deletion() {
    let own = Identity::own(|_| {});
    let (client, hook) = (Client::start().await, Webhook::start(&own, "/see", verdict).await);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["DELETE"]});
    let webhook = json!({"name": "see.example.com", "clientConfig": hook.config, "rules": [rule], "sideEffects": "None",
        "timeoutSeconds": 30, "admissionReviewVersions": ["v1"]});
    let body = json!({"metadata": {"name": "see"}, "webhooks": [webhook]});
    client.make(CONFIGURATIONS, body).await;
    make(&client, "a", json!({})).await;
    let options =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    let (code, deleted) = client.ask("DELETE", &format!("{MAPS}/a"), options).await;
    assert_eq!(code, StatusCode::OK, "{deleted}");
    let [review] = &hook.take()[..] else { panic!("the webhook is called once") };
    let expected = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"});
    assert_eq!(review["request"]["options"], expected);
}

#[tokio::test]
async fn denial_has_the_evaluated_message_up_to_5_kib() {
    let client = Client::start().await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
    let validation = json!({"expression": "!has(object.data)", "message": " has data ", "messageExpression": "string(object.data.why)"});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}});
    client.make(&format!("{group}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    client.make(&format!("{group}/validatingadmissionpolicybindings"), binding).await;
    for (why, expected) in [
        (" because ".to_owned(), "because".to_owned()),
        ("a".repeat(5 * 1024), "a".repeat(5 * 1024)),
        ("a".repeat(5 * 1024 + 1), "has data".to_owned()),
        ("two\nlines".to_owned(), "has data".to_owned()),
    ] {
        let map = json!({"metadata": {"name": "m"}, "data": {"why": why}});
        let (code, denied) = client.ask("POST", MAPS, map).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{denied}");
        let message = denied["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(&format!(" denied request: {expected}")), "{message}");
    }
}
