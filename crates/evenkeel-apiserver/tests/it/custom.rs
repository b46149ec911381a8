//! Custom resources: life cycle of definitions and of their objects.

use std::time::Duration;

use evenkeel_apiserver::Server;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{Client, events};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "default": 3, "minimum": 1},
        "color": {"type": "string", "enum": ["red", "blue"]}, "replicas": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
        "selectableFields": [{"jsonPath": ".spec.color"}], "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}})
    };
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}, "versions": [version("v1", true), version("v2", false)]}})
}

/// Creates the definition and waits until it is served.
pub(crate) async fn define(client: &Client) {
    let (code, made) = client.ask("POST", DEFINITIONS, definition()).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    served(client, true).await;
}

/// Waits until widgets are served, or no longer served.
async fn served(client: &Client, wanted: bool) {
    for _ in 0..1000 {
        if client.ask("GET", WIDGETS, Value::Null).await.0.is_success() == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("widgets are not as they should be");
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_scale_changes_the_replicas_and_their_manager() {
    let client = Client::start().await;
    define(&client).await;
    client.make(WIDGETS, widget("a", &json!({"color": "red"}))).await;
    let path = format!("{WIDGETS}/a/scale");
    let (code, unset) = client.ask("GET", &path, Value::Null).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{unset}");
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, unset) = client.ask("PATCH", &path, labels).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{unset}");
    assert_eq!(unset["message"], "the spec replicas field \".spec.replicas\" cannot be empty");
    client.make(WIDGETS, widget("b", &json!({"replicas": 1}))).await;
    let path = format!("{WIDGETS}/b/scale");
    // Without a resource version, the latest one is replaced.
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "b"}, "spec": {"replicas": 2}});
    let (code, scaled) = client.ask("PUT", &format!("{path}?fieldManager=me"), scale).await;
    assert_eq!((code, &scaled["spec"]), (StatusCode::OK, &json!({"replicas": 2})), "{scaled}");
    let object = client.get(&format!("{WIDGETS}/b")).await;
    let managers = object["metadata"]["managedFields"].as_array().expect("managers");
    let mine: Vec<&Value> = managers.iter().filter(|entry| entry["manager"] == "me").collect();
    let fields = json!({"f:spec": {"f:replicas": {}}});
    assert_eq!(mine.len(), 1, "{managers:?}");
    assert_eq!((&mine[0]["subresource"], &mine[0]["fieldsV1"]), (&json!("scale"), &fields));
    for method in ["DELETE", "POST"] {
        let (code, refused) = client.ask(method, &path, Value::Null).await;
        assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED, "{refused}");
        assert_eq!(refused["details"], json!({"group": "example.com", "kind": "widgets"}));
    }
}

#[tokio::test]
async fn objects_follow_their_schema() {
    let client = Client::start().await;
    define(&client).await;
    let (code, made) =
        client.ask("POST", WIDGETS, widget("a", &json!({"color": "red", "extra": 1}))).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(made["spec"], json!({"color": "red", "size": 3}));
    let (code, refused) =
        client.ask("POST", WIDGETS, widget("b", &json!({"color": "green", "size": 0}))).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let fields: Vec<&str> = refused["details"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .filter_map(|c| c["field"].as_str())
        .collect();
    assert_eq!(fields, ["spec.color", "spec.size"]);
    let other = WIDGETS.replace("v1", "v2");
    let read = client.get(&format!("{other}/a")).await;
    assert_eq!((&read["apiVersion"], &read["spec"]), (&json!("example.com/v2"), &made["spec"]));
    let list = client.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    let list = client.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dblue")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(0));
    let (_, scaled) =
        client.ask("PATCH", &format!("{WIDGETS}/a/scale"), json!({"spec": {"replicas": 4}})).await;
    assert_eq!(scaled["spec"]["replicas"], 4);
    let (_, with) = client
        .ask(
            "PATCH",
            &format!("{WIDGETS}/a/status"),
            json!({"status": {"ok": true}, "spec": {"size": 9}}),
        )
        .await;
    assert_eq!((&with["status"], &with["spec"]["size"]), (&json!({"ok": true}), &json!(3)));
    assert_eq!(with["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_definition_takes_its_objects_along_and_ends_their_watches() {
    let client = Client::start().await;
    define(&client).await;
    client.ask("POST", WIDGETS, widget("a", &json!({}))).await;
    let mut watch = client
        .send("GET", &format!("{WIDGETS}?watch=1"), &[], Default::default())
        .await
        .into_body();
    assert_eq!(events(&mut watch).await[0]["type"], "ADDED");
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let (_, going) = client.ask("DELETE", &path, Value::Null).await;
    assert_eq!(going["metadata"]["finalizers"][0], "customresourcecleanup.apiextensions.k8s.io");
    assert_eq!(events(&mut watch).await[0]["type"], "DELETED");
    assert!(watch.frame().await.is_none(), "the watch ends with the definition");
    served(&client, false).await;
    assert_eq!(client.ask("GET", &path, Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn discovery_knows_definitions_as_they_come() {
    let client = Client::start().await;
    define(&client).await;
    let names = |list: &Value| -> Vec<String> {
        list["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|r| r["name"].as_str())
            .map(str::to_owned)
            .collect()
    };
    let resources = client.get("/apis/example.com/v1").await;
    assert_eq!(names(&resources), ["widgets", "widgets/status", "widgets/scale"]);
    let group = client.get("/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let document = client.get("/openapi/v3/apis/example.com/v1").await;
    let schema = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["minimum"], 1);
    let index = client.get("/openapi/v3").await;
    assert!(index["paths"].get("apis/example.com/v1").is_some());
}

#[tokio::test]
async fn the_tag_of_openapi_v2_follows_paths() {
    let client = Client::start().await;
    let (mut with, mut without) = (definition(), definition());
    without["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    without["spec"]["versions"][1]["subresources"] = json!({"status": {}});
    let tag = async || {
        let response = client.send("GET", "/openapi/v2", &[], bytes::Bytes::new()).await;
        let tag = response.headers().get("etag").cloned().expect("a tag");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let document: Value = serde_json::from_slice(&body).expect("JSON");
        let path = "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/scale";
        (tag, document["paths"].get(path).is_some())
    };
    client.make(DEFINITIONS, without).await;
    served(&client, true).await;
    let (before, had_scale) = tag().await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    with["metadata"]["resourceVersion"] =
        client.get(&path).await["metadata"]["resourceVersion"].take();
    let (code, updated) = client.ask("PUT", &path, with).await;
    assert_eq!(code, StatusCode::OK, "{updated}");
    for _ in 0..1000 {
        if client.get("/apis/example.com/v1").await.to_string().contains("widgets/scale") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (after, has_scale) = tag().await;
    assert_eq!((had_scale, has_scale), (false, true));
    assert_ne!(before, after);
}

#[tokio::test]
async fn custom_objects_outlive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = || Server::builder().data_dir(Some(folder.path().to_owned())).build();
    let server = build().await.expect("a new folder");
    let client = Client(server.service());
    define(&client).await;
    client.ask("POST", WIDGETS, widget("a", &json!({"size": 5}))).await;
    let before = client.get(&format!("{WIDGETS}/a")).await;
    drop((client, server));
    let server = build().await.expect("the same folder");
    // Served immediately: no request waits for a definition that was established before.
    let after = Client(server.service()).get(&format!("{WIDGETS}/a")).await;
    assert_eq!(after, before);
}
