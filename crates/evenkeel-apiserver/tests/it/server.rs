//! Information that the server returns about itself: flows, request IDs, components, warnings, and since when it tracks
//! tokens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_apiserver::{Clock, Server};
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::Client;

#[tokio::test]
async fn answers_say_what_flow_they_belong_to() {
    let client = Client::start().await;
    let uid = async |path: &str| {
        let object = client.get(&format!("/apis/flowcontrol.apiserver.k8s.io/v1/{path}")).await;
        object["metadata"]["uid"].as_str().expect("a uid").to_owned()
    };
    let exempt = (uid("flowschemas/exempt").await, uid("prioritylevelconfigurations/exempt").await);
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/none", "/version"] {
        let response = client.send("GET", path, &[], Bytes::new()).await;
        let header = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
        let is_exempt =
            (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"));
        assert_eq!(is_exempt, exempt, "{path}");
    }
}

#[tokio::test]
async fn every_answer_names_its_request() {
    let client = Client::start().await;
    let id = async |path: &str, headers: &[(&str, &str)]| {
        let response = client.send("GET", path, headers, Bytes::new()).await;
        let ids: Vec<_> = response.headers().get_all("audit-id").iter().collect();
        assert_eq!(ids.len(), 1, "{path}");
        ids[0].to_str().expect("text").to_owned()
    };
    let mut ids = Vec::new();
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/none", "/version", "/none"] {
        ids.push(id(path, &[]).await);
        ids.push(id(path, &[("audit-id", "")]).await);
        assert_eq!(id(path, &[("audit-id", "chosen")]).await, "chosen", "{path}");
    }
    assert!(ids.iter().all(|id| id.len() == 36), "{ids:?}");
    let number = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), number);
}

#[tokio::test]
async fn deprecated_versions_are_warned_of_whatever_is_done() {
    let client = Client::start().await;
    for (path, words) in [
        ("/api/v1/componentstatuses", "v1 ComponentStatus is deprecated in v1.19+"),
        (
            "/api/v1/namespaces/default/endpoints/none",
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ] {
        let response = client.send("GET", path, &[], Bytes::new()).await;
        assert_eq!(response.headers()["warning"], format!("299 - \"{words}\""), "{path}");
    }
}

#[tokio::test]
async fn refused_requests_are_warned_of_unknown_fields_too() {
    let client = Client::start().await;
    let path = "/api/v1/namespaces/default/services?fieldValidation=Warn";
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a", "bogus": 1},
        "spec": {"ports": [{"port": 0}]},
    });
    let headers = [("content-type", "application/json")];
    let response = client.send("POST", path, &headers, Bytes::from(body.to_string())).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let warning = "299 - \"unknown field \\\"metadata.bogus\\\"\"";
    assert_eq!(response.headers()["warning"], warning);
}

#[tokio::test]
async fn parts_of_the_control_plane_are_reported() {
    let server = Server::builder().build().await.expect("a server in memory");
    server.component("scheduler", || Err("it sleeps".to_owned()));
    let client = Client(server.service());
    let path = "/api/v1/componentstatuses";
    let list = client.get(path).await;
    assert_eq!(list["metadata"], json!({}));
    let shown: Vec<(&Value, &Value)> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| (&item["metadata"]["name"], &item["conditions"][0]))
        .collect();
    let condition = |status: &str, message: &str| json!({"type": "Healthy", "status": status, "message": message});
    assert_eq!(
        shown,
        [
            (&json!("etcd-0"), &condition("True", "ok")),
            (&json!("scheduler"), &condition("False", "it sleeps"))
        ]
    );
    let one = client.get(&format!("{path}/etcd-0")).await;
    assert_eq!(
        (&one["kind"], &one["conditions"][0]["status"]),
        (&json!("ComponentStatus"), &json!("True"))
    );
    assert_eq!(
        client.ask("GET", &format!("{path}/etcd-1"), Value::Null).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(start_paused = true)]
async fn the_day_since_when_tokens_are_tracked_is_kept() {
    let now = "2026-07-21T23:59:59Z".parse().expect("a time");
    let server = Server::builder().clock(Clock::new(move || now)).build().await.expect("a server");
    let client = Client(server.service());
    let path = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = async || client.get(path).await["data"]["since"].clone();
    assert_eq!(since().await, "2026-07-21");
    let until = async |wanted: Value| {
        for _ in 0..100 {
            if since().await == wanted {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("it stays {}", since().await);
    };
    client.ask("PATCH", path, json!({"data": {"since": "today"}})).await;
    until(json!("2026-07-21")).await;
    client.ask("DELETE", path, Value::Null).await;
    assert_eq!(since().await, Value::Null);
    tokio::time::advance(Duration::from_secs(30 * 60)).await;
    until(json!("2026-07-21")).await;
}

#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_while_the_server_runs() {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let now = Arc::new(Mutex::new(start));
    let server_time = now.clone();
    let clock = Clock::new(move || *server_time.lock().expect("no panic before"));
    let server = Server::builder().clock(clock).build().await.expect("a server in memory");
    let (before, mut renewals) = (server.kubeconfig("https://a"), server.renewals());
    *now.lock().expect("no panic before") = start + jiff::SignedDuration::from_hours(300 * 24);
    renewals.changed().await.expect("the server runs");
    assert_ne!(server.kubeconfig("https://a"), before);
}

/// The labels that kube-apiserver's metrics have for the same requests.
#[tokio::test]
async fn metrics_name_verb_scope_and_dry_run() {
    let client = Client::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let one = format!("{maps}/m");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let apply = [("content-type", "application/apply-patch+yaml")];
    let merge = [("content-type", "application/merge-patch+json")];
    for (method, path, headers) in [
        ("POST", maps.to_owned(), &[][..]),
        ("POST", format!("{maps}?dryRun=All"), &[]),
        ("POST", format!("{maps}?dryRun=x"), &[]),
        ("PATCH", format!("{one}?fieldManager=x"), &apply),
        ("PATCH", one.clone(), &merge),
        ("GET", one.clone(), &[]),
        ("HEAD", one.clone(), &[]),
        ("GET", maps.to_owned(), &[]),
        ("GET", format!("{maps}?fieldSelector=metadata.name=m"), &[]),
        ("GET", "/api/v1/configmaps".to_owned(), &[]),
        ("GET", format!("{maps}?watch=1&timeoutSeconds=1"), &[]),
        ("DELETE", one, &[]),
        ("DELETE", maps.to_owned(), &[]),
        ("GET", "/api/v1/namespaces/default/pods/none/log".to_owned(), &[]),
        ("POST", "/api/v1/namespaces/default/pods/none/eviction".to_owned(), &[]),
    ] {
        let body =
            if matches!(method, "POST" | "PATCH") { body.to_string().into() } else { Bytes::new() };
        client.send(method, &path, headers, body).await;
    }
    let response = client.send("GET", "/metrics", &[], Bytes::new()).await;
    let text = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&text);
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\"")).expect(name);
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let mut found: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter(|line| {
            line.contains("resource=\"configmaps\"") || line.contains("resource=\"pods\"")
        })
        .map(|line| {
            let labels = ["subresource", "verb", "scope", "dry_run"].map(|name| label(line, name));
            (labels.join(" "), line.rsplit(' ').next().unwrap_or_default().to_owned())
        })
        .collect();
    found.sort();
    let expected = [
        (" APPLY resource ", "1"),
        (" DELETE namespace ", "1"),
        (" DELETE resource ", "1"),
        (" GET resource ", "1"),
        // HEAD, which is refused.
        (" GET resource ", "1"),
        (" LIST cluster ", "1"),
        (" LIST namespace ", "2"),
        (" PATCH resource ", "1"),
        (" POST resource ", "1"),
        (" POST resource All", "1"),
        (" POST resource invalid", "1"),
        (" WATCH namespace ", "1"),
        ("eviction POST resource ", "1"),
        ("log CONNECT resource ", "1"),
    ];
    assert_eq!(found, expected.map(|(labels, count)| (labels.to_owned(), count.to_owned())));
}
