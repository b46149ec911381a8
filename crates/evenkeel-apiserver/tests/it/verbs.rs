//! Create, read, list, watch, update, delete.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_api::protobuf::Transcoder;
use evenkeel_apiserver::{Clock, Server};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Client, events};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"n": name}}, "data": {"a": "1"}})
}

#[tokio::test(start_paused = true)]
async fn an_object_lives_and_dies() {
    let client = Client::start().await;
    let (code, made) = client.ask("POST", CONFIGMAPS, configmap("x")).await;
    assert_eq!((code.as_u16(), &made["metadata"]["name"]), (201, &json!("x")));
    assert_eq!(client.ask("POST", CONFIGMAPS, configmap("x")).await.0, 409);
    let path = format!("{CONFIGMAPS}/x");
    let mut got = client.get(&path).await;
    assert_eq!(got, made);
    got["data"]["a"] = json!("2");
    let (code, changed) = client.ask("PUT", &path, got.clone()).await;
    assert_eq!((code.as_u16(), &changed["data"]["a"]), (200, &json!("2")));
    assert_ne!(changed["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    // The version is stale now.
    assert_eq!(client.ask("PUT", &path, got).await.0, 409);
    // A write that changes nothing keeps the resource version.
    let (_, same) = client.ask("PUT", &path, changed.clone()).await;
    assert_eq!(same, changed);
    let (code, patched) = client.ask("PATCH", &path, json!({"data": {"b": "3"}})).await;
    assert_eq!((code.as_u16(), &patched["data"]), (200, &json!({"a": "2", "b": "3"})));
    let (code, status) = client.ask("DELETE", &path, Value::Null).await;
    assert_eq!((code.as_u16(), &status["status"]), (200, &json!("Success")));
    assert_eq!(client.ask("GET", &path, Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn options_of_a_deletion_are_read_in_every_form() {
    let client = Client::start().await;
    let (_, made) = client.ask("POST", CONFIGMAPS, configmap("x")).await;
    let path = format!("{CONFIGMAPS}/x");
    let uid = |uid: &str| json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    let protobuf = |options| Transcoder::encode_envelope(&options).expect("options");
    let deleted = async |kind: &str, body: Vec<u8>| {
        let headers = [("content-type", kind)];
        client.send("DELETE", &path, &headers, body.into()).await.status().as_u16()
    };
    let other = protobuf(uid("another"));
    assert_eq!(deleted("application/vnd.kubernetes.protobuf", other).await, 409);
    let cut = protobuf(uid("another"))[..20].to_vec();
    assert_eq!(deleted("application/vnd.kubernetes.protobuf", cut).await, 400);
    let yaml = "kind: DeleteOptions\npreconditions: {uid: another}\n";
    assert_eq!(deleted("application/yaml", yaml.into()).await, 409);
    let right = protobuf(uid(made["metadata"]["uid"].as_str().expect("a uid")));
    assert_eq!(deleted("application/vnd.kubernetes.protobuf", right).await, 200);
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_consistent_pages() {
    let client = Client::start().await;
    for name in ["a", "b", "c", "d"] {
        client.ask("POST", CONFIGMAPS, configmap(name)).await;
    }
    let first = client.get(&format!("{CONFIGMAPS}?limit=3")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    client.ask("DELETE", &format!("{CONFIGMAPS}/d"), Value::Null).await;
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let rest = client.get(&format!("{CONFIGMAPS}?limit=3&continue={token}")).await;
    assert_eq!(rest["items"][0]["metadata"]["name"], "d");
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    // A first page with a resource version lists that revision, too.
    let version = first["metadata"]["resourceVersion"].as_str().expect("a version");
    let all = client.get(&format!("{CONFIGMAPS}?limit=9&resourceVersion={version}")).await;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(4));
    let selected = client
        .get(&format!("{CONFIGMAPS}?labelSelector=n+in+(a,c)&fieldSelector=metadata.name!=a"))
        .await;
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));
}

/// In one chunk and in several; a changed object is encoded again.
#[tokio::test(start_paused = true)]
async fn a_list_in_protobuf_is_the_list_in_json() {
    let client = Client::start().await;
    let n_long = 2 * 128;
    for (n, size) in [(3, 10), (n_long, 1024)] {
        for i in 0..n {
            let mut object = configmap(&format!("{size}-{i}"));
            object["data"]["b"] = json!("b".repeat(size));
            client.ask("POST", CONFIGMAPS, object).await;
        }
        for path in [CONFIGMAPS, &format!("{CONFIGMAPS}?limit=2")] {
            let headers = [("accept", "application/vnd.kubernetes.protobuf")];
            let answer = client.send("GET", path, &headers, Bytes::new()).await;
            let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
            let list = Transcoder::decode_envelope(&bytes).expect("a list");
            let expected = client.get(path).await;
            for item in expected["items"].as_array().expect("items") {
                // Items of lists in JSON have neither kind nor apiVersion, and neither have those in protobuf.
                assert_eq!(item.get("kind"), None);
            }
            assert_eq!(list, expected, "{path}");
        }
        let change = json!({"data": {"a": n.to_string()}});
        client.patch(&format!("{CONFIGMAPS}/10-0"), "merge-patch+json", change).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_what_its_selector_sees() {
    let client = Client::start().await;
    client.ask("POST", CONFIGMAPS, configmap("a")).await;
    let path = format!(
        "{CONFIGMAPS}?watch=1&labelSelector=n=a&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = client.send("GET", &path, &[], bytes::Bytes::new()).await.into_body();
    let initial = events(&mut watch).await;
    assert_eq!(initial[0]["type"], "ADDED");
    let end = events(&mut watch).await;
    assert_eq!(end[0]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    client.ask("POST", CONFIGMAPS, configmap("b")).await;
    client
        .ask("PATCH", &format!("{CONFIGMAPS}/a"), json!({"metadata": {"labels": {"n": "z"}}}))
        .await;
    let left = events(&mut watch).await;
    assert_eq!((left.len(), &left[0]["type"]), (1, &json!("DELETED")));
    assert_eq!(left[0]["object"]["metadata"]["labels"]["n"], "a");
    // In virtual time, a bookmark arrives without further requests.
    let bookmark =
        tokio::time::timeout(Duration::from_secs(100), events(&mut watch)).await.expect("in time");
    assert_eq!(bookmark[0]["type"], "BOOKMARK");
}

#[tokio::test(start_paused = true)]
async fn a_young_server_remembers_all_its_revisions() {
    let client = Client::start().await;
    let from = client.get(CONFIGMAPS).await["metadata"]["resourceVersion"].clone();
    // No request reads ConfigMaps before other resources are written.
    client.ask("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let from = from.as_str().expect("a version");
    let watch = async |version: &str| {
        let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}&timeoutSeconds=60");
        client.send("GET", &path, &[], bytes::Bytes::new()).await.into_body()
    };
    let watches = [watch("1").await, watch(from).await];
    client.ask("POST", CONFIGMAPS, configmap("a")).await;
    for mut watch in watches {
        assert_eq!(events(&mut watch).await[0]["type"], "ADDED");
    }
}

/// Changes a large object so often that the earlier events are evicted.
async fn outlast_the_memory(client: &Client, name: &str) {
    let large = json!({"data": {"large": "x".repeat(150_000)}});
    let path = format!("{CONFIGMAPS}/{name}");
    assert_eq!(client.ask("PATCH", &path, large).await.0, 200);
    for at in 0..300 {
        let change = json!({"data": {"a": at.to_string()}});
        assert_eq!(client.ask("PATCH", &path, change).await.0, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_gone() {
    let client = Client::start().await;
    for name in ["a", "b"] {
        client.ask("POST", CONFIGMAPS, configmap(name)).await;
    }
    let page = client.get(&format!("{CONFIGMAPS}?limit=1")).await["metadata"].clone();
    let version = page["resourceVersion"].as_str().expect("a version");
    let from = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
    let watch = async || client.send("GET", &from, &[], bytes::Bytes::new()).await.into_body();
    let slow = watch().await;
    outlast_the_memory(&client, "b").await;
    // A watch from a compacted revision, or one that fell behind, ends with an Expired error.
    for mut watch in [watch().await, slow] {
        let error = &events(&mut watch).await[0];
        assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
        assert_eq!(error["object"]["reason"], "Expired");
        assert!(watch.frame().await.is_none(), "the stream ends");
    }
    // A page of an expired revision. The refusal has a token that continues the list at the current revision.
    let token = page["continue"].as_str().expect("a token");
    let (code, gone) =
        client.ask("GET", &format!("{CONFIGMAPS}?limit=1&continue={token}"), Value::Null).await;
    assert_eq!((code.as_u16(), &gone["reason"]), (410, &json!("Expired")));
    let token = gone["metadata"]["continue"].as_str().expect("a token");
    let rest = client.get(&format!("{CONFIGMAPS}?limit=1&continue={token}")).await;
    assert_eq!(rest["items"][0]["metadata"]["name"], "b");
    assert_ne!(rest["metadata"]["resourceVersion"], page["resourceVersion"]);
    let exact = format!("{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(client.ask("GET", &exact, Value::Null).await.0, 410);
}

#[tokio::test]
async fn ages_are_reported_by_the_servers_clock() {
    let time = Arc::new(AtomicI64::new(1_000_000));
    let its = time.clone();
    let clock =
        Clock::new(move || Timestamp::from_second(its.load(Ordering::Relaxed)).expect("a time"));
    let server = Server::builder().clock(clock).build().await.expect("a server in memory");
    let client = Client(server.service());
    client.ask("POST", CONFIGMAPS, configmap("a")).await;
    time.fetch_add(90, Ordering::Relaxed);
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let response =
        client.send("GET", &format!("{CONFIGMAPS}/a"), &accept, bytes::Bytes::new()).await;
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let table: Value = serde_json::from_slice(&bytes).expect("json");
    assert_eq!(table["rows"][0]["cells"], json!(["a", 1, "90s"]));
}

#[tokio::test(start_paused = true)]
async fn namespaces_must_be_there() {
    let client = Client::start().await;
    let (code, _) = client.ask("POST", "/api/v1/namespaces/nope/configmaps", configmap("x")).await;
    assert_eq!(code, 404);
    let (code, _) = client.ask("DELETE", "/api/v1/namespaces/default", Value::Null).await;
    assert_eq!(code, 403);
    client.ask("POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    client.ask("DELETE", "/api/v1/namespaces/n", Value::Null).await;
    let (code, refused) =
        client.ask("POST", "/api/v1/namespaces/n/configmaps", configmap("x")).await;
    assert_eq!(
        (code.as_u16(), &refused["details"]["causes"][0]["reason"]),
        (403, &json!("NamespaceTerminating"))
    );
}
