//! Bodies that try to crash the server: nested without end, or growing far beyond their size. Each is refused, and the
//! next request is served. The tests run on a stack of the size that a worker of the default runtime has.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_api::json::MAX_DEPTH;
use evenkeel_api::protobuf::{Envelope, wire};
use http::StatusCode;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::{Value, json};

use crate::{Client, events};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ANYTHINGS: &str = "/apis/example.com/v1/namespaces/default/anythings";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Runs a test in virtual time, on 2 MiB of stack regardless of the environment.
fn on_a_workers_stack<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().expect("a runtime")
    };
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let run = thread.spawn(move || runtime().block_on(test())).expect("a thread");
    run.join().expect("the test passed");
}

impl Client {
    /// Sends a body. Returns the code, and the message of a refusal.
    async fn give(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, String) {
        let response = self.send(method, path, &[("content-type", media)], body.into()).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Defines custom resources without a fixed schema.
    async fn define_anything(&self) {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}});
        let definition = json!({"metadata": {"name": "anythings.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "anythings", "kind": "Anything"}, "versions": [version]}});
        let (code, made) = self.ask("POST", DEFINITIONS, definition).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
        for _ in 0..1000 {
            if self.ask("GET", ANYTHINGS, Value::Null).await.0.is_success() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the resource is not served");
    }

    async fn make_configmap(&self, name: &str, data: Value) {
        let (code, made) =
            self.ask("POST", CONFIGMAPS, json!({"metadata": {"name": name}, "data": data})).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
    }

    async fn is_alive(&self) {
        let (code, _) = self.ask("GET", "/version", Value::Null).await;
        assert_eq!(code, StatusCode::OK);
    }
}

fn lists(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

fn objects(depth: usize) -> String {
    format!("{}{}{}", r#"{"a":"#.repeat(depth - 1), "{}", "}".repeat(depth - 1))
}

/// Encodes a ControllerRevision in the protobuf envelope, with `raw` as its data.
fn revision(raw: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    wire::message(&mut message, 1, |out| wire::bytes(out, 1, b"r"));
    wire::message(&mut message, 2, |out| wire::bytes(out, 1, raw));
    Envelope::seal("apps/v1", "ControllerRevision", &message)
}

#[test]
fn envelopes_within_envelopes_are_refused() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        let mut body = revision(b"{}");
        while body.len() < 200_000 {
            body = revision(&body);
        }
        for (method, path) in [
            ("POST", REVISIONS.to_owned()),
            ("PUT", format!("{REVISIONS}/r")),
            ("DELETE", format!("{REVISIONS}/r")),
            ("POST", CONFIGMAPS.to_owned()),
        ] {
            let (code, message) = client.give(method, &path, PROTOBUF, body.clone()).await;
            assert_eq!(code, StatusCode::BAD_REQUEST, "{method} {path}: {message}");
            client.is_alive().await;
        }
        let (code, message) =
            client.give("POST", REVISIONS, PROTOBUF, revision(lists(100_000).as_bytes())).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        assert!(message.contains("exceeded max depth"), "{message}");
        let (code, _) = client.give("POST", REVISIONS, PROTOBUF, revision(&revision(b"[]"))).await;
        assert_eq!(code, StatusCode::CREATED, "what is not too deep is taken");
    });
}

#[test]
fn bodies_that_nest_too_deep_are_refused() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        client.define_anything().await;
        client.make_configmap("c", json!({})).await;
        let one = format!("{CONFIGMAPS}/c");
        for nest in [lists(1_000_000), objects(300_000)] {
            let head = r#"{"apiVersion":"example.com/v1","kind":"Anything","metadata":{"name":"x"},"spec":"#;
            let anything = format!("{head}{nest}}}");
            let managed = format!(
                r#"{{"metadata":{{"name":"x","managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{nest}}}]}}}}"#
            );
            let data = format!(r#"{{"data":{nest}}}"#);
            let operations = format!(r#"[{{"op":"add","path":"/data/x","value":{nest}}}]"#);
            for (method, path, media, body) in [
                ("POST", ANYTHINGS, JSON, &anything),
                ("POST", ANYTHINGS, YAML, &anything),
                ("PUT", &*format!("{ANYTHINGS}/x"), JSON, &anything),
                ("PATCH", &*format!("{ANYTHINGS}/x?fieldManager=m"), APPLY, &anything),
                ("POST", CONFIGMAPS, JSON, &managed),
                ("POST", CONFIGMAPS, JSON, &nest),
                ("PATCH", &one, MERGE, &data),
                ("PATCH", &one, STRATEGIC, &data),
                ("PATCH", &one, JSON_PATCH, &operations),
                ("DELETE", &one, JSON, &data),
                ("DELETE", &one, YAML, &data),
                ("DELETE", CONFIGMAPS, JSON, &data),
            ] {
                let (code, message) = client.give(method, path, media, body.clone()).await;
                assert_eq!(code, StatusCode::BAD_REQUEST, "{method} {path} {media}: {message}");
                assert!(
                    message.contains("exceeded max depth"),
                    "{method} {path} {media}: {message}"
                );
                client.is_alive().await;
            }
        }
    });
}

#[test]
fn operations_cannot_double_an_object_without_end() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        client.define_anything().await;
        let made = json!({"apiVersion": "example.com/v1", "kind": "Anything", "metadata": {"name": "x"}, "spec": {"k": "0123456789"}});
        assert_eq!(client.ask("POST", ANYTHINGS, made).await.0, StatusCode::CREATED);
        let one = format!("{ANYTHINGS}/x");
        let copies: Vec<Value> = (0..64)
            .map(|i| json!({"op": "copy", "from": "/spec", "path": format!("/spec/{i}")}))
            .collect();
        let (code, message) =
            client.give("PATCH", &one, JSON_PATCH, Value::from(copies.clone()).to_string()).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(message, "the server rejected our request due to an error in our request");
        let (code, message) =
            client.give("PATCH", &one, JSON_PATCH, Value::from(&copies[..10]).to_string()).await;
        assert_eq!(code, StatusCode::OK, "{message}");
    });
}

#[test]
fn patches_cannot_nest_an_object_step_by_step() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        client.define_anything().await;
        let made = json!({"apiVersion": "example.com/v1", "kind": "Anything", "metadata": {"name": "x"}, "spec": {}});
        assert_eq!(client.ask("POST", ANYTHINGS, made).await.0, StatusCode::CREATED);
        let one = format!("{ANYTHINGS}/x");
        // Moves the object into a new one repeatedly.
        let deeper = json!([{"op": "move", "from": "/spec", "path": "/old"}, {"op": "add", "path": "/spec", "value": {}},
            {"op": "move", "from": "/old", "path": "/spec/s"}]);
        let mut steps = 0;
        let refusal = loop {
            let (code, message) = client.give("PATCH", &one, JSON_PATCH, deeper.to_string()).await;
            if code != StatusCode::OK {
                break (code, message);
            }
            steps += 1;
            assert!(steps <= MAX_DEPTH, "nothing ends it");
        };
        assert_eq!(refusal.0, StatusCode::BAD_REQUEST, "{}", refusal.1);
        assert!(refusal.1.contains("exceeded max depth"), "{}", refusal.1);
        assert!(steps > MAX_DEPTH - 16, "{steps}");
        lives_on(&client, &one).await;
    });
}

#[test]
fn aliases_cannot_make_a_document_large() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        let long = "x".repeat(1_000);
        let aliases = vec!["*a"; 300_000].join(",");
        let text =
            format!("metadata: {{name: y, annotations: {{a: &a {long}}}}}\ndata: [{aliases}]\n");
        let mut levels = "l0: &l0 [x]\n".to_owned();
        for i in 1..60 {
            levels.push_str(&format!("l{i}: &l{i} [*l{p}, *l{p}]\n", p = i - 1));
        }
        let anchors: String = (0..200).map(|i| format!("&n{i} [")).collect();
        let nested = format!(
            "a: {anchors}{}{}\nb: [{}]\n",
            "x".repeat(500_000),
            "]".repeat(200),
            vec!["*n0"; 50].join(",")
        );
        for body in [text, levels, nested] {
            for (method, path, media) in [
                ("POST", CONFIGMAPS.to_owned(), YAML),
                ("PATCH", format!("{CONFIGMAPS}/y?fieldManager=m"), APPLY),
                ("DELETE", format!("{CONFIGMAPS}/y"), YAML),
            ] {
                let (code, message) = client.give(method, &path, media, body.clone()).await;
                assert_eq!(code, StatusCode::BAD_REQUEST, "{method} {message}");
                assert!(
                    message.contains("yaml: document contains excessive aliasing"),
                    "{message}"
                );
                client.is_alive().await;
            }
        }
    });
}

/// Asserts that a stored object can be read in all forms, changed by all patches, and deleted.
async fn lives_on(client: &Client, path: &str) {
    let (collection, name) = path.rsplit_once('/').expect("a path");
    let (code, object) = read(client, path, JSON).await;
    assert_eq!(code, StatusCode::OK, "{path}");
    let version = object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    for accept in [
        YAML,
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
        PROTOBUF,
    ] {
        let custom = path.starts_with(ANYTHINGS);
        let wanted =
            if custom && accept == PROTOBUF { StatusCode::NOT_ACCEPTABLE } else { StatusCode::OK };
        assert_eq!(read(client, path, accept).await.0, wanted, "{path} as {accept}");
        let list = accept.replace("as=PartialObjectMetadata", "as=PartialObjectMetadataList");
        assert_eq!(read(client, collection, &list).await.0, wanted, "{collection} as {list}");
    }
    let response = client.send("GET", &format!("{collection}?watch=1"), &[], Bytes::new()).await;
    let seen = events(&mut response.into_body()).await;
    assert!(seen.iter().any(|event| event["object"]["metadata"]["name"] == name));
    let (api_version, kind) = (object["apiVersion"].clone(), object["kind"].clone());
    let apply = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": {"c": "3"}}});
    for (media, patch) in [
        (MERGE, json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["e/f"]}})),
        (JSON_PATCH, json!([{"op": "add", "path": "/metadata/labels/b", "value": "2"}])),
        (APPLY, apply),
    ] {
        let (code, message) =
            client.give("PATCH", &format!("{path}?fieldManager=m"), media, patch.to_string()).await;
        assert_eq!(code, StatusCode::OK, "{path} {media}: {message}");
    }
    let (code, _) = client.give("PUT", path, JSON, object.to_string()).await;
    assert_eq!(code, StatusCode::CONFLICT, "version {version} is gone");
    let (code, _) = client.ask("DELETE", path, Value::Null).await;
    assert_eq!(code, StatusCode::OK, "{path}");
    let (code, message) =
        client.give("PATCH", path, MERGE, r#"{"metadata":{"finalizers":null}}"#).await;
    assert_eq!(code, StatusCode::OK, "{message}");
    assert_eq!(read(client, path, JSON).await.0, StatusCode::NOT_FOUND);
}

async fn read(client: &Client, path: &str, accept: &str) -> (StatusCode, Value) {
    let response = client.send("GET", path, &[("accept", accept)], Bytes::new()).await;
    let code = response.status();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, evenkeel_api::json::from_slice(&bytes).unwrap_or_default())
}

/// Returns requests that contain a nested value: path of the collection, media type, and body.
fn places(nest: &str) -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let custom = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Anything","metadata":{{"name":"x"}},"spec":{nest}}}"#
    );
    let data = format!(r#"{{"of":{nest}}}"#);
    let revision_of = format!(r#"{{"metadata":{{"name":"r"}},"revision":1,"data":{data}}}"#);
    vec![
        (ANYTHINGS, JSON, custom.clone().into_bytes()),
        (ANYTHINGS, YAML, custom.into_bytes()),
        (REVISIONS, JSON, revision_of.into_bytes()),
        (REVISIONS, PROTOBUF, revision(data.as_bytes())),
    ]
}

async fn accepted_or_refused(client: &Client, nest: &str) -> usize {
    let mut accepted = 0;
    for (collection, media, body) in places(nest) {
        let (code, message) = client.give("POST", collection, media, body).await;
        if code == StatusCode::CREATED {
            accepted += 1;
            let name = if collection == ANYTHINGS { "x" } else { "r" };
            lives_on(client, &format!("{collection}/{name}")).await;
        } else {
            assert_eq!(code, StatusCode::BAD_REQUEST, "{message}");
            assert!(message.contains("exceeded max depth"), "{message}");
        }
    }
    accepted
}

#[test]
fn what_is_accepted_can_be_read_changed_and_deleted() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        client.define_anything().await;
        for depth in [1, 120, 127, 128, 140, 200, MAX_DEPTH - 16] {
            assert_eq!(accepted_or_refused(&client, &lists(depth)).await, 4, "{depth}");
            assert_eq!(accepted_or_refused(&client, &objects(depth)).await, 4, "{depth}");
        }
        for depth in MAX_DEPTH - 12..MAX_DEPTH + 2 {
            accepted_or_refused(&client, &lists(depth)).await;
            accepted_or_refused(&client, &objects(depth)).await;
        }
    });
}

/// Generates a nested JSON value. Some of its levels are lists, the others are objects.
fn any_nest() -> impl Strategy<Value = String> {
    let depth = prop_oneof![100usize..160, MAX_DEPTH - 16..MAX_DEPTH + 8];
    depth.prop_flat_map(|depth| prop::collection::vec(any::<bool>(), depth)).prop_map(|levels| {
        let open = levels.iter().map(|list| if *list { "[" } else { r#"{"a":"# });
        let close = levels.iter().rev().map(|list| if *list { "]" } else { "}" });
        format!("{}1{}", open.collect::<String>(), close.collect::<String>())
    })
}

#[test]
fn whatever_is_accepted_can_be_read_changed_and_deleted() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        client.define_anything().await;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..12 {
            let nest = any_nest().new_tree(&mut runner).expect("a value").current();
            accepted_or_refused(&client, &nest).await;
        }
    });
}

/// Returns a definition with a schema of `depth` lists within each other.
fn definition_of_lists(depth: usize) -> String {
    let schema = format!(
        r#"{}{{"type":"string"}}{}"#,
        r#"{"type":"array","items":"#.repeat(depth),
        "}".repeat(depth)
    );
    format!(
        r#"{{"metadata":{{"name":"deeps.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
        "names":{{"plural":"deeps","kind":"Deep"}},"versions":[{{"name":"v1","served":true,"storage":true,
        "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{schema}}}}}}}}}]}}}}"#
    )
}

#[test]
fn deep_definitions_can_be_written_and_deleted() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        for depth in [100, MAX_DEPTH - 30, 100_000] {
            let (code, message) =
                client.give("POST", DEFINITIONS, JSON, definition_of_lists(depth)).await;
            if depth > MAX_DEPTH {
                assert_eq!(code, StatusCode::BAD_REQUEST, "{message}");
                continue;
            }
            assert_eq!(code, StatusCode::CREATED, "{depth}: {message}");
            let one = format!("{DEFINITIONS}/deeps.example.com");
            for accept in [JSON, PROTOBUF, YAML] {
                assert_eq!(read(&client, &one, accept).await.0, StatusCode::OK, "{accept}");
            }
            assert_eq!(read(&client, "/openapi/v2", JSON).await.0, StatusCode::OK);
            assert_eq!(client.ask("DELETE", &one, Value::Null).await.0, StatusCode::OK);
            for _ in 0..1000 {
                if client.ask("GET", &one, Value::Null).await.0 == StatusCode::NOT_FOUND {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(client.ask("GET", &one, Value::Null).await.0, StatusCode::NOT_FOUND);
        }
    });
}

#[test]
fn a_namespace_of_deep_objects_ends() {
    on_a_workers_stack(|| async {
        let client = Client::start().await;
        client.define_anything().await;
        let body = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Anything","metadata":{{"name":"x"}},"spec":{}}}"#,
            lists(MAX_DEPTH - 16)
        );
        assert_eq!(client.give("POST", ANYTHINGS, JSON, body).await.0, StatusCode::CREATED);
        assert_eq!(client.ask("DELETE", ANYTHINGS, Value::Null).await.0, StatusCode::OK);
        let list = client.get(ANYTHINGS).await;
        assert_eq!(list["items"], json!([]));
    });
}
