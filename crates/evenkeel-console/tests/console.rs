//! The console of a cluster in this process: access, pages, switches, changes.

use bytes::Bytes;
use evenkeel_console::{
    Body, Console, ConsoleOptions, Planners, PreparedWhatIf, PreviewReports, Proceed, TimeControl,
    WhatIf, WhatIfChange, WhatIfProgress, WhatIfReport,
};
use evenkeel_runtime::{
    client::Client,
    clock::Clock,
    discovery::ServerResources,
    introspect::{ObjectReport, Subject},
    tasks::Tasks,
};
use evenkeel_scheduler::SchedulerOptions;
use evenkeel_test::TestCluster;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 7070);
const HOST: &str = "127.0.0.1:7070";

/// A console, and a browser with access.
struct Visit {
    console: Arc<Console>,
    cookie: String,
    stop: CancellationToken,
}

impl Visit {
    async fn start(cluster: &TestCluster, allows_writes: bool) -> Self {
        Self::by_clock(cluster, allows_writes, cluster.clock().clone()).await
    }

    /// Lets the console serve a port, and its open pages, until the visit stops.
    async fn serve(&self) -> Tasks {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let tasks = Tasks::new();
        tasks.spawn_finite("console", Arc::clone(&self.console).serve(listener, self.stop.clone()));
        tasks
    }

    /// Starts a console in a process with this clock.
    async fn by_clock(cluster: &TestCluster, allows_writes: bool, clock: Clock) -> Self {
        let plane = cluster.plane();
        plane.synced().await;
        // The default service account is created shortly afterwards.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let console = Console::new(ConsoleOptions {
            cluster: "test".to_owned(),
            kube: cluster.client(),
            anonymous: cluster.client_as("system:anonymous", []),
            clock,
            cluster_clock: cluster.clock().clone(),
            runtime: plane.runtime().clone(),
            caches: plane.caches().clone(),
            introspection: plane.introspection().clone(),
            registries: [&[plane.registry().clone()], plane.scheduler_registries()].concat(),
            node_faults: plane.node_faults().clone(),
            scheduler: Box::new(|| vec![SchedulerOptions::default()]),
            planners: Some(Arc::new(Scaling)),
            what_if: Some(Arc::new(Endless)),
            time_control: Some(Arc::new(FixedTime::default())),
            allows_writes,
        });
        let console = console.expect("a console");
        let mut visit = Self { console, cookie: String::new(), stop: CancellationToken::new() };
        visit.cookie = visit.enter().await;
        visit
    }

    /// Opens the URL with the token. Returns the cookie.
    async fn enter(&self) -> String {
        let url = self.console.url(SocketAddr::from(ADDRESS));
        let target = url.strip_prefix("http://127.0.0.1:7070").expect("its own URL");
        let entered = self.send(Method::GET, target, &[], "").await;
        assert_eq!(entered.status(), StatusCode::SEE_OTHER);
        assert_eq!(entered.headers()[header::LOCATION], "/");
        let cookie = entered.headers()[header::SET_COOKIE].to_str().expect("a cookie");
        cookie.split(';').next().unwrap_or_default().to_owned()
    }

    /// Returns a browser without a session, for the same console.
    fn other(&self) -> Self {
        let (console, stop) = (Arc::clone(&self.console), self.stop.clone());
        Self { console, cookie: String::new(), stop }
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

/// A planner that would scale a Deployment to a number that it reads.
struct Scaling;

/// Report of the planner, which reads with the client of the preview.
struct ScalingReports(Client);

impl Planners for Scaling {
    fn start<'a>(
        &'a self,
        kube: kube::Client,
        clock: &'a Clock,
        _: Arc<ServerResources>,
        _: &'a Subject,
    ) -> BoxFuture<'a, Result<Box<dyn PreviewReports>, String>> {
        let client = Client::builder(kube, clock.clone()).qps(-1.0).build();
        Box::pin(async move { Ok(Box::new(ScalingReports(client)) as Box<dyn PreviewReports>) })
    }
}

impl PreviewReports for ScalingReports {
    fn of<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Vec<ObjectReport>, String>> {
        Box::pin(async move {
            let path = format!("/apis/apps/v1/namespaces/{}/deployments", subject.namespace);
            let request = Request::get(&path).header("accept", "application/json");
            let request = request.body(Bytes::new()).expect("a request");
            let list = self.0.raw(request).await.map_err(|error| error.to_string())?;
            let list: Value = serde_json::from_slice(list.body()).expect("JSON");
            let found = list["items"].as_array().expect("items").iter();
            let replicas = found
                .filter(|item| item["metadata"]["name"] == *subject.name)
                .map(|item| item["spec"]["replicas"].to_string());
            Ok(vec![ObjectReport {
                controller: "scaling".to_owned(),
                object: subject.clone(),
                exists: true,
                would: replicas.map(|replicas| format!("scale to {replicas}")).collect(),
                ..ObjectReport::default()
            }])
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A simulator whose runs end when they are cancelled, or immediately if nothing is drained.
struct Endless;

struct EndlessRun(WhatIfChange);

impl WhatIf for Endless {
    fn prepare<'a>(
        &'a self,
        _: &'a Client,
        change: WhatIfChange,
    ) -> BoxFuture<'a, Result<Box<dyn PreparedWhatIf>, String>> {
        Box::pin(async move {
            if change.duration == "soon" {
                return Err("virtual time: no duration <soon>".to_owned());
            }
            Ok(Box::new(EndlessRun(change)) as Box<dyn PreparedWhatIf>)
        })
    }
}

impl PreparedWhatIf for EndlessRun {
    fn objects(&self) -> usize {
        if self.0.drain.contains(&"everything".to_owned()) { 50_001 } else { 7 }
    }

    fn run(self: Box<Self>, proceed: Proceed<'_>) -> Result<Option<WhatIfReport>, String> {
        if self.0.drain.is_empty() {
            let policy = "default-src 'none'; style-src 'unsafe-inline'";
            let html = format!(
                "<html><meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\"><body>the report"
            );
            return Ok(Some(WhatIfReport { html, summary: "Settled at once.".to_owned() }));
        }
        let hour = Duration::from_hours(1);
        while proceed(WhatIfProgress::Changed(hour / 4, hour)) {
            std::thread::yield_now();
        }
        Ok(None)
    }
}

/// A cluster's time that only records the requests.
#[derive(Default)]
struct FixedTime(Mutex<Vec<String>>);

impl TimeControl for FixedTime {
    fn speed(&self) -> f64 {
        60.0
    }

    fn remaining_jump(&self) -> Duration {
        let jumps = self.0.lock().expect("a lock").len();
        Duration::from_hours(6) * u32::try_from(jumps).expect("a number")
    }

    fn set_speed(&self, speed: &str) -> Result<(), String> {
        Err(format!("no speed {speed:?}"))
    }

    fn jump(&self, by: Duration) -> Result<(), String> {
        self.0.lock().expect("a lock").push(format!("{by:?}"));
        Ok(())
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
    // The script fills it when the cluster does not respond.
    assert!(overview.contains("<p id=\"lost\" class=\"lost\" role=\"alert\" hidden></p>"));
    assert!(overview.contains("<body data-cluster=\"test\" data-live=\"/\">"), "{overview}");
    let pods = visit.html("/objects?kind=pods").await;
    assert!(pods.contains(">huge</a>") && pods.contains(">Pending<"), "{pods}");
    assert!(pods.contains("<h1>Pods</h1>") && pods.contains("Pending <b>1</b>"), "{pods}");
    assert!(pods.find(">huge<") < pods.find(">web-"), "problems are first: {pods}");
    let running = visit.html("/objects?kind=pods&status=Running").await;
    assert!(running.contains(">web-") && !running.contains(">huge<"), "{running}");
    assert!(overview.contains("href=\"/objects?kind=pods&#38;status=Pending\""), "{overview}");
    assert!(overview.contains(">Deployments ready</a>"), "{overview}");
    // The API server refuses a selector that the cache would accept.
    assert_eq!(visit.page("/objects?kind=pods&labels=%3D").await.0, StatusCode::BAD_REQUEST);
    let node = visit.html("/object/core/v1/nodes/-/node-0").await;
    for part in ["<td class=\"n\">110</td>", "kind=pods&#38;node=node-0"] {
        assert!(node.contains(part), "{part}: {node}");
    }
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
    let place = |part: &str| huge.find(part).unwrap_or_else(|| panic!("{part} in {huge}"));
    assert!(
        place("it is not scheduled: 0/3 nodes") < place("<h2>Controllers</h2>"),
        "causes first"
    );
    assert!(place("Nothing to do: <a href=\"/controller/") > place("<h2>Controllers</h2>"));
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
async fn ages_are_in_the_clusters_time() {
    let cluster = TestCluster::start().await.expect("a cluster");
    // The cluster is ten hours ahead of the process.
    let behind = cluster.clock().now() - Duration::from_secs(36_000);
    let visit = Visit::by_clock(&cluster, false, Clock::starting_at(behind)).await;
    let containers = json!([{"name": "c", "image": "nginx"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
    create(&cluster, PODS, pod).await;
    tokio::time::sleep(Duration::from_secs(125)).await;
    let pages = [
        visit.html("/object/core/v1/pods/default/p").await,
        visit.html("/objects?kind=pods").await,
        visit.html("/events").await,
    ];
    for html in pages {
        assert!(html.contains(">2m ago<") || html.contains(">2m<"), "{html}");
        assert!(!html.contains("Z\">in "), "nothing is in the future: {html}");
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_sends_a_page_when_it_changes() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let visit = Visit::start(&cluster, false).await;
    let tasks = visit.serve().await;
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

#[tokio::test(start_paused = true)]
async fn each_browser_of_the_administrator_has_its_own_session() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let visit = Visit::start(&cluster, false).await;
    let tasks = visit.serve().await;
    let mut other = visit.other();
    other.cookie = other.enter().await;
    assert_ne!(visit.cookie, other.cookie);
    let log_out = async |visit: &Visit, token: &str| {
        let form = format!("token={token}");
        visit.send(Method::POST, "/logout", &ORIGIN, &form).await.status()
    };
    let token = token_of(&visit.html("/objects").await);
    assert_eq!(log_out(&other, &token).await, StatusCode::FORBIDDEN, "the form of another session");

    // The log-out ends one session, with its pages.
    let live = "/live?page=%2Fobjects";
    let mut of_visit = visit.send(Method::GET, live, &[], "").await.into_body();
    let mut of_other = other.send(Method::GET, live, &[], "").await.into_body();
    assert_eq!(log_out(&visit, &token).await, StatusCode::SEE_OTHER);
    assert_eq!(visit.page("/").await.0, StatusCode::UNAUTHORIZED, "the cookie is worth nothing");
    assert!(of_visit.frame().await.is_none(), "the stream ends");
    other.html("/").await;

    // An open page of a user does not count as a request. The administrator's session stays.
    let mut user = visit.other();
    let token = service_account(&cluster, "viewer", "view").await;
    assert_eq!(user.log_in(&token).await.0, StatusCode::SEE_OTHER);
    let mut of_user = user.send(Method::GET, live, &[], "").await.into_body();
    let left = cluster.clock().now();
    while of_user.frame().await.is_some() {}
    let open = Duration::try_from(cluster.clock().now().duration_since(left)).expect("later");
    assert!((3600..3700).contains(&open.as_secs()), "{open:?}");
    assert_eq!(user.page("/").await.0, StatusCode::UNAUTHORIZED);
    assert!(of_other.frame().await.is_some());
    other.html("/").await;

    // A session above the limit replaces the one that was idle for longest.
    let mut browsers = Vec::new();
    for _ in 0..32 {
        let mut browser = visit.other();
        browser.cookie = browser.enter().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        browsers.push(browser);
    }
    browsers[0].html("/objects").await;
    other.cookie = other.enter().await;
    let mut statuses = Vec::new();
    for browser in [&browsers[0], &browsers[1], &browsers[2], &other] {
        statuses.push(browser.page("/objects").await.0.as_u16());
    }
    assert_eq!(statuses, [200, 401, 200, 200]);
    // Many log-ins of one user end no session of another user, and one user does not take all streams.
    assert_eq!(user.log_in(&token).await.0, StatusCode::SEE_OTHER);
    let loud = service_account(&cluster, "loud", "view").await;
    let mut last = visit.other();
    for _ in 0..40 {
        last = visit.other();
        assert_eq!(last.log_in(&loud).await.0, StatusCode::SEE_OTHER);
    }
    user.html("/").await;
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..8 {
        let stream = last.send(Method::GET, live, &[], "").await;
        refused += usize::from(stream.status() == StatusCode::SERVICE_UNAVAILABLE);
        streams.push(stream);
    }
    assert_eq!(refused, 4, "four streams of one user");
    let of_other = other.send(Method::GET, live, &[], "").await;
    assert_eq!(of_other.status(), StatusCode::OK);
    drop((streams, of_other));
    // A browser that opens the URL again has one session.
    let mut again = visit.other();
    again.cookie = browsers[2].cookie.clone();
    again.cookie = again.enter().await;
    assert_eq!(browsers[2].page("/objects").await.0, StatusCode::UNAUTHORIZED);
    again.html("/objects").await;
    visit.stop.cancel();
    assert!(tasks.shut_down(Duration::from_secs(5)).await.is_empty(), "it stops in time");
    cluster.stop().await;
}

/// Creates a service account that has the cluster role in the namespace `default`, and returns its token.
async fn service_account(cluster: &TestCluster, name: &str, role: &str) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(cluster, accounts, json!({"metadata": {"name": name}})).await;
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "default"});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let binding = json!({"metadata": {"name": name}, "subjects": [subject], "roleRef": role});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    create(cluster, bindings, binding).await;
    let path = format!("{accounts}/{name}/token");
    let request = Request::post(path).header("content-type", "application/json");
    let day = json!({"spec": {"expirationSeconds": 86400}});
    let request = request.body(day.to_string().into_bytes()).expect("a request");
    let review: Value = cluster.client().request(request).await.expect("a token");
    review["status"]["token"].as_str().expect("a token").to_owned()
}

const ORIGIN: [(&str, &str); 1] = [("origin", "http://127.0.0.1:7070")];

impl Visit {
    /// Logs in with a token, as a browser does. Returns the status and the page.
    async fn log_in(&mut self, token: &str) -> (StatusCode, String) {
        let form = format!("bearer={token}");
        let response = self.send(Method::POST, "/login", &ORIGIN, &form).await;
        let status = response.status();
        if let Some(cookie) = response.headers().get(header::SET_COOKIE) {
            let cookie = cookie.to_str().expect("a cookie").to_owned();
            assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
            assert!(!cookie.contains(token), "the token stays in the server");
            self.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        }
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn refused(&self, target: &str, message: &str) {
        let (status, html) = self.page(target).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{target}: {html}");
        assert!(html.contains(message), "{message} in {target}: {html}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_sees_what_the_user_may_see() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let mut visit = Visit::start(&cluster, true).await;
    let containers = json!([{"name": "c", "image": "i"}]);
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": containers}});
    create(&cluster, PODS, pod).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"key": "hunter2"}});
    create(&cluster, "/api/v1/namespaces/default/secrets", secret).await;
    let token = service_account(&cluster, "viewer", "view").await;
    create(&cluster, "/api/v1/namespaces", json!({"metadata": {"name": "other"}})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let containers = json!([{"name": "c", "image": "i"}]);
    let pod = json!({"metadata": {"name": "foreign"}, "spec": {"containers": containers}});
    create(&cluster, "/api/v1/namespaces/other/pods", pod).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(
        visit.html("/objects?kind=pods").await.contains("foreign"),
        "the administrator sees it"
    );
    let administrator = std::mem::take(&mut visit.cookie);
    let user = "User system:serviceaccount:default:viewer may not";

    // Without a session, the log-in form is shown. The form's origin is checked.
    assert!(visit.html("/login").await.contains("name=\"bearer\""));
    for (headers, bearer, want) in [
        (&[][..], &*token, 403),
        (&[("origin", "http://evil.example")][..], &token, 403),
        (&ORIGIN[..], "guessed", 401),
        (&ORIGIN[..], "", 400),
        (&ORIGIN[..], "a%0d%0ab", 400),
    ] {
        let form = format!("bearer={bearer}");
        let response = visit.send(Method::POST, "/login", headers, &form).await;
        assert_eq!(response.status().as_u16(), want, "{headers:?} {bearer}");
        assert!(!response.headers().contains_key(header::SET_COOKIE), "{bearer}");
    }
    assert_eq!(visit.log_in(&token).await.0, StatusCode::SEE_OTHER);
    assert_ne!(visit.cookie, administrator);

    // The role allows these pages in its namespace.
    let pods = visit.html("/objects?kind=pods&namespace=default").await;
    assert!(pods.contains(">web</a>") && pods.contains("system:serviceaccount:default:viewer"));
    assert!(!pods.contains("foreign"), "a pod of another namespace: {pods}");
    let page = "/object/core/v1/pods/default/web";
    let web = visit.html(page).await;
    assert!(web.contains(&format!("{user} get /debug/controllers")), "{web}");
    assert!(!web.contains("id=\"explain\"") && web.contains("id=\"events\""), "{web}");
    assert!(visit.html("/events?namespace=default").await.contains("Scheduled"));
    let overview = visit.html("/").await;
    for part in [
        "list nodes.",
        "list pods.",
        "list deployments.apps.",
        "list statefulsets.apps.",
        "list jobs.batch.",
        "get /debug/controllers.",
        "get /metrics.",
    ] {
        assert!(overview.contains(&format!("{user} {part}")), "{part}: {overview}");
    }
    for part in ["id=\"controllers\"", "class=\"cell", "id=\"attention\"", "id=\"tiles\""] {
        assert!(!overview.contains(part), "{part}: {overview}");
    }

    // What it does not.
    visit.refused("/objects?kind=pods", &format!("{user} list pods. A ClusterRole")).await;
    visit.refused("/objects?kind=nodes", &format!("{user} list nodes.")).await;
    let target = "/objects?kind=pods&namespace=kube-system";
    visit.refused(target, &format!("{user} list pods in namespace kube-system.")).await;
    let target = "/object/core/v1/pods/other/foreign";
    visit.refused(target, &format!("{user} get pods foreign in namespace other.")).await;
    let target = "/object/core/v1/secrets/default/s";
    visit.refused(target, &format!("{user} get secrets s in namespace default.")).await;
    visit.refused("/pod/default/web/scheduling", &format!("{user} list nodes.")).await;
    let controllers = format!("{user} get /debug/controllers.");
    visit.refused("/controller/replicaset-controller", &controllers).await;
    visit.refused("/events", &format!("{user} list events.")).await;
    let form = format!(
        "token={}&namespace=default&name=web&annotation=sim.evenkeel.dev%2Frun-time&value=5s",
        token_of(&web)
    );
    let response = visit.send(Method::POST, "/switch", &ORIGIN, &form).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN, "a view role writes nothing");
    let web = get(&cluster, &format!("{PODS}/web")).await;
    assert_eq!(web["metadata"]["annotations"]["sim.evenkeel.dev/run-time"], Value::Null);

    // The permission for the path allows the reports of controllers. Without permission for pods, pages of nodes reveal nothing
    // about pods.
    let rules = json!([
        {"nonResourceURLs": ["/debug/controllers"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    ]);
    let role = json!({"metadata": {"name": "reports"}, "rules": rules});
    create(&cluster, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let subject = json!({"kind": "ServiceAccount", "name": "viewer", "namespace": "default"});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reports"});
    let binding = json!({"metadata": {"name": "reports"}, "subjects": [subject], "roleRef": role});
    create(&cluster, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    assert!(visit.html(page).await.contains("id=\"explain\""));
    visit.html("/controller/replicaset-controller").await;
    let overview = visit.html("/").await;
    assert!(overview.contains(">nodes Ready</a>"), "{overview}");
    for part in ["class=\"cell", "pods ready", "Deployments ready", "id=\"attention\""] {
        assert!(!overview.contains(part), "{part}: {overview}");
    }

    // The form of another session has no effect.
    let response = visit.send(Method::POST, "/logout", &ORIGIN, "token=guessed").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let live = visit.send(Method::GET, "/live?page=%2Fobjects", &[], "").await;
    let form = format!("token={}", token_of(&visit.html("/objects").await));
    let response = visit.send(Method::POST, "/logout", &ORIGIN, &form).await;
    assert_eq!(response.headers()[header::LOCATION], "/login");
    let cookie = response.headers()[header::SET_COOKIE].to_str().expect("a cookie");
    assert!(cookie.contains("=; ") && cookie.ends_with("; Max-Age=0"), "{cookie}");
    assert_eq!(visit.page(page).await.0, StatusCode::UNAUTHORIZED, "the cookie is worth nothing");
    drop(live);

    // A token ends with its account, and a session with an hour without a request.
    let token = service_account(&cluster, "leaver", "view").await;
    assert_eq!(visit.log_in(&token).await.0, StatusCode::SEE_OTHER);
    visit.html(page).await;
    tokio::time::sleep(Duration::from_secs(3500)).await;
    visit.html(page).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts/leaver";
    let request = Request::delete(accounts).body(Vec::new()).expect("a request");
    let _: Value = cluster.client().request(request).await.expect("deleted");
    let (status, html) = visit.page(page).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "{html}");
    assert!(html.contains("no longer valid") && html.contains("href=\"/login\""), "{html}");
    tokio::time::sleep(Duration::from_secs(3700)).await;
    let (status, html) = visit.page(page).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(!html.contains("no longer valid"), "the session has ended: {html}");

    // The administrator's session is separate, and continues.
    visit.cookie = administrator;
    let web = visit.html(page).await;
    assert!(web.contains("id=\"explain\"") && web.contains("Log in as another user"), "{web}");
    cluster.stop().await;
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(replicas: u32) -> Value {
    let labels = json!({"app": "web"});
    let containers = json!([{"name": "c", "image": "nginx"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let spec =
        json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn form_of(pairs: &[(&str, &str)]) -> String {
    let escape = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", escape(value)))
        .collect::<Vec<_>>()
        .join("&")
}

impl Visit {
    /// Sends a form. Returns the status, and the page.
    async fn post(&self, target: &str, pairs: &[(&str, &str)]) -> (u16, String) {
        let response = self.send(Method::POST, target, &ORIGIN, &form_of(pairs)).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_previewed_and_not_written() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let mut visit = Visit::start(&cluster, false).await;
    create(&cluster, DEPLOYMENTS, deployment(2)).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"key": "hunter2"}});
    create(&cluster, "/api/v1/namespaces/default/secrets", secret).await;
    let page = "/edit/apps/v1/deployments/default/web";
    let object = visit.html("/object/apps/v1/deployments/default/web").await;
    assert!(object.contains(&format!("href=\"{page}\"")), "{object}");
    let form = visit.html(page).await;
    assert!(form.contains("replicas: 2") && !form.contains("resourceVersion"), "{form}");
    assert!(!form.contains("data-live"), "the text stays: {form}");
    let token = token_of(&form);
    let text = deployment(5).to_string();
    let compare = async |visit: &Visit, text: &str| {
        visit.post(page, &[("token", &token), ("yaml", text)]).await
    };
    assert_eq!(visit.post(page, &[("token", "guessed"), ("yaml", &text)]).await.0, 403);
    let (status, html) = compare(&visit, &text).await;
    assert_eq!(status, 200, "{html}");
    for part in
        ["spec.replicas", "<del>2</del>", "<ins>5</ins>", "scale to 2", "scale to 5", "no longer"]
    {
        assert!(html.contains(part), "{part}: {html}");
    }
    let live = get(&cluster, &format!("{DEPLOYMENTS}/web")).await;
    assert_eq!(
        (&live["spec"]["replicas"], &live["metadata"]["generation"]),
        (&json!(2), &json!(1))
    );
    // The form and the API server refuse invalid edits, with the name of the field.
    let mut invalid = deployment(2);
    invalid["spec"]["replicas"] = json!(-1);
    let mut unknown = deployment(2);
    unknown["spec"]["nonsense"] = json!(1);
    for (text, want) in [
        (invalid.to_string(), "<dt>spec.replicas</dt>"),
        (unknown.to_string(), "spec.nonsense"),
        ("a: [".to_owned(), "This is no YAML"),
        (
            json!({"apiVersion": "apps/v1", "kind": "Job"}).to_string(),
            "kind: an edit cannot change it",
        ),
    ] {
        let (status, html) = compare(&visit, &text).await;
        assert_eq!(status, 200, "{html}");
        assert!(
            html.contains("The edit would be refused") && html.contains(want),
            "{want}: {html}"
        );
    }
    let (_, html) = compare(&visit, &live.to_string()).await;
    assert!(html.contains("Nothing would change"), "{html}");
    assert_eq!(visit.page("/edit/core/v1/secrets/default/s").await.0, StatusCode::NOT_FOUND);
    assert!(!visit.html("/object/core/v1/secrets/default/s").await.contains("/edit/"));
    // A user may preview edits of objects that the user may update.
    let token = service_account(&cluster, "viewer", "view").await;
    let (status, html) = visit.log_in(&token).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{html}");
    let token = token_of(&visit.html(page).await);
    let (status, html) = visit.post(page, &[("token", &token), ("yaml", &text)]).await;
    assert_eq!(status, 403, "{html}");
    assert!(html.contains("may not update deployments.apps web in namespace default"), "{html}");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_compared_with_the_scheduler() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let visit = Visit::start(&cluster, false).await;
    let pod = |zone: &str| {
        let containers = json!([{"name": "c", "image": "nginx"}]);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "gated", "namespace": "default"},
            "spec": {
                "containers": containers, "schedulingGates": [{"name": "example.com/wait"}],
                "nodeSelector": {"zone": zone},
            },
        })
    };
    let mut gated = pod("x");
    gated["spec"].as_object_mut().expect("a spec").remove("nodeSelector");
    create(&cluster, PODS, gated).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let page = "/edit/core/v1/pods/default/gated";
    let token = token_of(&visit.html(page).await);
    // The selector of a gated pod may become narrower.
    let mut text = get(&cluster, &format!("{PODS}/gated")).await;
    text["spec"]["nodeSelector"] = json!({"zone": "none"});
    let (status, html) = visit.post(page, &[("token", &token), ("yaml", &text.to_string())]).await;
    assert_eq!(status, 200, "{html}");
    for part in ["What the scheduler would do", "3 of 3 nodes are feasible", "NodeAffinity"] {
        assert!(html.contains(part), "{part}: {html}");
    }
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_ifs_run_one_at_a_time_until_they_are_cancelled() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let mut visit = Visit::start(&cluster, false).await;
    let page = visit.html("/what-if").await;
    assert!(page.contains("value=\"node-0\"") && page.contains("data-live"), "{page}");
    let token = token_of(&page);
    let start = async |pairs: &[(&str, &str)]| {
        visit.post("/what-if", &[&[("token", &*token)], pairs].concat()).await
    };
    // Errors are shown beside the fields, which keep their values.
    let (status, html) = start(&[("duration", "soon"), ("apply", "kind: <b>")]).await;
    assert_eq!(status, 200, "{html}");
    assert!(
        html.contains("no duration &#60;soon&#62;") && html.contains("kind: &#60;b&#62;"),
        "{html}"
    );
    let (_, html) = start(&[("drain", "everything")]).await;
    assert!(html.contains("50001 objects; the console copies at most 50000"), "{html}");
    // Without a change, the run ends by itself.
    assert_eq!(start(&[("duration", "1h")]).await.0, 303);
    let report = loop {
        let (status, html) = visit.page("/what-if/1").await;
        if status == StatusCode::OK {
            break html;
        }
        std::thread::yield_now();
    };
    assert!(report.contains("the report"), "{report}");
    let answer = visit.send(Method::GET, "/what-if/1", &[], "").await;
    let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
    assert_eq!(policy, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
    assert!(visit.html("/what-if").await.contains("href=\"/what-if/1\""));

    assert_eq!(start(&[("drain", "node-1"), ("drain", "node-2")]).await.0, 303);
    let running = visit.html("/what-if").await;
    assert!(
        running.contains("drain node-1, node-2; 1h") && running.contains("id=\"cancel-2\""),
        "{running}"
    );
    let (_, html) = start(&[]).await;
    assert!(html.contains("Another what-if runs"), "{html}");
    assert_eq!(visit.page("/what-if/2").await.0, StatusCode::NOT_FOUND, "it has no report");
    assert_eq!(visit.post("/what-if/cancel", &[("token", &token), ("run", "2")]).await.0, 303);
    while !visit.html("/what-if").await.contains("It was cancelled.") {
        std::thread::yield_now();
    }
    assert_eq!(visit.post("/what-if/cancel", &[("token", &token), ("run", "2")]).await.0, 409);

    let token = service_account(&cluster, "viewer", "view").await;
    visit.log_in(&token).await;
    for page in ["/what-if", "/what-if/1"] {
        visit.refused(page, "may not list *.*").await;
    }
    let token = token_of(&visit.html("/simulation").await);
    assert_eq!(visit.post("/what-if", &[("token", &token)]).await.0, 403);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_simulation_has_switches_for_time_and_faults() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let mut visit = Visit::start(&cluster, true).await;
    let page = visit.html("/simulation").await;
    assert!(page.contains("60x") && page.contains("No node has a fault."), "{page}");
    let token = token_of(&page);
    let post = async |visit: &Visit, what: &str, pairs: &[(&str, &str)]| {
        let target = format!("/simulation/{what}");
        visit.post(&target, &[&[("token", &*token)], pairs].concat()).await
    };
    assert_eq!(
        visit.post("/simulation/time", &[("token", "guessed"), ("jump", "6h")]).await.0,
        403
    );
    assert_eq!(post(&visit, "time", &[("jump", "+6h")]).await.0, 303);
    assert!(visit.html("/simulation").await.contains("jumps 6h00m00s ahead"));
    let (status, html) = post(&visit, "time", &[("jump", "soon")]).await;
    assert_eq!(status, 400, "{html}");
    let (status, html) = post(&visit, "time", &[("speed", "fast")]).await;
    assert_eq!((status, html.contains("no speed &#34;fast&#34;")), (400, true), "{html}");
    let fault = [("kind", "silent"), ("place", "node-1"), ("duration", "5m")];
    assert_eq!(post(&visit, "fault", &fault).await.0, 303);
    let annotation = async || {
        let node = get(&cluster, "/api/v1/nodes/node-1").await;
        node["metadata"]["annotations"]["sim.evenkeel.dev/silent"].clone()
    };
    assert!(annotation().await.as_str().is_some_and(|value| value.starts_with("until ")));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let page = visit.html("/simulation").await;
    assert!(page.contains("End silent of node-1") && page.contains("in 4m"), "{page}");
    let end = [("kind", "silent"), ("place", "node/node-1"), ("action", "end")];
    assert_eq!(post(&visit, "fault", &end).await.0, 303);
    assert_eq!(annotation().await, Value::Null);
    assert_eq!(post(&visit, "fault", &[("kind", "silent"), ("place", "zone/none")]).await.0, 400);
    assert_eq!(post(&visit, "behavior", &[("name", "none"), ("suspend", "true")]).await.0, 404);
    assert_eq!(post(&visit, "nothing", &[]).await.0, 404);

    // A user who may not patch nodes cannot begin a fault, and only the administrator can change the time.
    let bearer = service_account(&cluster, "viewer", "view").await;
    visit.log_in(&bearer).await;
    let page = visit.html("/simulation").await;
    assert!(page.contains("Only the cluster's administrator changes its time."), "{page}");
    let token = token_of(&page);
    for (what, pairs) in [
        ("time", [("jump", "6h"), ("a", "b")]),
        ("fault", [("kind", "silent"), ("place", "node-1")]),
    ] {
        let target = format!("/simulation/{what}");
        let (status, html) =
            visit.post(&target, &[&[("token", &*token)], &pairs[..]].concat()).await;
        assert_eq!(status, 403, "{html}");
    }
    // A read-only console has no forms, and accepts none.
    let reading = Visit::start(&cluster, false).await;
    let page = reading.html("/simulation").await;
    assert!(page.contains("This console only reads."), "{page}");
    let token = token_of(&page);
    assert_eq!(reading.post("/simulation/time", &[("token", &token), ("jump", "6h")]).await.0, 403);
    cluster.stop().await;
}
