//! Lists and watches with a `shardSelector` (KEP-5866).

use bytes::Bytes;
use evenkeel_api::protobuf::Transcoder;
use evenkeel_api::sharding::{HASH_SPACE, ShardField, ShardRange, ShardSelector, hash_field};
use evenkeel_apiserver::Server;
use http_body_util::BodyExt as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::custom::{WIDGETS, define};
use crate::{Client, events};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns a server with the feature gate.
async fn start() -> Client {
    let server = Server::builder().seed(7).sharded_list_and_watch(true);
    Client(server.build().await.expect("a server in memory").service())
}

/// Returns the selector of one of `count` equal shards.
fn shard(field: ShardField, index: u128, count: u128) -> ShardSelector {
    let size = HASH_SPACE / count;
    let end = if index + 1 == count { HASH_SPACE } else { size * (index + 1) };
    ShardSelector::new(field, vec![ShardRange::new(size * index, end).expect("a range")])
}

/// Adds a selector, and other parameters, to a path.
fn with(path: &str, selector: &ShardSelector, others: &str) -> String {
    let text = selector.to_string();
    format!("{path}?shardSelector={}{others}", utf8_percent_encode(&text, NON_ALPHANUMERIC))
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    let name = |item: &Value| item["metadata"]["name"].as_str().expect("a name").to_owned();
    items.iter().map(name).collect()
}

/// Creates ten ConfigMaps. Returns the names and UIDs.
async fn make_ten(client: &Client) -> Vec<(String, String)> {
    let mut made = Vec::new();
    for number in 0..10 {
        let object = json!({"metadata": {"name": format!("c{number}")}});
        let object = client.make(CONFIGMAPS, object).await;
        let text = |field: &str| object["metadata"][field].as_str().expect("a text").to_owned();
        made.push((text("name"), text("uid")));
    }
    made
}

#[tokio::test(start_paused = true)]
async fn each_object_is_in_the_list_of_one_shard() {
    let client = start().await;
    let made = make_ten(&client).await;
    let selected = |selector: &ShardSelector| -> Vec<String> {
        let mine = made.iter().filter(|(_, uid)| selector.matches(uid));
        mine.map(|(name, _)| name.clone()).collect()
    };
    let mut found = Vec::new();
    for index in 0..3 {
        let selector = shard(ShardField::Uid, index, 3);
        let list = client.get(&with(CONFIGMAPS, &selector, "")).await;
        assert_eq!(names(&list), selected(&selector), "{selector}");
        assert_eq!(list["metadata"]["shardInfo"], json!({"selector": selector.to_string()}));
        found.extend(names(&list));
        // Chunks have no `remainingItemCount`, as with any selector.
        let (mut chunks, mut token) = (Vec::new(), String::new());
        loop {
            let others = format!("&limit=2&continue={token}");
            let chunk = client.get(&with(CONFIGMAPS, &selector, &others)).await;
            assert_eq!(chunk["metadata"]["remainingItemCount"], Value::Null);
            assert!(chunk["metadata"]["shardInfo"].is_object());
            chunks.extend(names(&chunk));
            token = chunk["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(chunks, names(&list));
    }
    found.sort();
    assert_eq!(found, made.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    let whole = client.get(CONFIGMAPS).await;
    assert_eq!(whole["metadata"]["shardInfo"], Value::Null);
    // All objects of a namespace have the same hash, and a cluster-scoped object has that of the empty string.
    let namespaces = shard(ShardField::Namespace, 0, 1);
    assert_eq!(names(&client.get(&with(CONFIGMAPS, &namespaces, "")).await).len(), 10);
    let empty = hash_field("");
    for (start, is_there) in [(u128::from(empty), true), (u128::from(empty) + 1, false)] {
        let range = ShardRange::new(start, HASH_SPACE).expect("a range");
        let selector = ShardSelector::new(ShardField::Namespace, vec![range]);
        let list = client.get(&with("/api/v1/namespaces", &selector, "")).await;
        assert_eq!(names(&list).contains(&"default".to_owned()), is_there, "{selector}");
    }
}

#[tokio::test]
async fn only_lists_of_whole_built_in_objects_have_shard_info() {
    let client = start().await;
    let made = make_ten(&client).await;
    define(&client).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"color": "red"}});
    client.make(WIDGETS, widget).await;
    let selector = shard(ShardField::Uid, 0, 2);
    let mine = made.iter().filter(|(_, uid)| selector.matches(uid)).count();
    let path = with(CONFIGMAPS, &selector, "");
    let ask = async |path: &str, accept: &str| {
        let answer = client.send("GET", path, &[("accept", accept)], Bytes::new()).await;
        answer.into_body().collect().await.expect("a body").to_bytes()
    };
    let info = json!({"selector": selector.to_string()});
    for (accept, has_info) in [
        ("application/json", true),
        ("application/yaml", true),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", false),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", false),
        ("application/vnd.kubernetes.protobuf", true),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            false,
        ),
    ] {
        let bytes = ask(&path, accept).await;
        let list = if accept.contains("protobuf") {
            Transcoder::decode_envelope(&bytes).expect(accept)
        } else {
            evenkeel_apimachinery::decode::file(&bytes).expect(accept)
        };
        let items = list.get("items").or_else(|| list.get("rows")).and_then(Value::as_array);
        assert_eq!(items.map_or(0, Vec::len), mine, "{accept}: {list}");
        let want = if has_info { info.clone() } else { Value::Null };
        assert_eq!(list["metadata"]["shardInfo"], want, "{accept}");
    }
    let all = shard(ShardField::Uid, 0, 1);
    let list = client.get(&with(WIDGETS, &all, "")).await;
    assert_eq!(
        (names(&list), &list["metadata"]["shardInfo"]),
        (vec!["w".to_owned()], &Value::Null)
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_the_events_of_its_shards() {
    let client = start().await;
    let version = client.get(CONFIGMAPS).await["metadata"]["resourceVersion"].clone();
    let version = version.as_str().expect("a version").to_owned();
    let made = make_ten(&client).await;
    for name in made.iter().map(|(name, _)| name) {
        let path = format!("{CONFIGMAPS}/{name}");
        client.ask("PATCH", &path, json!({"data": {"a": "b"}})).await;
        client.ask("DELETE", &path, Value::Null).await;
    }
    let mut seen = 0;
    for index in 0..2 {
        let selector = shard(ShardField::Uid, index, 2);
        let mine: Vec<&String> =
            made.iter().filter(|(_, uid)| selector.matches(uid)).map(|(name, _)| name).collect();
        let others = format!("&watch=1&resourceVersion={version}");
        let path = with(CONFIGMAPS, &selector, &others);
        let mut watch = client.send("GET", &path, &[], Bytes::new()).await.into_body();
        let mut found = Vec::new();
        while found.len() < 3 * mine.len() {
            found.extend(events(&mut watch).await);
        }
        let found: Vec<(String, &str)> = found
            .iter()
            .map(|event| {
                let name = event["object"]["metadata"]["name"].as_str().expect("a name");
                (name.to_owned(), event["type"].as_str().expect("a type"))
            })
            .collect();
        for name in &mine {
            let types = found.iter().filter(|(of, _)| of == *name).map(|(_, type_)| *type_);
            assert_eq!(types.collect::<Vec<_>>(), ["ADDED", "MODIFIED", "DELETED"], "{name}");
        }
        assert_eq!(found.len(), 3 * mine.len());
        seen += mine.len();
        let metrics = client.send("GET", "/metrics", &[], Bytes::new()).await.into_body();
        let metrics = metrics.collect().await.expect("a body").to_bytes();
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        let line = "apiserver_watch_shards_total{group=\"\",resource=\"configmaps\"} 1\n";
        assert!(metrics.contains(line), "{metrics}");
    }
    assert_eq!(seen, 10, "the shards split the objects");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_a_collection_is_of_the_selected_shards() {
    let client = start().await;
    let made = make_ten(&client).await;
    let selector = shard(ShardField::Uid, 1, 2);
    let (code, _) = client.ask("DELETE", &with(CONFIGMAPS, &selector, ""), Value::Null).await;
    assert_eq!(code, 200);
    let left = made.iter().filter(|(_, uid)| !selector.matches(uid));
    let left: Vec<String> = left.map(|(name, _)| name.clone()).collect();
    assert_eq!(names(&client.get(CONFIGMAPS).await), left);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_selector_is_an_internal_error_as_in_upstream() {
    let client = start().await;
    let message =
        "invalid shard selector: unsupported function \"a\"; only shardRange() and || are allowed";
    let error = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": 500});
    for path in [
        format!("{CONFIGMAPS}?shardSelector=a()"),
        format!("{CONFIGMAPS}?shardSelector=a()&watch=1&resourceVersion=x"),
        format!("{CONFIGMAPS}?shardSelector=a()&continue=x"),
    ] {
        let (code, body) = client.ask("GET", &path, Value::Null).await;
        assert_eq!((code.as_u16(), &body), (500, &error), "{path}");
    }
    // Other parameters are checked first, and an empty selector counts as absent.
    for (query, code) in [("shardSelector=a()&labelSelector=,", 400), ("shardSelector=", 200)] {
        let (found, _) = client.ask("GET", &format!("{CONFIGMAPS}?{query}"), Value::Null).await;
        assert_eq!(found, code, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_feature_gate_the_parameter_has_no_effect() {
    let client = Client::start().await;
    make_ten(&client).await;
    for path in [
        with(CONFIGMAPS, &shard(ShardField::Uid, 0, 2), ""),
        format!("{CONFIGMAPS}?shardSelector=a()"),
    ] {
        let list = client.get(&path).await;
        assert_eq!((names(&list).len(), &list["metadata"]["shardInfo"]), (10, &Value::Null));
    }
}
