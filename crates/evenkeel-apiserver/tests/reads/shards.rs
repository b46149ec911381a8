//! Sends generated reads with a `shardSelector` (KEP-5866) to both servers, with the feature gate
//! `ShardedListAndWatch`.
//!
//! Namespaces have the same hash in both servers, so these responses are compared. UIDs differ: each server's shards
//! must split its own objects. `EVENKEEL_SHARDED_READS` is the number of requests.

use std::collections::BTreeMap;

use evenkeel_api::protobuf::Transcoder;
use evenkeel_api::sharding::{HASH_SPACE, ShardField, ShardRange, ShardSelector, hash_field};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::parity::compare::mask;
use crate::parity::number;
use crate::parity::servers::{Connection, Oracle, Sent};
use crate::{parity, request};

/// Requests of an ordinary run.
const N_REQUESTS: u64 = 1_500;

/// Namespaces of the objects.
const NAMESPACES: [&str; 8] =
    ["tenant-a", "tenant-b", "payments", "web", "data-lake", "x", "team-17", "zoo"];

/// Paths of collections: of built-in and custom kinds, in all namespaces and in one, and of cluster-scoped objects.
const PATHS: [&str; 6] = [
    "/api/v1/configmaps",
    "/api/v1/namespaces/payments/configmaps",
    "/apis/sharded.example.com/v1/widgets",
    "/apis/sharded.example.com/v1/namespaces/web/widgets",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/api/v1/secrets",
];

const ACCEPTS: [&str; 6] = [
    "application/json",
    "application/json",
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];

/// Other parameters of a list.
const OTHERS: [&str; 10] = [
    "",
    "",
    "&limit=2",
    "&limit=5&resourceVersion=0",
    "&resourceVersion=0",
    "&labelSelector=n=1",
    "&labelSelector=n%20in%20(1,2)&limit=1",
    "&fieldSelector=metadata.name=c1",
    "&fieldSelector=metadata.namespace=web",
    "&continue=x",
];

/// Bounds of ranges, valid and invalid.
const BOUNDS: [&str; 22] = [
    "'0x0000000000000000'",
    "'0x4000000000000000'",
    "'0x8000000000000000'",
    "'0xc000000000000000'",
    "'0x10000000000000000'",
    "\"0x6000000000000000\"",
    "r'0xa000000000000000'",
    "'''0xd000000000000000'''",
    "'\\x30xe000000000000000'",
    "'0xF000000000000000'",
    "'0x0'",
    "'0x'",
    "''",
    "'ff'",
    "'0x20000000000000000'",
    "'0x000000000000000000'",
    "'0x00000000000000é0'",
    "b'0x8000000000000000'",
    "12",
    "-1",
    "1.5u",
    "null",
];

/// Field paths of generated calls of `shardRange`: three in ten are valid.
const FIELDS: [&str; 10] = [
    "object.metadata.namespace",
    "object.metadata.namespace",
    "object.metadata.namespace",
    "object.metadata.name",
    "object.metadata",
    "metadata.namespace",
    "'object.metadata.namespace'",
    "object.metadata['namespace']",
    "object.metadata.namespace()",
    "object.?metadata",
];

/// Strings that are not selectors.
const TEXTS: [&str; 16] = [
    " ",
    "true",
    "a",
    "a.b",
    "[1]",
    "{}",
    "{'a': 1}",
    "A{b: 1}",
    "has(a.b)",
    "a ? b : c",
    "!a",
    "a in b",
    "shardRange",
    "shardRange()",
    "shardRange(a, b)",
    "x.shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')",
];

/// Returns a selector, most often a valid one.
fn selector(rng: &mut SmallRng) -> String {
    if rng.random_bool(0.1) {
        return TEXTS.choose(rng).map(|text| (*text).to_owned()).unwrap_or_default();
    }
    let ranges: Vec<String> = (0..rng.random_range(1..=3)).map(|_| range(rng)).collect();
    let joint = [" || ", "||", " || ", " && "].choose(rng).copied().unwrap_or_default();
    let text = ranges.join(joint);
    match rng.random_range(0..12) {
        0 => format!("({text})"),
        1 => format!(" {text}\n"),
        2 => text.replace(", ", ","),
        _ => text,
    }
}

fn range(rng: &mut SmallRng) -> String {
    if rng.random_bool(0.15) {
        let part = |rng: &mut SmallRng, parts: &[&str]| {
            parts.choose(rng).map(|part| (*part).to_owned()).unwrap_or_default()
        };
        let field = part(rng, &FIELDS);
        let (start, end) = (part(rng, &BOUNDS), part(rng, &BOUNDS));
        return format!("shardRange({field}, {start}, {end})");
    }
    let bound = |rng: &mut SmallRng| u128::from(rng.random::<u64>());
    let (one, other) = (bound(rng), bound(rng));
    let (start, end) = (one.min(other), one.max(other) + 1);
    let end = if rng.random_bool(0.2) { HASH_SPACE } else { end };
    let range = ShardRange::new(start, end).expect("a range");
    ShardSelector::new(ShardField::Namespace, vec![range]).to_string()
}

/// Adds a selector and other parameters to a path.
fn with(path: &str, selector: &str, others: &str) -> String {
    format!("{path}?shardSelector={}{others}", utf8_percent_encode(selector, NON_ALPHANUMERIC))
}

fn definition() -> Value {
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    json!({"metadata": {"name": "widgets.sharded.example.com"}, "spec": {"group": "sharded.example.com",
        "scope": "Namespaced", "names": names, "versions": [version]}})
}

/// Creates the same objects in a server.
async fn prepare(oracle: &Oracle) -> Connection {
    let mut connection = oracle.connect().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = connection.ask(&Sent::post(definitions, definition())).await;
    assert_eq!(made.code, 201, "{}", made.body);
    connection.until_served("/apis/sharded.example.com/v1/widgets").await;
    let class = json!({"metadata": {"name": "fast"}, "value": 7});
    connection.ask(&Sent::post("/apis/scheduling.k8s.io/v1/priorityclasses", class)).await;
    for namespace in NAMESPACES {
        connection.make_namespace(namespace).await;
        for number in 0..3 {
            let labels = json!({"n": number.to_string()});
            for (group, kind, plural) in [
                ("api/v1", "ConfigMap", "configmaps"),
                ("apis/sharded.example.com/v1", "Widget", "widgets"),
            ] {
                let version = group.split_once('/').map_or("v1", |(_, version)| version);
                let path = format!("/{group}/namespaces/{namespace}/{plural}");
                let object = json!({"apiVersion": version, "kind": kind,
                    "metadata": {"name": format!("c{number}"), "labels": labels}});
                let made = connection.ask(&Sent::post(&path, object)).await;
                assert_eq!(made.code, 201, "{path}: {}", made.body);
            }
        }
    }
    connection
}

/// Returns the response without values that always differ.
async fn answer(connection: &mut Connection, method: &Method, uri: &str, accept: &str) -> Value {
    let raw = connection.send(request(method, uri, &[("accept", accept.to_owned())])).await;
    let mut body = if raw.bytes.starts_with(b"k8s\0") {
        Transcoder::decode_envelope(&raw.bytes).expect("a message")
    } else {
        serde_json::from_slice(&raw.bytes).unwrap_or_default()
    };
    let items = [body["items"].take(), body["rows"].take()].into_iter().find(Value::is_array);
    let items: Vec<String> = items
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|item| {
            let meta = item.pointer("/object/metadata").unwrap_or(&item["metadata"]);
            format!("{}/{}", meta["namespace"], meta["name"])
        })
        .collect();
    if body["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty()) {
        body["metadata"]["continue"] = "<token>".into();
    }
    // The columns are those of any Table.
    body["columnDefinitions"] = Value::Null;
    mask("", &mut body);
    json!({"code": raw.code, "items": items, "body": body})
}

/// Each object of a server is in one of three shards by UID.
async fn check_split(connection: &mut Connection) {
    let path = "/api/v1/configmaps";
    let uids = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items");
        items.iter().filter_map(|item| item["metadata"]["uid"].as_str()).map(Into::into).collect()
    };
    let all = uids(&connection.ask(&Sent::get(path)).await.body);
    let third = HASH_SPACE / 3;
    let mut n_found = 0;
    for (start, end) in [(0, third), (third, 2 * third), (2 * third, HASH_SPACE)] {
        let range = ShardRange::new(start, end).expect("a range");
        let selector = ShardSelector::new(ShardField::Uid, vec![range]).to_string();
        let list = connection.ask(&Sent::get(&with(path, &selector, ""))).await.body;
        assert_eq!(list["metadata"]["shardInfo"], json!({"selector": selector}));
        let want: Vec<String> =
            all.iter().filter(|uid| range.contains(hash_field(uid))).cloned().collect();
        assert_eq!(uids(&list), want, "{selector}");
        n_found += want.len();
    }
    assert_eq!(n_found, all.len());
}

/// Returns the types and names of a watch's events for each of two shards, while objects are created, changed and
/// deleted.
async fn watched(oracle: &Oracle) -> Vec<Vec<(String, String)>> {
    let mut connection = oracle.connect().await;
    let path = "/api/v1/configmaps";
    let list = connection.ask(&Sent::get(path)).await.body;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let mut streams = Vec::new();
    for (start, end) in [(0, HASH_SPACE / 2), (HASH_SPACE / 2, HASH_SPACE)] {
        let range = ShardRange::new(start, end).expect("a range");
        let selector = ShardSelector::new(ShardField::Namespace, vec![range]).to_string();
        let others = format!("&watch=1&timeoutSeconds=4&resourceVersion={version}");
        let uri = with(path, &selector, &others);
        streams.push(oracle.stream(request(&Method::GET, &uri, &[])).await);
    }
    for namespace in NAMESPACES {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched"}});
        connection.ask(&Sent::post(&path, object.clone())).await;
        let path = format!("{path}/watched");
        let mut changed = object;
        changed["data"] = json!({"a": "b"});
        for (method, body) in [(Method::PUT, changed), (Method::DELETE, Value::Null)] {
            let sent = Sent { method, path: path.clone(), media: "application/json", body };
            assert_eq!(connection.ask(&sent).await.code, 200);
        }
    }
    let mut all = Vec::new();
    for mut stream in streams {
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            let meta = &event["object"]["metadata"];
            events.push((
                event["type"].to_string(),
                format!("{}/{}", meta["namespace"], meta["name"]),
            ));
        }
        all.push(events);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharded_reads_get_upstreams_answers() {
    let Some(binaries) = parity::binaries("sharded reads") else { return };
    let [upstream, embedded] = Oracle::both_sharded(&binaries).await;
    let (mut theirs, mut ours) = (prepare(&upstream).await, prepare(&embedded).await);
    check_split(&mut theirs).await;
    check_split(&mut ours).await;
    let (their_events, our_events) = (watched(&upstream).await, watched(&embedded).await);
    assert_eq!(their_events.iter().map(Vec::len).sum::<usize>(), 3 * NAMESPACES.len());
    assert_eq!(their_events, our_events);
    let mut rng = SmallRng::seed_from_u64(5866);
    let mut codes: BTreeMap<u64, u64> = BTreeMap::new();
    let mut different = Vec::new();
    let n_requests = number("EVENKEEL_SHARDED_READS").unwrap_or(N_REQUESTS);
    for _ in 0..n_requests {
        let pick =
            |rng: &mut SmallRng, from: &[&'static str]| from.choose(rng).copied().unwrap_or("");
        let (path, others) = (pick(&mut rng, &PATHS), pick(&mut rng, &OTHERS));
        let (accept, selector) = (pick(&mut rng, &ACCEPTS), selector(&mut rng));
        // Must delete nothing. A deletion uses `resourceVersion` as a precondition.
        let is_deletion = rng.random_bool(0.05) && !others.contains("resourceVersion");
        let (method, others) = if is_deletion {
            (Method::DELETE, format!("{others}&dryRun=All"))
        } else {
            (Method::GET, others.to_owned())
        };
        let uri = with(path, &selector, &others);
        let (theirs, ours) = futures::join!(
            answer(&mut theirs, &method, &uri, accept),
            answer(&mut ours, &method, &uri, accept)
        );
        *codes.entry(theirs["code"].as_u64().unwrap_or_default()).or_default() += 1;
        if theirs != ours {
            different.push(format!(
                "{method} {path}{others} {accept}\n  {selector}\n  {theirs}\n  {ours}"
            ));
        }
    }
    println!("sharded reads: {n_requests} requests, {codes:?}, {} different", different.len());
    for difference in &different {
        println!("{difference}");
    }
    assert!(codes.contains_key(&200) && codes.contains_key(&500), "{codes:?}");
    assert!(different.is_empty(), "{} answers differ", different.len());
}
