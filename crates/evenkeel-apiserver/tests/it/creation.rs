//! Resource versions in requests that create objects.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::Client;
use crate::custom::{WIDGETS, define};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const REFUSED: &str = "resourceVersion should not be set on objects to be created";

/// Resource versions that `strconv.ParseUint` refuses.
const NO_VERSIONS: [&str; 6] = ["abc", "+5", "-5", " 5", "5.0", "18446744073709551616"];

fn object(group: &str, kind: &str, metadata: Value) -> Value {
    let mut made = json!({"apiVersion": group, "kind": kind});
    made["metadata"] = metadata;
    made
}

fn named(collection: &str, metadata: Value) -> Value {
    match collection {
        WIDGETS => object("example.com/v1", "Widget", metadata),
        LEASES => object("coordination.k8s.io/v1", "Lease", metadata),
        _ => object("v1", "ConfigMap", metadata),
    }
}

async fn apply(client: &Client, path: &str, body: &Value) -> (StatusCode, Value) {
    let media = [("content-type", "application/apply-patch+yaml")];
    let answer = client.send("PATCH", path, &media, Bytes::from(body.to_string())).await;
    let code = answer.status();
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// Asserts that the created and the stored object have a new resource version.
async fn created(client: &Client, collection: &str, (code, made): (StatusCode, Value)) {
    assert_eq!(code, StatusCode::CREATED, "{made}");
    let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    assert!(version.parse::<u64>().is_ok_and(|version| version > 5), "{made}");
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    let stored = client.get(&format!("{collection}/{name}")).await;
    assert_eq!(stored["metadata"]["resourceVersion"], version);
}

#[tokio::test]
async fn a_post_refuses_a_version_and_ignores_what_is_none() {
    let client = Client::start().await;
    define(&client).await;
    for collection in [MAPS, LEASES, WIDGETS] {
        for (n, version) in ["", "0", "000"].iter().chain(&NO_VERSIONS).enumerate() {
            let body =
                named(collection, json!({"name": format!("a{n}"), "resourceVersion": version}));
            created(&client, collection, client.ask("POST", collection, body).await).await;
            let body = named(collection, json!({"generateName": "g", "resourceVersion": version}));
            created(&client, collection, client.ask("POST", collection, body).await).await;
        }
        for version in ["5", "007", "18446744073709551615"] {
            for name in [json!({"name": "b"}), json!({"name": "a0"}), json!({"generateName": "b"})]
            {
                let mut body = named(collection, name);
                body["metadata"]["resourceVersion"] = json!(version);
                let (code, refused) = client.ask("POST", collection, body).await;
                assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{refused}");
                assert_eq!(
                    (&refused["message"], &refused["reason"]),
                    (&json!(REFUSED), &Value::Null)
                );
            }
        }
        // The errors of the object come first.
        let body = named(collection, json!({"name": "No!", "resourceVersion": "5"}));
        let (code, refused) = client.ask("POST", collection, body).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    }
}

#[tokio::test]
async fn a_dry_run_of_a_post_answers_with_the_version_that_it_was_sent() {
    let client = Client::start().await;
    define(&client).await;
    for collection in [MAPS, WIDGETS] {
        for version in ["0", "5"].iter().chain(&NO_VERSIONS) {
            let body = named(collection, json!({"name": "a", "resourceVersion": version}));
            let (code, made) = client.ask("POST", &format!("{collection}?dryRun=All"), body).await;
            assert_eq!(code, StatusCode::CREATED, "{made}");
            assert_eq!(made["metadata"]["resourceVersion"], *version);
        }
        let (code, _) = client.ask("GET", &format!("{collection}/a"), Value::Null).await;
        assert_eq!(code, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_put_and_an_apply_that_create_take_any_version_that_is_one() {
    let client = Client::start().await;
    define(&client).await;
    for (n, version) in ["", "0", "5"].iter().enumerate() {
        let name = format!("a{n}");
        let body = named(LEASES, json!({"name": name, "resourceVersion": version}));
        let put = client.ask("PUT", &format!("{LEASES}/{name}"), body).await;
        created(&client, LEASES, put).await;
        for collection in [MAPS, WIDGETS] {
            let body = named(collection, json!({"name": name, "resourceVersion": version}));
            let path = format!("{collection}/{name}?fieldManager=m");
            created(&client, collection, apply(&client, &path, &body).await).await;
        }
    }
    for version in NO_VERSIONS {
        let why = if version.starts_with('1') { "value out of range" } else { "invalid syntax" };
        let want = json!(format!("strconv.ParseUint: parsing \"{version}\": {why}"));
        let metadata = json!({"name": "b", "resourceVersion": version});
        let put = client.ask("PUT", &format!("{LEASES}/b"), named(LEASES, metadata.clone())).await;
        assert_eq!((put.0, &put.1["message"]), (StatusCode::INTERNAL_SERVER_ERROR, &want));
        for collection in [MAPS, WIDGETS] {
            let path = format!("{collection}/b?fieldManager=m");
            let (code, refused) = apply(&client, &path, &named(collection, metadata.clone())).await;
            assert_eq!((code, &refused["message"]), (StatusCode::INTERNAL_SERVER_ERROR, &want));
        }
    }
}

#[tokio::test]
async fn a_put_and_an_apply_create_nothing_in_the_place_of_an_object_with_a_uid() {
    let client = Client::start().await;
    let metadata = json!({"name": "a", "uid": "u"});
    let put = client.ask("PUT", &format!("{LEASES}/a"), named(LEASES, metadata.clone())).await;
    assert_eq!(put.0, StatusCode::CONFLICT, "{}", put.1);
    let applied =
        apply(&client, &format!("{MAPS}/a?fieldManager=m"), &named(MAPS, metadata.clone())).await;
    assert_eq!(applied.0, StatusCode::CONFLICT, "{}", applied.1);
    let message = applied.1["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with(
            "uid mismatch: the provided object specified uid u, and no existing object was found"
        ),
        "{message}"
    );
    let (code, made) = client.ask("POST", MAPS, named(MAPS, metadata)).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_ne!(made["metadata"]["uid"], "u");
}

#[tokio::test]
async fn names_of_services_may_begin_with_a_digit_and_limits_need_none() {
    let client = Client::start().await;
    let (services, limits) =
        ("/api/v1/namespaces/default/services", "/api/v1/namespaces/default/limitranges");
    let spec = json!({"type": "ExternalName", "externalName": "a.example.com"});
    for (name, expected) in [("0", StatusCode::CREATED), ("A", StatusCode::UNPROCESSABLE_ENTITY)] {
        let mut service = object("v1", "Service", json!({"name": name}));
        service["spec"] = spec.clone();
        let (code, answer) = client.ask("POST", services, service).await;
        assert_eq!(code, expected, "{name}: {answer}");
    }
    let mut limit = object("v1", "LimitRange", json!({}));
    limit["spec"] = json!({"limits": [{"type": "Pod", "max": {"memory": "1Gi"}}]});
    let (code, made) = client.ask("POST", limits, limit.clone()).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert_eq!(made["metadata"]["name"].as_str().map(str::len), Some(36), "{made}");
    limit["metadata"]["generateName"] = json!("limits-");
    let (code, made) = client.ask("POST", limits, limit).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    assert!(made["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("limits-")));
}
