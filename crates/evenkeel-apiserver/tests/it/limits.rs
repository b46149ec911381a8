//! Limits of stored objects: the size of objects, and the age of events.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_apiserver::{Clock, Server};
use http::StatusCode;
use serde_json::{Value, json};

use crate::Client;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

#[tokio::test]
async fn a_body_beyond_three_mebibytes_is_refused() {
    let client = Client::start().await;
    let body = vec![b' '; 3 * 1024 * 1024 + 1];
    let media = [("content-type", "application/json")];
    let response = client.send("POST", CONFIGMAPS, &media, body.into()).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn an_object_that_etcd_would_refuse_is_refused() {
    let client = Client::start().await;
    let object = |name: &str, size: usize| json!({"metadata": {"name": name}, "revision": 1, "data": {"of": "x".repeat(size)}});
    let (code, answer) = client.ask("POST", REVISIONS, object("large", 1_600_000)).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert_eq!(answer["message"], "etcdserver: request is too large");
    assert_eq!(
        client.ask("GET", &format!("{REVISIONS}/large"), Value::Null).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        client.ask("POST", REVISIONS, object("small", 1_500_000)).await.0,
        StatusCode::CREATED
    );
    // Without its managedFields it fits.
    let mut data = serde_json::Map::new();
    for n in 0..14_000 {
        data.insert(format!("key-{n:05}-{}", "k".repeat(30)), "x".repeat(20).into());
    }
    let map = json!({"metadata": {"name": "managed"}, "data": data});
    let (code, made) = client.ask("POST", CONFIGMAPS, map).await;
    assert_eq!(code, StatusCode::CREATED, "{}", made["message"]);
    assert_eq!(made["metadata"].get("managedFields"), None);
}

#[tokio::test(start_paused = true)]
async fn events_expire_an_hour_after_they_were_last_written() {
    #[expect(clippy::disallowed_methods, reason = "the clock of a test")]
    let begun = tokio::time::Instant::now();
    let epoch: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let clock = Clock::new(move || {
        epoch + jiff::SignedDuration::try_from(begun.elapsed()).expect("a short time")
    });
    let server = Server::builder().clock(clock).build().await.expect("a server in memory");
    let client = Client(server.service());
    let event = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "default"}, "reason": "Test", "type": "Normal",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}})
    };
    for name in ["once", "twice"] {
        let (code, made) = client.ask("POST", EVENTS, event(name)).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
    }
    tokio::time::sleep(Duration::from_secs(3000)).await;
    let again = json!({"count": 2});
    assert_eq!(client.ask("PATCH", &format!("{EVENTS}/twice"), again).await.0, StatusCode::OK);
    let names = async || {
        let list = client.get(EVENTS).await;
        let items = list["items"].as_array().expect("a list");
        items.iter().map(|item| item["metadata"]["name"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names().await.len(), 2);
    let watch = client
        .send(
            "GET",
            &format!("{EVENTS}?watch=1&resourceVersion={}", server.revision()),
            &[],
            Bytes::new(),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(names().await, ["\"twice\""]);
    let events = crate::events(&mut watch.into_body()).await;
    assert_eq!(events[0]["type"], "DELETED");
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert_eq!(names().await, [""; 0]);
}

/// The clock panics around the time when an event expires: the task that deletes it fails repeatedly.
#[tokio::test(start_paused = true)]
async fn the_expiry_of_events_survives_panics_and_tells_of_them() {
    #[expect(clippy::disallowed_methods, reason = "the clock of a test")]
    let begun = tokio::time::Instant::now();
    let epoch: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let clock = Clock::new(move || {
        let passed = begun.elapsed();
        assert!(!(3595..3635).contains(&passed.as_secs()), "planted");
        epoch + jiff::SignedDuration::try_from(passed).expect("a short time")
    });
    let server = Server::builder().clock(clock).build().await.expect("a server in memory");
    let client = Client(server.service());
    let event = json!({"metadata": {"name": "e", "namespace": "default"}, "reason": "Test", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
    assert_eq!(client.ask("POST", EVENTS, event).await.0, StatusCode::CREATED);
    let check = async |path: &str| {
        let response = client.send("GET", path, &[], Bytes::new()).await;
        let (code, body) = (response.status(), response.into_body());
        let body = http_body_util::BodyExt::collect(body).await.expect("a body").to_bytes();
        (code.as_u16(), String::from_utf8_lossy(&body).into_owned())
    };
    assert_eq!(check("/readyz").await, (200, "ok".to_owned()));
    tokio::time::sleep(Duration::from_secs(3640)).await;
    let (code, reason) = check("/readyz/tasks").await;
    assert_eq!(code, 500);
    assert!(reason.contains(r#"task "expiry of events" failed: panic: planted"#), "{reason}");
    for path in ["/readyz", "/livez", "/healthz"] {
        let (code, text) = check(path).await;
        assert_eq!(code, 500, "{path}");
        assert!(text.contains("[-]tasks failed: reason withheld\n"), "{text}");
    }
    assert_eq!(client.get(EVENTS).await["items"].as_array().map(Vec::len), Some(1));
    // The task's backoff ends, and it deletes the events that expired meanwhile.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(client.get(EVENTS).await["items"], json!([]));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(check("/readyz").await, (200, "ok".to_owned()));
}
