//! A request ends in one transaction: if its client disconnects, either all of its writes are stored or none.

use std::task::Poll;

use bytes::Bytes;
use evenkeel_apiserver::Server;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::Service as _;

use crate::Client;
use crate::webhook::{Identity, Webhook};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service(name: &str, kind: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}})
}

/// Polls a request `n_polls` times, each time after a wake-up, and drops it. Returns whether it ended before.
async fn cancelled(client: &Client, n_polls: usize, method: &str, path: &str, body: Value) -> bool {
    let method: Method = method.parse().expect("a method");
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = request.body(Full::new(bytes)).expect("a request");
    let mut service = client.0.clone();
    let mut answer = Box::pin(service.call(request));
    let mut left = n_polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match answer.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Waits until all staged writes are committed or refused, because commits are in order. Later reads then see the same
/// state.
async fn settle(client: &Client) {
    let marker = json!({"metadata": {"generateName": "settled-"}});
    client.make("/api/v1/namespaces/default/configmaps", marker).await;
}

/// Returns the names of the Services, the cluster IPs with their Services, and the used amounts of the quota.
async fn state(client: &Client) -> (Vec<String>, Vec<String>, Value) {
    let name = |item: &Value| item["metadata"]["name"].as_str().expect("a name").to_owned();
    let services = client.get(SERVICES).await;
    let services = services["items"].as_array().expect("a list");
    let own = services.iter().filter(|item| name(item) != "kubernetes");
    let addresses = client.get(ADDRESSES).await;
    let of = |item: &Value| {
        let parent = item["spec"]["parentRef"]["name"].as_str().expect("a parent").to_owned();
        let held = services.iter().find(|service| name(service) == parent).expect("it is there");
        assert_eq!(held["spec"]["clusterIP"], item["metadata"]["name"]);
        parent
    };
    let addresses = addresses["items"].as_array().expect("a list").iter().map(of);
    let addresses = addresses.filter(|parent| parent != "kubernetes").collect();
    let used = client.get(&format!("{QUOTAS}/q")).await["status"]["used"].clone();
    (own.map(name).collect(), addresses, used)
}

async fn with_quota(client: &Client) {
    let hard = json!({"services": "9", "services.nodeports": "9"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard},
        "status": {"hard": hard, "used": {"services": "0", "services.nodeports": "0"}}});
    client.make(QUOTAS, quota.clone()).await;
    assert_eq!(client.ask("PUT", &format!("{QUOTAS}/q/status"), quota).await.0, 200);
}

/// Drops a creation, two updates and a deletion after each number of polls. Cancelled requests are repeated.
async fn be_cancelled(client: &Client) {
    let path = format!("{SERVICES}/web");
    let external = json!({"type": "ExternalName", "externalName": "example.org",
        "ports": [{"port": 80}]});
    let used = |ports: &str| json!({"services": "1", "services.nodeports": ports});
    let none = json!({"services": "0", "services.nodeports": "0"});
    let web = || vec!["web".to_owned()];
    let mut ended = false;
    for n_polls in 0.. {
        if ended {
            return;
        }
        ended = true;
        let reset = json!({"status": {"used": none}});
        client.patch(&format!("{QUOTAS}/q/status"), "merge-patch+json", reset).await;
        let mut before = (vec![], vec![], none.clone());
        for (method, spec, after) in [
            ("POST", json!({"ports": [{"port": 80}]}), (web(), web(), used("0"))),
            (
                "PUT",
                json!({"type": "NodePort", "ports": [{"port": 80}]}),
                (web(), web(), used("1")),
            ),
            // Only the controller lowers the used amounts.
            ("PUT", external.clone(), (web(), vec![], used("1"))),
            (
                "PUT",
                json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
                (web(), web(), used("1")),
            ),
            ("DELETE", Value::Null, (vec![], vec![], used("1"))),
        ] {
            let mut body = match method {
                "POST" => json!({"metadata": {"name": "web"}}),
                "PUT" => client.get(&path).await,
                _ => Value::Null,
            };
            if !body.is_null() {
                body["spec"] = spec;
            }
            let path = if method == "POST" { SERVICES } else { &path };
            ended &= cancelled(client, n_polls, method, path, body.clone()).await;
            settle(client).await;
            let mut found = state(client).await;
            assert!(found == before || found == after, "{method}, {n_polls} polls: {found:?}");
            if found != after {
                let (code, answer) = client.ask(method, path, body).await;
                let done = matches!(code, StatusCode::NOT_FOUND | StatusCode::CONFLICT);
                assert!(code.is_success() || done, "{method}: {answer}");
                found = state(client).await;
            }
            assert_eq!(found, after, "{method}");
            before = after;
        }
    }
}

#[tokio::test]
async fn a_cancelled_request_leaves_all_or_nothing() {
    let client = Client::start().await;
    with_quota(&client).await;
    be_cancelled(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_leaves_all_or_nothing_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::builder().data_dir(Some(folder.path().to_owned())).build().await;
    let client = Client(server.expect("a new folder").service());
    with_quota(&client).await;
    be_cancelled(&client).await;
}

#[tokio::test]
async fn a_request_cancelled_in_a_webhook_leaves_nothing() {
    let client = Client::start().await;
    with_quota(&client).await;
    let identity = Identity::own(|_| ());
    let hook = Webhook::start(&identity, "/review", |review| {
        let uid = &review["request"]["uid"];
        let response = json!({"uid": uid, "allowed": true});
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        (StatusCode::OK, answer)
    });
    let hook = hook.await;
    for kind in ["mutating", "validating"] {
        let body = json!({"metadata": {"name": "w"}, "webhooks": [{"name": "w.example.org",
            "clientConfig": hook.config, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30, "rules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["services"], "operations": ["CREATE", "UPDATE"]}]}]});
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        client.make(&path, body).await;
    }
    be_cancelled(&client).await;
    assert!(!hook.take().is_empty());
}

/// Sends creations from threads of the runtime, and returns the codes of their responses.
async fn at_once(client: &Client, path: &'static str, bodies: Vec<Value>) -> Vec<StatusCode> {
    let create = |body: Value| {
        let client = Client(client.0.clone());
        async move { client.ask("POST", path, body).await.0 }
    };
    #[expect(clippy::disallowed_methods, reason = "they are awaited below")]
    let tasks: Vec<_> = bodies.into_iter().map(|body| tokio::spawn(create(body))).collect();
    let codes = futures::future::join_all(tasks).await;
    codes.into_iter().map(|code| code.expect("no panic")).collect()
}

/// Of Services that request the same port and address, one gets them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn services_made_at_once_share_nothing() {
    let client = Client::start().await;
    let cidr = json!({"metadata": {"name": "small"}, "spec": {"cidrs": ["10.97.0.0/28"]}});
    client.make("/apis/networking.k8s.io/v1/servicecidrs", cidr).await;
    for round in 0..8 {
        let named = |index: usize| {
            let mut body = service(&format!("named-{round}-{index}"), "NodePort");
            body["spec"]["ports"][0]["nodePort"] = json!(30_080 + round);
            body["spec"]["clusterIP"] = json!(format!("10.97.0.{}", round + 1));
            body
        };
        let codes = at_once(&client, SERVICES, (0..8).map(named).collect()).await;
        assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == 422).count(), 7, "{codes:?}");
    }
}

/// Of objects that are created concurrently, the server stores as many as the quota allows, and counts each.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn objects_made_at_once_stay_within_their_quota() {
    let client = Client::start().await;
    let name = "count/configmaps";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {name: "5"}},
        "status": {"hard": {name: "5"}, "used": {name: "0"}}});
    client.make(QUOTAS, quota.clone()).await;
    assert_eq!(client.ask("PUT", &format!("{QUOTAS}/q/status"), quota).await.0, 200);
    let map = |index: usize| json!({"metadata": {"name": format!("c{index}")}});
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let codes = at_once(&client, configmaps, (0..12).map(map).collect()).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 7, "{codes:?}");
    let used = client.get(&format!("{QUOTAS}/q")).await["status"]["used"].clone();
    assert_eq!(used, json!({name: "5"}));
}
