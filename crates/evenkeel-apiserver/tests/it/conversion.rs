//! Custom resources whose versions a webhook converts.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::StatusCode;
use rcgen::IsCa;
use serde_json::{Value, json};

use crate::webhook::{self, Answer, Identity};
use crate::{Client, events};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GAUGES: [&str; 2] = [
    "/apis/example.com/v1/namespaces/default/gauges",
    "/apis/example.com/v2/namespaces/default/gauges",
];

/// A webhook that converts.
struct Webhook(webhook::Webhook);

impl Webhook {
    async fn start(answer: Answer) -> Self {
        let own = Identity::own(|params| params.is_ca = IsCa::NoCa);
        Self(webhook::Webhook::start(&own, "/convert", answer).await)
    }

    /// Returns the field `conversion` of a definition.
    fn conversion(&self) -> Value {
        conversion(&self.0.config)
    }

    /// Returns the reviews since the last call.
    fn take(&self) -> Vec<Value> {
        self.0.take()
    }
}

fn conversion(config: &Value) -> Value {
    json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": config}})
}

/// Gauges have `spec.hostPort` in v1, `spec.host` and `spec.port` in v2.
fn converted(review: &Value) -> (StatusCode, Value) {
    let request = &review["request"];
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        let spec = object["spec"].clone();
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        object["spec"] = if request["desiredAPIVersion"] == "example.com/v2" {
            let (host, port) = (text("hostPort"), text("hostPort"));
            let host = host.split(':').next().unwrap_or_default();
            let port = port.split(':').nth(1).unwrap_or_default();
            object["metadata"]["labels"] = json!({"host": host});
            json!({"host": host, "port": port})
        } else {
            json!({"hostPort": format!("{}:{}", text("host"), text("port"))})
        };
        object
    };
    let objects: Vec<Value> =
        request["objects"].as_array().into_iter().flatten().map(convert).collect();
    let response = json!({"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}});
    (StatusCode::OK, reviewed(&response))
}

fn reviewed(response: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

fn refused(review: &Value) -> (StatusCode, Value) {
    let result = json!({"status": "Failure", "message": "gauges are not to be converted"});
    (StatusCode::OK, reviewed(&json!({"uid": review["request"]["uid"], "result": result})))
}

fn broken(_review: &Value) -> (StatusCode, Value) {
    (StatusCode::INTERNAL_SERVER_ERROR, json!("out of order"))
}

fn lost(review: &Value) -> (StatusCode, Value) {
    let uid = &review["request"]["uid"];
    let result = json!({"status": "Success"});
    (StatusCode::OK, reviewed(&json!({"uid": uid, "convertedObjects": [], "result": result})))
}

/// Creates the definition of gauges, stored as v1, and waits until it is served.
async fn define(client: &Client, conversion: &Value, spec: impl Fn(&str) -> Value) {
    let version = |name: &str, storage: bool| {
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema =
            json!({"type": "object", "properties": {"spec": spec(name), "status": status}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}})
    };
    let definition = json!({"metadata": {"name": "gauges.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "gauges", "kind": "Gauge"}, "conversion": conversion, "versions": [version("v1", true), version("v2", false)]}});
    let (code, made) = client.ask("POST", DEFINITIONS, definition).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    for _ in 0..1000 {
        if client.ask("GET", GAUGES[0], Value::Null).await.0.is_success() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("gauges are not served");
}

fn strings(names: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"type": "object", "properties": properties})
}

fn hosts(version: &str) -> Value {
    strings(if version == "v1" { &["hostPort"] } else { &["host", "port"] })
}

fn gauge(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Gauge", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn objects_larger_than_one_response_are_converted_in_several_calls() {
    let client = Client::start().await;
    let hook = Webhook::start(converted).await;
    define(&client, &hook.conversion(), hosts).await;
    let [one, two] = GAUGES;
    for n in 0..40 {
        let spec = json!({"hostPort": format!("x:{}", "9".repeat(100_000))});
        let (code, made) = client.ask("POST", one, gauge("v1", &format!("g{n}"), &spec)).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
    }
    let list = client.get(two).await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(items.len(), 40, "{list}");
    assert!(items.iter().all(|item| item["apiVersion"] == "example.com/v2"));
    let calls = hook.take();
    let sent: Vec<usize> = calls
        .iter()
        .map(|review| review["request"]["objects"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(
        sent,
        [11, 11, 11, 7],
        "a call ends with the object that makes it larger than 1 MiB"
    );
}

#[tokio::test]
async fn each_version_sees_the_object_in_its_own_form() {
    let client = Client::start().await;
    let hook = Webhook::start(converted).await;
    define(&client, &hook.conversion(), hosts).await;
    let [one, two] = GAUGES;

    // Objects in the stored version are not converted.
    let (code, made) = client.ask("POST", one, gauge("v1", "a", &json!({"hostPort": "x:1"}))).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    client.get(&format!("{one}/a")).await;
    assert_eq!(hook.take(), Vec::<Value>::new());

    let read = client.get(&format!("{two}/a")).await;
    assert_eq!(
        (&read["apiVersion"], &read["spec"], &read["metadata"]["labels"]),
        (&json!("example.com/v2"), &json!({"host": "x", "port": "1"}), &json!({"host": "x"}))
    );
    assert_eq!(read["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let [review] = &hook.take()[..] else { panic!("it is asked once") };
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
    let request = &review["request"];
    assert_eq!(request["desiredAPIVersion"], "example.com/v2");
    assert_eq!(request["objects"][0]["spec"], json!({"hostPort": "x:1"}));
    assert_eq!(request["objects"][0]["metadata"].get("resourceVersion"), None);
    assert!(request["uid"].as_str().is_some_and(|uid| !uid.is_empty()));

    let (code, made) =
        client.ask("POST", two, gauge("v2", "b", &json!({"host": "y", "port": "2"}))).await;
    assert_eq!((code, &made["spec"]["host"]), (StatusCode::CREATED, &json!("y")), "{made}");
    assert_eq!(client.get(&format!("{one}/b")).await["spec"], json!({"hostPort": "y:2"}));
    let (code, patched) =
        client.ask("PATCH", &format!("{two}/b"), json!({"spec": {"port": "3"}})).await;
    assert_eq!((code, &patched["spec"]["port"]), (StatusCode::OK, &json!("3")), "{patched}");
    let (code, with) =
        client.ask("PATCH", &format!("{two}/b/status"), json!({"status": {"ok": true}})).await;
    assert_eq!((code, &with["status"]["ok"]), (StatusCode::OK, &json!(true)), "{with}");
    let mut stored = client.get(&format!("{one}/b")).await;
    assert_eq!(stored["spec"], json!({"hostPort": "y:3"}));

    hook.take();
    let list = client.get(two).await;
    let shown: Vec<&Value> =
        list["items"].as_array().into_iter().flatten().map(|item| &item["spec"]["port"]).collect();
    assert_eq!(shown, [&json!("1"), &json!("3")]);
    assert_eq!(hook.take().len(), 1, "a list is converted at once");
    let some = client.get(&format!("{two}?labelSelector=host%3Dy")).await;
    assert_eq!(some["items"].as_array().map(Vec::len), Some(1), "labels are converted, too");

    let path = format!("{two}?watch=1&fieldSelector=metadata.name%3Db");
    let mut watch = client.send("GET", &path, &[], Bytes::new()).await.into_body();
    assert_eq!(events(&mut watch).await[0]["object"]["spec"]["port"], "3");
    stored["spec"]["hostPort"] = json!("z:4");
    client.ask("PUT", &format!("{one}/b"), stored).await;
    let event = &events(&mut watch).await[0];
    assert_eq!(
        (&event["type"], &event["object"]["spec"]["host"]),
        (&json!("MODIFIED"), &json!("z"))
    );
    let (code, gone) = client.ask("DELETE", &format!("{two}/b"), Value::Null).await;
    assert_eq!(code, StatusCode::OK, "{gone}");
    let event = &events(&mut watch).await[0];
    assert_eq!(
        (&event["type"], &event["object"]["spec"]["port"]),
        (&json!("DELETED"), &json!("4"))
    );
}

/// Prefixes the host of a gauge, which the webhook gets in version v1.
fn admitted(review: &Value) -> (StatusCode, Value) {
    let request = &review["request"];
    let host = request["object"]["spec"]["hostPort"].as_str().unwrap_or_default();
    let patch =
        json!([{"op": "replace", "path": "/spec/hostPort", "value": format!("new-{host}")}]);
    let patch = BASE64_STANDARD.encode(patch.to_string());
    let response =
        json!({"uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch});
    (
        StatusCode::OK,
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
    )
}

#[tokio::test]
async fn admission_sees_the_object_in_the_version_that_it_matches() {
    let client = Client::start().await;
    let conversion = Webhook::start(converted).await;
    define(&client, &conversion.conversion(), hosts).await;
    let own = Identity::own(|params| params.is_ca = IsCa::NoCa);
    let hook = webhook::Webhook::start(&own, "/admit", admitted).await;
    let rule = json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["gauges"]});
    let configuration = json!({"metadata": {"name": "gauges"}, "webhooks": [{"name": "gauges.example.com", "rules": [rule],
        "clientConfig": hook.config, "timeoutSeconds": 30, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    let policy = json!({"metadata": {"name": "ports"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!object.spec.hostPort.endsWith(':9')", "message": "9 is taken"}]}});
    let binding = json!({"metadata": {"name": "ports"}, "spec": {"policyName": "ports", "validationActions": ["Deny"]}});
    for (resource, object) in [
        ("mutatingwebhookconfigurations", configuration),
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding),
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
        let (code, made) = client.ask("POST", &path, object).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
    }

    let [one, two] = GAUGES;
    let (code, made) =
        client.ask("POST", two, gauge("v2", "b", &json!({"host": "y", "port": "2"}))).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(made["apiVersion"], "example.com/v2");
    assert_eq!(made["spec"], json!({"host": "new-y", "port": "2"}));
    assert_eq!(client.get(&format!("{one}/b")).await["spec"], json!({"hostPort": "new-y:2"}));
    let [review] = &hook.take()[..] else { panic!("it is asked once") };
    let request = &review["request"];
    for (field, expected) in [
        ("/kind/version", json!("v1")),
        ("/resource/version", json!("v1")),
        ("/requestKind/version", json!("v2")),
        ("/requestResource/version", json!("v2")),
        ("/object/apiVersion", json!("example.com/v1")),
        ("/object/spec", json!({"hostPort": "y:2"})),
        ("/oldObject", Value::Null),
    ] {
        assert_eq!(request.pointer(field), Some(&expected), "{field}");
    }

    let port = json!({"spec": {"port": "3"}});
    let (code, patched) = client.ask("PATCH", &format!("{two}/b"), port).await;
    assert_eq!(code, StatusCode::OK, "{patched}");
    assert_eq!(patched["spec"], json!({"host": "new-new-y", "port": "3"}));
    let [review] = &hook.take()[..] else { panic!("it is asked once") };
    assert_eq!(review["request"]["oldObject"]["spec"], json!({"hostPort": "new-y:2"}));

    let taken = gauge("v2", "c", &json!({"host": "y", "port": "9"}));
    let (code, denied) = client.ask("POST", two, taken).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{denied}");
    assert!(
        denied["message"].as_str().is_some_and(|text| text.ends_with("9 is taken")),
        "{denied}"
    );
}

#[tokio::test]
async fn what_a_webhook_refuses_is_reported() {
    let answers: [(Answer, &str); 3] = [
        (refused, "Gauge failed: gauges are not to be converted"),
        (
            broken,
            "Gauge failed: an error on the server (\"\\\"out of order\\\"\") has prevented the request from succeeding",
        ),
        (lost, "Gauge returned 0 objects, expected 1"),
    ];
    for (answer, why) in answers {
        let client = Client::start().await;
        let hook = Webhook::start(answer).await;
        define(&client, &hook.conversion(), hosts).await;
        let [one, two] = GAUGES;
        let (_, made) =
            client.ask("POST", one, gauge("v1", "a", &json!({"hostPort": "x:1"}))).await;
        let revision = made["metadata"]["resourceVersion"].as_str().expect("a version");
        let new = gauge("v2", "b", &json!({"host": "y", "port": "2"}));
        let mut whole = gauge("v2", "a", &json!({}));
        whole["metadata"]["resourceVersion"] = json!("1");
        let (a, status) = (format!("{two}/a"), format!("{two}/a/status"));
        for (method, path, body) in [
            ("GET", &*a, Value::Null),
            ("GET", two, Value::Null),
            ("POST", two, new),
            ("PUT", &a, whole),
            ("PATCH", &a, json!({"spec": {"port": "3"}})),
            ("GET", &status, Value::Null),
            ("PATCH", &status, json!({"status": {}})),
            ("DELETE", &a, Value::Null),
            ("DELETE", two, Value::Null),
        ] {
            let (code, status) = client.ask(method, path, body).await;
            let message = status["message"].as_str().unwrap_or_default();
            assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{method} {path}: {message}");
            let version = if method == "POST" { "v2" } else { "v1" };
            let wanted = format!("conversion webhook for example.com/{version}, Kind={why}");
            if method.starts_with('P') {
                assert_eq!(message, wanted, "{method} {path}");
                continue;
            }
            // A read returns an error for the corrupt object.
            let read = format!(
                "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /example.com/gauges/default/a, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {wanted}"
            );
            assert_eq!(message, read, "{method} {path}");
        }
        assert!(client.get(&format!("{one}/a")).await["spec"]["hostPort"] == "x:1");
        assert!(client.ask("DELETE", &format!("{one}/a"), Value::Null).await.0.is_success());
    }
}

#[tokio::test]
async fn a_webhook_that_is_nowhere_is_reported() {
    let client = Client::start().await;
    let service = json!({"service": {"name": "hook", "namespace": "default", "path": "/convert"}});
    define(&client, &conversion(&service), hosts).await;
    let [one, two] = GAUGES;
    client.ask("POST", one, gauge("v1", "a", &json!({"hostPort": "x:1"}))).await;
    let status = client.get(&format!("{two}/a")).await;
    let message = status["message"].as_str().unwrap_or_default();
    let wanted = "conversion webhook for example.com/v1, Kind=Gauge failed: Post \"https://hook.default.svc:443/convert?timeout=30s\": service \"hook\" not found";
    assert!(message.ends_with(wanted), "{message}");
}

#[tokio::test]
async fn an_object_has_the_defaults_of_the_versions_it_was_written_and_stored_in() {
    let client = Client::start().await;
    let spec = |version: &str| {
        let mut all = strings(&["v1", "v2"]);
        all["properties"][version]["default"] = json!("set");
        all
    };
    define(&client, &json!({"strategy": "None"}), spec).await;
    let [one, two] = GAUGES;
    client.ask("POST", one, gauge("v1", "a", &json!({}))).await;
    let read = client.get(&format!("{two}/a")).await;
    assert_eq!(read["spec"], json!({"v1": "set"}));
    let (_, made) = client.ask("POST", two, gauge("v2", "b", &json!({}))).await;
    let both = json!({"v1": "set", "v2": "set"});
    assert_eq!(made["spec"], both);
    assert_eq!(client.get(&format!("{one}/b")).await["spec"], both);
}

#[tokio::test]
async fn a_bookmark_has_no_defaults() {
    let client = Client::start().await;
    let spec = |_: &str| json!({"type": "object", "default": {}});
    define(&client, &json!({"strategy": "None"}), spec).await;
    let one = GAUGES[0];
    let path = format!(
        "{one}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = client.send("GET", &path, &[], Bytes::new()).await.into_body();
    let event = &events(&mut watch).await[0];
    assert_eq!(event["type"], "BOOKMARK");
    assert_eq!(event["object"].get("spec"), None);
}
