//! Behavior of the server when parts of it fail.

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::Service as _;

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let content_type = match method {
        "PATCH" => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", content_type);
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = request.body(Full::new(body)).expect("a request");
    let response = server.service().call(request).await.expect("it never fails");
    let code = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
}

async fn panics(server: &Server) {
    let namespaces = "/api/v1/namespaces";
    assert_eq!(ask(server, "GET", "/livez", &Value::Null).await.0, 200);
    server.api.store.plant_panic();
    for name in ["a", "b"] {
        let made = json!({"metadata": {"name": name}});
        let (code, answer) = ask(server, "POST", namespaces, &made).await;
        assert_eq!(code, StatusCode::INSUFFICIENT_STORAGE, "{answer}");
    }
    let failure = server.failed().await;
    assert_eq!((&*failure.name, failure.reason.contains("planted")), ("store", true));
    for path in ["/livez", "/readyz", "/healthz", "/livez/tasks", "/readyz/etcd-readiness"] {
        let (code, text) = ask(server, "GET", path, &Value::Null).await;
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{path}: {text}");
    }
    assert_eq!(ask(server, "GET", &format!("{namespaces}/default"), &Value::Null).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_the_stores_thread_is_a_failure_of_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::builder().data_dir(Some(folder.path().to_owned())).build().await;
    panics(&server.expect("a new folder")).await;
}

#[tokio::test]
async fn a_panic_of_a_store_without_a_thread_is_one_too() {
    panics(&Server::builder().build().await.expect("a server in memory")).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_whose_conditions_were_refused_is_established_later() {
    let server = Server::builder().build().await.expect("a server in memory");
    let definition = definition_of("thing");
    let (code, made) = ask(&server, "POST", DEFINITIONS, &definition).await;
    server.api.store.refuse_writes(true);
    assert_eq!(code, StatusCode::CREATED, "{made}");
    let things = async || ask(&server, "GET", "/apis/example.com/v1/things", &Value::Null).await.0;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!is_established(&server, "thing").await);
    assert_eq!(things().await, StatusCode::NOT_FOUND, "what is not established is not served");
    server.api.store.refuse_writes(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_established(&server, "thing").await);
    assert_eq!(things().await, StatusCode::OK);
}

/// Clients create objects as soon as they read the condition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_established_is_served() {
    let server = Server::builder().build().await.expect("a server in memory");
    for round in 0..200 {
        let kind = format!("thing{round}");
        let (code, made) = ask(&server, "POST", DEFINITIONS, &definition_of(&kind)).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
        while !is_established(&server, &kind).await {
            tokio::task::yield_now().await;
        }
        let path = format!("/apis/example.com/v1/{kind}s");
        let (code, answer) = ask(&server, "GET", &path, &Value::Null).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
    }
}

#[tokio::test]
async fn a_server_that_tracks_no_field_managers_begins_with_the_first_apply() {
    let builder = Server::builder().tracks_field_managers(false);
    let server = builder.build().await.expect("a server in memory");
    let path = "/api/v1/namespaces/default/configmaps";
    let map = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": value}});
    let managers = |object: &Value| {
        let managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        managers.iter().map(|each| each["manager"].to_string()).collect::<Vec<_>>()
    };
    let (_, made) = ask(&server, "POST", path, &map("a")).await;
    assert!(managers(&made).is_empty(), "{made}");
    let (_, changed) = ask(&server, "PUT", &format!("{path}/m"), &map("b")).await;
    assert!(managers(&changed).is_empty(), "{changed}");
    let apply = format!("{path}/m?fieldManager=me&force=true");
    let (_, applied) = ask(&server, "PATCH", &apply, &map("c")).await;
    assert_eq!(managers(&applied), ["\"me\"", "\"before-first-apply\""], "{applied}");
}

/// Returns the definition of a cluster-wide kind of `example.com/v1`.
fn definition_of(kind: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    json!({"metadata": {"name": format!("{kind}s.example.com")}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": format!("{kind}s"), "kind": kind},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

async fn is_established(server: &Server, kind: &str) -> bool {
    let path = format!("{DEFINITIONS}/{kind}s.example.com");
    let (_, definition) = ask(server, "GET", &path, &Value::Null).await;
    definition["status"]["conditions"].as_array().is_some_and(|all| {
        all.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
    })
}

/// 300 watches in 40 formats use a bounded amount of memory, although clients read few of them.
#[tokio::test]
async fn watches_keep_a_bounded_history() {
    const FORMS: [&str; 5] = [
        "application/json",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
        "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        "application/vnd.kubernetes.protobuf",
    ];
    let server = Server::builder().build().await.expect("a server in memory");
    let mut watches = Vec::new();
    for n in 0..300 {
        let included = ["None", "Metadata", "Object", ""][n / 10 % 4];
        let path =
            format!("/api/v1/configmaps?watch=1&pretty={}&includeObject={included}", n / 5 % 2);
        let request = Request::get(path).header("accept", FORMS[n % 5]);
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let response = server.service().call(request).await.expect("it never fails");
        assert_eq!(response.status(), StatusCode::OK);
        watches.push(response.into_body());
    }
    let mut readers = watches.split_off(260);
    let path = "/api/v1/namespaces/default/configmaps";
    for round in 0..24 {
        for n in 0..10 {
            let data = json!({"k": format!("{round}-{n}-{}", "x".repeat(400_000))});
            let map = json!({"metadata": {"name": format!("m{n}")}, "data": data});
            let (method, path) = match round {
                0 => ("POST", path.to_owned()),
                _ => ("PUT", format!("{path}/m{n}")),
            };
            let (code, answer) = ask(&server, method, &path, &map).await;
            assert!(code.is_success(), "{answer}");
        }
        // Watches that fell behind the history end.
        readers.retain_mut(|watch| !matches!(watch.frame().now_or_never(), Some(None)));
        let held = server.api.store.held_by_events();
        assert!(held <= crate::store::MAX_BYTES, "{held} in round {round}");
    }
    // The store uses the whole limit.
    assert!(server.api.store.held_by_events() > crate::store::MAX_BYTES / 2);
}

/// A store at its size limit refuses writes that would make it larger, names the flag that raises the limit, and
/// recovers after deletions.
#[tokio::test]
async fn objects_beyond_the_quota_are_refused_until_others_are_deleted() {
    let server = Server::builder().quota_backend_bytes(2 << 20).build().await.expect("a server");
    let path = "/api/v1/namespaces/default/configmaps";
    let made = |name: &str| json!({"metadata": {"name": name}, "data": {"x": "x".repeat(900_000)}});
    assert_eq!(ask(&server, "POST", path, &made("a")).await.0, 201);
    let (code, answer) = ask(&server, "POST", path, &made("b")).await;
    let (code, answer) = match code {
        // What the server itself stores takes less than the rest.
        StatusCode::CREATED => ask(&server, "POST", path, &made("c")).await,
        _ => (code, answer),
    };
    assert_eq!(code, StatusCode::INSUFFICIENT_STORAGE, "{answer}");
    assert!(answer["message"].as_str().is_some_and(|why| why.contains("--quota-backend-bytes")));
    assert_eq!(ask(&server, "GET", "/readyz", &Value::Null).await.0, 200);
    assert_eq!(ask(&server, "GET", &format!("{path}/a"), &Value::Null).await.0, 200);
    assert_eq!(ask(&server, "DELETE", &format!("{path}/a"), &Value::Null).await.0, 200);
    assert_eq!(ask(&server, "POST", path, &made("c")).await.0, 201);
}
