//! One server on etcd.

use http::Method;
use serde_json::json;

use super::{MAPS, Sent, body, connect, map, sent, server, start_etcd, until, version, watch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_survive_a_restart_and_watches_resume() {
    let Some(etcd) = start_etcd() else { return };
    let first = server(&etcd.url).await;
    let mut client = connect(&first).await;
    let created = body(client.ask(&Sent::post(MAPS, map("a", json!({"n": "1"})))).await, 201);
    let path = format!("{MAPS}/a");
    assert_eq!(body(client.ask(&Sent::get(&path)).await, 200), created);
    assert_eq!(
        body(client.ask(&Sent::post(MAPS, map("a", json!({})))).await, 409)["reason"],
        "AlreadyExists"
    );

    let mut changed = created.clone();
    changed["data"]["n"] = json!("2");
    let updated = body(client.ask(&sent(Method::PUT, &path, changed.clone())).await, 200);
    assert_ne!(version(&updated), version(&created));
    // Nothing changes.
    let same = body(client.ask(&sent(Method::PUT, &path, updated.clone())).await, 200);
    assert_eq!(same, updated);
    assert_eq!(
        body(client.ask(&sent(Method::PUT, &path, changed)).await, 409)["reason"],
        "Conflict"
    );
    let patch = json!({"data": {"m": "3"}});
    let patched = body(client.ask(&sent(Method::PATCH, &path, patch)).await, 200);
    assert_eq!(patched["data"], json!({"n": "2", "m": "3"}));
    body(client.ask(&Sent::post(MAPS, map("b", json!({})))).await, 201);
    body(client.ask(&sent(Method::DELETE, &format!("{MAPS}/b"), json!(null))).await, 200);
    let list = body(client.ask(&Sent::get(MAPS)).await, 200);
    assert_eq!(list["items"].as_array().expect("items").len(), 1, "{list}");
    let old_list = body(
        client
            .ask(&Sent::get(&format!(
                "{MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
                version(&created)
            )))
            .await,
        200,
    );
    assert_eq!(old_list["items"][0]["data"], json!({"n": "1"}));

    drop((client, first));
    let second = server(&etcd.url).await;
    let mut client = connect(&second).await;
    assert_eq!(body(client.ask(&Sent::get(&path)).await, 200), patched);
    let mut events = watch(&second, &version(&created)).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let event = events.next().await.expect("an event");
        let text = |field: &serde_json::Value| field.as_str().unwrap_or_default().to_owned();
        seen.push((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
    }
    let expected = [("MODIFIED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "b")];
    assert_eq!(seen, expected.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_fail_while_etcd_does_not_answer() {
    let Some(etcd) = start_etcd() else { return };
    let server = server(&etcd.url).await;
    let mut client = connect(&server).await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(client.ask(&Sent::get(path)).await.code, 200, "{path}");
    }
    etcd.signal("-STOP");
    until("the checks fail", async || {
        let live = client.ask(&Sent::get("/livez/etcd")).await.code;
        let ready = client.ask(&Sent::get("/readyz/etcd-readiness")).await.code;
        live == 500 && ready == 500
    })
    .await;
    etcd.signal("-CONT");
    until("the checks pass again", async || client.ask(&Sent::get("/readyz")).await.code == 200)
        .await;
    body(client.ask(&Sent::post(MAPS, map("a", json!({})))).await, 201);
}
