//! The console of a cluster in this process: access, pages, switches, changes.

use bytes::Bytes;
use evenkeel_console::{Body, Console, ConsoleOptions};
use evenkeel_runtime::tasks::Tasks;
use evenkeel_scheduler::SchedulerOptions;
use evenkeel_test::TestCluster;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 7070);
const HOST: &str = "127.0.0.1:7070";

/// A console, and a browser that is let in.
struct Visit {
    console: Arc<Console>,
    cookie: String,
    stop: CancellationToken,
}

impl Visit {
    async fn start(cluster: &TestCluster, allows_writes: bool) -> Self {
        let plane = cluster.plane();
        plane.synced().await;
        // The default service account exists some moments later.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let console = Console::new(ConsoleOptions {
            cluster: "test".to_owned(),
            kube: cluster.client(),
            clock: cluster.clock().clone(),
            caches: plane.caches().clone(),
            introspection: plane.introspection().clone(),
            registries: vec![plane.registry().clone(), plane.scheduler_registry().clone()],
            scheduler: Box::new(SchedulerOptions::default),
            allows_writes,
        });
        let console = console.expect("a console");
        let mut visit = Self { console, cookie: String::new(), stop: CancellationToken::new() };
        let url = visit.console.url(SocketAddr::from(ADDRESS));
        let target = url.strip_prefix("http://127.0.0.1:7070").expect("its own URL");
        let entered = visit.send(Method::GET, target, &[], "").await;
        assert_eq!(entered.status(), StatusCode::SEE_OTHER);
        assert_eq!(entered.headers()[header::LOCATION], "/");
        let cookie = entered.headers()[header::SET_COOKIE].to_str().expect("a cookie");
        visit.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        visit
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        form: &str,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(target);
        let known = [("host", HOST), ("cookie", &*self.cookie)];
        for (name, value) in known.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let request = request.body(Bytes::from(form.to_owned())).expect("a request");
        self.console.answer(SocketAddr::from(ADDRESS), request, &self.stop).await
    }

    async fn page(&self, target: &str) -> (StatusCode, String) {
        let response = self.send(Method::GET, target, &[], "").await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn html(&self, target: &str) -> String {
        let (status, html) = self.page(target).await;
        assert_eq!(status, StatusCode::OK, "{target}: {html}");
        html
    }
}

async fn create(cluster: &TestCluster, path: &str, object: Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).expect("a request");
    let _: Value = cluster.client().request(request).await.expect(path);
}

async fn get(cluster: &TestCluster, path: &str) -> Value {
    let request = Request::get(path).body(Vec::new()).expect("a request");
    cluster.client().request(request).await.expect(path)
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn strangers_are_refused_and_every_answer_is_protected() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let mut visit = Visit::start(&cluster, false).await;
    let cookie = std::mem::take(&mut visit.cookie);
    for target in ["/", "/events", "/live?page=/", "/object/core/v1/secrets/default/s"] {
        let (status, html) = visit.page(target).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{target}");
        assert!(html.contains("evenkeel console"), "the way in: {html}");
    }
    assert_eq!(visit.page("/assets/console.css").await.0, StatusCode::OK, "the same for everybody");
    visit.cookie = cookie;
    let request =
        Request::get("/").header("host", "evil.example:7070").header("cookie", &visit.cookie);
    let request = request.body(Bytes::new()).expect("a request");
    let answer = visit.console.answer(SocketAddr::from(ADDRESS), request, &visit.stop).await;
    assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST, "rebinding of names");
    for target in ["/", "/nothing", "/assets/console.js"] {
        let answer = visit.send(Method::GET, target, &[], "").await;
        let headers = answer.headers();
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{target}: {policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers[header::X_FRAME_OPTIONS], "DENY", "{target}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{target}");
        assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN), "{target}");
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pages_show_the_cluster_without_secrets_and_scripts() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let visit = Visit::start(&cluster, false).await;
    let hostile = "<script>alert(1)</script>\"'>";
    let containers =
        json!([{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "64"}}}]);
    let pod = json!({
        "metadata": {"name": "huge", "annotations": {"note": hostile, "sim.evenkeel.dev/run-time": hostile}},
        "spec": {"containers": containers},
    });
    create(&cluster, PODS, pod).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"key": "hunter2"}});
    create(&cluster, "/api/v1/namespaces/default/secrets", secret).await;
    let selector = json!({"matchLabels": {"app": "web"}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    let spec = json!({"replicas": 2, "selector": selector, "template": template});
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    create(&cluster, "/apis/apps/v1/namespaces/default/deployments", deployment).await;
    tokio::time::sleep(Duration::from_secs(30)).await;

    let overview = visit.html("/").await;
    assert_eq!(overview.matches("class=\"cell ready").count(), 3, "{overview}");
    let pods = visit.html("/objects?kind=pods").await;
    assert!(pods.contains(">huge</a>") && pods.contains(">Pending<"), "{pods}");
    let web = visit.html("/object/apps/v1/deployments/default/web").await;
    for part in [
        "deployment-controller",
        "ReplicaSet default/web-",
        "Pod default/web-",
        "ScalingReplicaSet",
    ] {
        assert!(web.contains(part), "{part}: {web}");
    }
    let scheduling = visit.html("/pod/default/huge/scheduling").await;
    for part in ["NodeResourcesFit", "Insufficient cpu", "0/3 nodes are available", "refuses"] {
        assert!(scheduling.contains(part), "{part}: {scheduling}");
    }
    let secret = visit.html("/object/core/v1/secrets/default/s").await;
    assert!(secret.contains("(not shown)"), "{secret}");
    for hidden in ["hunter2", "aHVudGVyMg"] {
        assert!(!secret.contains(hidden), "{hidden}");
    }
    let huge = visit.html("/object/core/v1/pods/default/huge").await;
    assert!(huge.contains("&#60;script&#62;alert(1)"), "{huge}");
    assert!(huge.contains("FailedScheduling") && !huge.contains("action=\"/switch\""), "{huge}");
    let (events, controllers) =
        (visit.html("/events").await, visit.html("/controller/replicaset-controller").await);
    assert!(
        events.contains("FailedScheduling")
            && controllers.contains("update status of ReplicaSet default/web-"),
        "{controllers}"
    );
    for html in
        [overview, pods, web, scheduling, huge, events, controllers, visit.html("/objects").await]
    {
        assert_eq!(html.matches("<script").count(), 1, "the console's own: {html}");
        assert!(!html.contains(" style=") && !html.contains(" onclick="), "{html}");
    }
    for missing in [
        "/object/core/v1/pods/default/nobody",
        "/object/core/v1/nothings/default/x",
        "/objects?kind=nothings",
        "/pod/default/nobody/scheduling",
        "/controller/nobody",
        "/nothing",
    ] {
        let (status, html) = visit.page(missing).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{missing}: {html}");
    }
    cluster.stop().await;
}

fn token_of(html: &str) -> String {
    let rest = html.split("name=\"token\" value=\"").nth(1).expect("a form");
    rest.split('"').next().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn switches_need_the_flag_the_origin_and_the_token() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let visit = Visit::start(&cluster, true).await;
    let node = "/object/core/v1/nodes/-/node-0";
    let token = token_of(&visit.html(node).await);
    let form = |token: &str, name: &str| {
        format!(
            "token={token}&namespace=&name={name}&annotation=sim.evenkeel.dev%2Fsilent&value=true"
        )
    };
    let own = [("origin", "http://127.0.0.1:7070")];
    let post = async |headers: &[(&str, &str)], form: String| {
        visit.send(Method::POST, "/switch", headers, &form).await.status().as_u16()
    };
    assert_eq!(post(&[], form(&token, "node-0")).await, 403, "no origin");
    assert_eq!(post(&[("origin", "http://evil.example")], form(&token, "node-0")).await, 403);
    assert_eq!(post(&own, form("guessed", "node-0")).await, 403);
    assert_eq!(post(&own, form(&token, "")).await, 400);
    assert_eq!(post(&own, form(&token, "nobody")).await, 404);
    let path = "/api/v1/nodes/node-0";
    let annotations = async || get(&cluster, path).await["metadata"]["annotations"].clone();
    assert_eq!(annotations().await["sim.evenkeel.dev/silent"], Value::Null, "nothing was written");
    assert_eq!(post(&own, form(&token, "node-0")).await, 303);
    assert_eq!(annotations().await["sim.evenkeel.dev/silent"], "true");
    assert!(visit.html(node).await.contains("aria-pressed=\"true\""));

    // The same form on a console that only reads: its token is right, and nothing is written.
    let reading = Visit::start(&cluster, false).await;
    assert!(!reading.html(node).await.contains("/switch"));
    let refused = reading.send(Method::POST, "/switch", &own, &form(&token, "node-1")).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_sends_a_page_when_it_changes() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let visit = Visit::start(&cluster, false).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let tasks = Tasks::new();
    tasks.spawn_finite("console", Arc::clone(&visit.console).serve(listener, visit.stop.clone()));
    let live = "/live?page=%2Fobjects%3Fkind%3Dpods";
    let mut body = visit.send(Method::GET, live, &[], "").await.into_body();
    let mut next = async || {
        let frame = body.frame().await?.expect("no error");
        let data = frame.into_data().expect("data");
        Some(String::from_utf8_lossy(&data).into_owned())
    };
    let first = next().await.expect("a frame");
    assert!(first.starts_with("event: content\ndata: \"") && first.ends_with("\"\n\n"), "{first}");
    assert_eq!(first.matches('\n').count(), 3, "one line of data: {first}");
    create(
        &cluster,
        PODS,
        json!({"metadata": {"name": "new"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
    .await;
    let mut changed = next().await.expect("a frame");
    while !changed.contains(">new</a>") {
        changed = next().await.expect("a frame");
    }
    let streams =
        futures::future::join_all((0..20).map(|_| visit.send(Method::GET, live, &[], ""))).await;
    let refused = streams.iter().filter(|s| s.status() == StatusCode::SERVICE_UNAVAILABLE).count();
    assert_eq!(refused, 5, "sixteen streams at once");
    drop(streams);
    visit.stop.cancel();
    while next().await.is_some() {}
    assert!(tasks.shut_down(Duration::from_secs(5)).await.is_empty(), "it stops in time");
    cluster.stop().await;
}
