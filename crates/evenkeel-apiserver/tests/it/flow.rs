//! Limits of concurrent requests: seats, queues, 429, and the release of seats.

#![expect(clippy::disallowed_methods, reason = "requests of a test, which ends with them")]

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_apiserver::{Body, Builder, Server, Service, User};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::Service as _;

use crate::Client;

const FLOWCONTROL: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A body that never arrives: its request keeps its seat.
struct Never;

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

/// A body that panics when it is read.
struct Panics;

impl http_body::Body for Panics {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        panic!("this body cannot be read")
    }
}

fn post<B>(body: B) -> Request<B> {
    let request = Request::post(CONFIGMAPS).header("content-type", "application/json");
    request.body(body).expect("a request")
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::new(Bytes::new())).expect("a request")
}

async fn send<B>(service: &Service, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    service.clone().call(request).await.expect("it never fails")
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Starts a server. Returns it with a client of its administrator, and a service of a user who has all permissions but
/// is not exempt.
async fn start(builder: Builder) -> (Server, Client, Service) {
    let server = builder.build().await.expect("a server in memory");
    let admin = Client(server.service());
    let binding = json!({"metadata": {"name": "ann"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(admin.ask("POST", path, binding).await.0, StatusCode::CREATED);
    let ann = server.service_as(User::authenticated("ann", []));
    (server, admin, ann)
}

/// Creates a priority level for `ann`, with a queue of one request or without a queue.
async fn limit_ann(admin: &Client, queue: bool) -> [String; 2] {
    let response = if queue {
        json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 1}})
    } else {
        json!({"type": "Reject"})
    };
    let level = json!({"metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": response}}});
    let (code, level) =
        admin.ask("POST", &format!("{FLOWCONTROL}/prioritylevelconfigurations"), level).await;
    assert_eq!(code, StatusCode::CREATED, "{level}");
    let schema = json!({"metadata": {"name": "ann"}, "spec": {"matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "narrow"},
        "distinguisherMethod": {"type": "ByUser"}, "rules": [{
        "subjects": [{"kind": "User", "user": {"name": "ann"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]}]}});
    let (code, schema) = admin.ask("POST", &format!("{FLOWCONTROL}/flowschemas"), schema).await;
    assert_eq!(code, StatusCode::CREATED, "{schema}");
    // The controller observes them shortly afterwards.
    tokio::time::sleep(Duration::from_millis(1)).await;
    [schema, level].map(|object| object["metadata"]["uid"].as_str().expect("a uid").to_owned())
}

/// Returns the value of a metric.
async fn metric(admin: &Client, name: &str) -> String {
    let response = admin.send("GET", "/metrics", &[], Bytes::new()).await;
    let text = text(response).await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or("none").to_owned()
}

const ANN: &str = r#"{flow_schema="ann",priority_level="narrow""#;

#[tokio::test(start_paused = true)]
async fn a_level_without_queues_rejects_what_has_no_seat() {
    // One seat of 3: the shares of the server's own levels are 245.
    let (_server, admin, ann) = start(Server::builder().max_requests_in_flight(2, 1)).await;
    let [schema, level] = limit_ann(&admin, false).await;
    let held = tokio::spawn({
        let ann = ann.clone();
        async move { send(&ann, post(Never)).await.status() }
    });
    tokio::task::yield_now().await;
    for retry_after in ["1", "1"] {
        let response = send(&ann, get(CONFIGMAPS)).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        for (name, value) in [
            ("retry-after", retry_after),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
            ("x-kubernetes-pf-flowschema-uid", &schema),
            ("x-kubernetes-pf-prioritylevel-uid", &level),
        ] {
            assert_eq!(response.headers()[name], value, "{name}");
        }
        assert_eq!(text(response).await, "Too many requests, please try again later.\n");
    }
    // Other users are not affected, and the administrator never is.
    let bob = _server.service_as(User::authenticated("bob", []));
    assert_eq!(send(&bob, get(CONFIGMAPS)).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(admin.ask("GET", CONFIGMAPS, Value::Null).await.0, StatusCode::OK);
    let rejected = format!(
        "apiserver_flowcontrol_rejected_requests_total{ANN},reason=\"concurrency-limit\"}}"
    );
    assert_eq!(metric(&admin, &rejected).await, "2");
    let executing = format!("apiserver_flowcontrol_current_executing_requests{ANN}}}");
    assert_eq!(metric(&admin, &executing).await, "1");
    // The client leaves, and its seat is free again.
    held.abort();
    assert!(held.await.is_err());
    assert_eq!(metric(&admin, &executing).await, "0");
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_in_its_queue_for_a_quarter_of_its_time() {
    let (server, admin, ann) = start(Server::builder().max_requests_in_flight(2, 1)).await;
    limit_ann(&admin, true).await;
    let spawn = |request: Request<Full<Bytes>>| {
        let ann = ann.clone();
        tokio::spawn(async move {
            let begun = tokio::time::Instant::now();
            (send(&ann, request).await.status(), begun.elapsed())
        })
    };
    let held = tokio::spawn({
        let ann = ann.clone();
        async move { send(&ann, post(Never)).await.status() }
    });
    tokio::task::yield_now().await;
    let waits = spawn(get(&format!("{CONFIGMAPS}?timeout=8s")));
    tokio::task::yield_now().await;
    let waiting = format!("apiserver_flowcontrol_current_inqueue_requests{ANN}}}");
    assert_eq!(metric(&admin, &waiting).await, "1");
    // The queue holds one request.
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    let (code, waited) = waits.await.expect("an answer");
    assert_eq!((code, waited), (StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(2)));
    // The waiting request gets the seat when the other client disconnects.
    let waits = spawn(get(CONFIGMAPS));
    tokio::task::yield_now().await;
    held.abort();
    assert_eq!(waits.await.expect("an answer").0, StatusCode::OK);
    assert_eq!(metric(&admin, &waiting).await, "0");
    // A client that leaves its queue leaves no request behind.
    let held = tokio::spawn({
        let ann = server.service_as(User::authenticated("ann", []));
        async move { send(&ann, post(Never)).await.status() }
    });
    tokio::task::yield_now().await;
    let waits = spawn(get(CONFIGMAPS));
    tokio::task::yield_now().await;
    assert_eq!(metric(&admin, &waiting).await, "1");
    waits.abort();
    assert!(waits.await.is_err());
    assert_eq!(metric(&admin, &waiting).await, "0");
    // A request has a minute at most; then its seat is free.
    assert_eq!(held.await.expect("an answer"), StatusCode::GATEWAY_TIMEOUT);
    let terminated = |code: &str, verb: &str, scope: &str| {
        format!(
            "apiserver_request_terminations_total{{code=\"{code}\",component=\"apiserver\",group=\"\",resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}}"
        )
    };
    assert_eq!(metric(&admin, &terminated("504", "POST", "resource")).await, "1");
    assert_eq!(metric(&admin, &terminated("429", "LIST", "namespace")).await, "2");
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_answered_and_gives_its_seat_back() {
    let (_server, admin, ann) = start(Server::builder().max_requests_in_flight(2, 1)).await;
    limit_ann(&admin, false).await;
    for _ in 0..3 {
        let response = send(&ann, post(Panics)).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let status: Value = serde_json::from_str(&text(response).await).expect("a Status");
        assert_eq!(status["kind"], "Status");
        assert_eq!(
            status["message"],
            "This request caused apiserver to panic. Look in the logs for details."
        );
    }
    let executing = format!("apiserver_flowcontrol_current_executing_requests{ANN}}}");
    assert_eq!(metric(&admin, &executing).await, "0");
    let in_flight = "apiserver_current_inflight_requests{request_kind=\"mutating\"}";
    assert_eq!(metric(&admin, in_flight).await, "0");
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_a_seat_only_until_it_is_initialized() {
    let (_server, admin, ann) = start(Server::builder().max_requests_in_flight(2, 1)).await;
    limit_ann(&admin, false).await;
    let mut watches = Vec::new();
    for _ in 0..30 {
        let response = send(&ann, get(&format!("{CONFIGMAPS}?watch=1"))).await;
        assert_eq!(response.status(), StatusCode::OK);
        watches.push(response);
    }
    let executing = format!("apiserver_flowcontrol_current_executing_requests{ANN}}}");
    assert_eq!(metric(&admin, &executing).await, "0");
    // A write that all watchers receive occupies seats for a while after its response: here all seats, for 15 ms.
    let body = Full::new(Bytes::from_static(br#"{"metadata":{"name":"a"}}"#));
    assert_eq!(send(&ann, post(body)).await.status(), StatusCode::CREATED);
    let seats = format!("apiserver_flowcontrol_current_executing_seats{ANN}}}");
    assert_ne!(metric(&admin, &seats).await, "0");
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    tokio::time::sleep(Duration::from_millis(16)).await;
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::OK);
    drop(watches);
    let body = Full::new(Bytes::from_static(br#"{"metadata":{"name":"b"}}"#));
    assert_eq!(send(&ann, post(body)).await.status(), StatusCode::CREATED);
    assert_eq!(metric(&admin, &seats).await, "0");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_answer_keeps_its_seat_for_a_minute() {
    let (_server, admin, ann) = start(Server::builder().max_requests_in_flight(2, 1)).await;
    let data = json!({"a": "x".repeat(300 * 1024)});
    admin.make(CONFIGMAPS, json!({"metadata": {"name": "long"}, "data": data})).await;
    limit_ann(&admin, false).await;
    let executing = format!("apiserver_flowcontrol_current_executing_requests{ANN}}}");
    let in_flight = "apiserver_current_inflight_requests{request_kind=\"readOnly\"}";
    let one = format!("{CONFIGMAPS}/long");
    for path in [CONFIGMAPS, &one] {
        // The seat is free when the response is read, or its client disconnects.
        let read = text(send(&ann, get(path)).await).await;
        assert!(read.len() > 300 * 1024, "{path}: {}", read.len());
        drop(send(&ann, get(path)).await);
        assert_eq!(metric(&admin, &executing).await, "0");
        // The request for the metrics is in flight, too.
        assert_eq!(metric(&admin, in_flight).await, "1");
        let mut unread = send(&ann, get(path)).await;
        assert_eq!(unread.status(), StatusCode::OK);
        assert!(unread.body_mut().frame().await.expect("a frame").is_ok());
        assert_eq!(metric(&admin, in_flight).await, "2");
        for _ in 0..59 {
            assert_eq!(send(&ann, get(path)).await.status(), StatusCode::TOO_MANY_REQUESTS);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(metric(&admin, in_flight).await, "1");
        assert_eq!(send(&ann, get("/api/v1/namespaces/default")).await.status(), StatusCode::OK);
        assert!(unread.into_body().collect().await.is_err(), "{path} is cut off");
    }
    for (code, verb, scope, count) in [
        ("429", "LIST", "namespace", "59"),
        ("504", "LIST", "namespace", "1"),
        ("429", "GET", "resource", "59"),
        ("504", "GET", "resource", "1"),
    ] {
        let labels = format!(
            "group=\"\",resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\""
        );
        let name = format!(
            "apiserver_request_terminations_total{{code=\"{code}\",component=\"apiserver\",{labels}}}"
        );
        assert_eq!(metric(&admin, &name).await, count, "{name}");
        let name = format!("apiserver_request_aborts_total{{{labels}}}");
        assert_eq!(metric(&admin, &name).await, "1", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn seats_that_watchers_keep_wake_who_waits_for_them() {
    let (_server, admin, ann) = start(Server::builder().max_requests_in_flight(2, 1)).await;
    limit_ann(&admin, true).await;
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(send(&ann, get(&format!("{CONFIGMAPS}?watch=1"))).await);
    }
    let body = Full::new(Bytes::from_static(br#"{"metadata":{"name":"a"}}"#));
    assert_eq!(send(&ann, post(body)).await.status(), StatusCode::CREATED);
    let begun = tokio::time::Instant::now();
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::OK);
    assert!((5..10).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reads_and_writes_have_limits_of_their_own_without_fairness() {
    let builder = Server::builder().priority_and_fairness(false).max_requests_in_flight(0, 1);
    let (_server, admin, ann) = start(builder).await;
    let held = tokio::spawn({
        let ann = ann.clone();
        async move { send(&ann, post(Never)).await.status() }
    });
    tokio::task::yield_now().await;
    let body = || Full::new(Bytes::from_static(br#"{"metadata":{"generateName":"a"}}"#));
    let response = send(&ann, post(body())).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(!response.headers().contains_key("x-kubernetes-pf-flowschema-uid"));
    assert_eq!(send(&ann, get(CONFIGMAPS)).await.status(), StatusCode::OK);
    let made = admin.ask("POST", CONFIGMAPS, json!({"metadata": {"name": "by-admin"}})).await;
    assert_eq!(made.0, StatusCode::CREATED);
    held.abort();
    assert!(held.await.is_err());
    assert_eq!(send(&ann, post(body())).await.status(), StatusCode::CREATED);
}

#[tokio::test(start_paused = true)]
async fn schemas_tell_of_levels_that_are_missing() {
    let client = Client::start().await;
    let schema = json!({"metadata": {"name": "x"}, "spec": {"priorityLevelConfiguration": {"name": "none"}}});
    let (code, made) = client.ask("POST", &format!("{FLOWCONTROL}/flowschemas"), schema).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let found = client.get(&format!("{FLOWCONTROL}/flowschemas/x")).await;
    let condition = &found["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Dangling"), &json!("True")));
    assert_eq!(
        condition["message"],
        "This FlowSchema references the PriorityLevelConfiguration object named \"none\" but there is no such object"
    );
    let writers: Vec<&Value> = found["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| &entry["manager"])
        .collect();
    assert!(
        writers.contains(&&json!("api-priority-and-fairness-config-consumer-v1")),
        "{writers:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_servers_own_configuration_is_restored() {
    let client = Client::start().await;
    let [exempt, low] = ["flowschemas/exempt", "prioritylevelconfigurations/workload-low"]
        .map(|path| format!("{FLOWCONTROL}/{path}"));
    assert_eq!(client.ask("DELETE", &exempt, Value::Null).await.0, StatusCode::OK);
    let wider = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    assert_eq!(client.ask("PATCH", &low, wider.clone()).await.0, StatusCode::OK);
    // The schema is in effect even while its object is missing.
    assert_eq!(client.ask("GET", CONFIGMAPS, Value::Null).await.0, StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(client.get(&exempt).await["spec"]["matchingPrecedence"], 1);
    let shares = "/spec/limited/nominalConcurrencyShares";
    assert_eq!(client.get(&low).await.pointer(shares), Some(&json!(100)));
    // A user who wants to change it sets the annotation.
    let mut own = wider;
    own["metadata"] = json!({"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}});
    assert_eq!(client.ask("PATCH", &low, own).await.0, StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(client.get(&low).await.pointer(shares), Some(&json!(7)));
}
