//! The consoles of the controller manager and of the scheduler, over TLS like a browser: they serve nothing without the flag or
//! without a log-in, and show each user only objects that RBAC allows.

use crate::{
    cluster::{Cluster, WAIT_TIMEOUT, condition},
    forbidden::USER,
    objects::{deployment, pod},
    program::{Embedded, POLL_INTERVAL, Program, Watcher, free_port},
};
use evenkeel_runtime::client;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const MANAGER: &str = env!("CARGO_BIN_EXE_kube-controller-manager");
const SCHEDULER: &str = env!("CARGO_BIN_EXE_kube-scheduler");

const CONTROLLERS: &str =
    "--controllers=serviceaccount-controller,deployment-controller,replicaset-controller";

/// An API server, a folder, and the kubeconfig of a user with all permissions.
struct Scene {
    embedded: Embedded,
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

/// A program with its secure port, and the port of its console.
struct Running {
    program: Program,
    secure: u16,
    console: u16,
}

impl Scene {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let embedded = Embedded::start().await;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, embedded.server.kubeconfig(&embedded.url)).expect("a file");
        Self { embedded, folder, kubeconfig }
    }

    fn cluster(&self) -> &Cluster {
        &self.embedded.cluster
    }

    fn admin(&self) -> &str {
        self.embedded.server.admin_token()
    }

    /// Starts a program with its console. Its log is in a folder of this name.
    async fn run(&self, binary: &str, name: &str, more: &[&str]) -> Running {
        let console = free_port();
        let flag = format!("--console-bind-address=127.0.0.1:{console}");
        let (program, secure) = self.start_program(binary, name, more, &[&flag]).await;
        Running { program, secure, console }
    }

    async fn start_program(
        &self,
        binary: &str,
        name: &str,
        more: &[&str],
        console: &[&str],
    ) -> (Program, u16) {
        let port = free_port();
        let kubeconfig = |flag: &str| format!("--{flag}={}", self.kubeconfig.display());
        let mut arguments = vec![
            kubeconfig("kubeconfig"),
            kubeconfig("authentication-kubeconfig"),
            kubeconfig("authorization-kubeconfig"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        arguments.extend(more.iter().chain(console).map(|&argument| argument.to_owned()));
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let mut program = Program::start(binary, &arguments, &folder);
        program.serves(self.cluster(), port).await;
        (program, port)
    }

    /// Grants these permissions to [`USER`] by a ClusterRole of this name.
    async fn grant(&self, name: &str, rules: Value) {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": name});
        let role = json!({"metadata": metadata, "rules": rules});
        self.cluster().create(&format!("{RBAC}/clusterroles"), role).await;
        let binding = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        });
        self.cluster().create(&format!("{RBAC}/clusterrolebindings"), binding).await;
    }

    async fn stop(self) {
        self.embedded.serving.stop().await;
    }
}

/// A page in a response.
#[derive(Debug)]
struct Page {
    status: StatusCode,
    headers: HeaderMap,
    html: String,
}

impl Page {
    /// Asserts that the page has these parts.
    fn has(self, parts: &[&str]) -> Self {
        assert_eq!(self.status, StatusCode::OK, "{}", self.html);
        for part in parts {
            assert!(self.html.contains(part), "{part} in {}", self.html);
        }
        self
    }

    /// Asserts that the page has none of these parts.
    fn lacks(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(!self.html.contains(part), "{part} in {}", self.html);
        }
        self
    }

    fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.html);
        self
    }
}

/// A browser at the console of a program.
struct Browser {
    kube: kube::Client,
    port: u16,
    cookie: String,
}

impl Browser {
    fn new(port: u16) -> Self {
        let url = format!("https://127.0.0.1:{port}").parse().expect("a URL");
        let mut config = kube::Config::new(url);
        // The certificate is self-signed and exists only in the program's memory.
        config.accept_invalid_certs = true;
        Self { kube: client::transport(&config).expect("a transport"), port, cookie: String::new() }
    }

    /// Logs in with a token, and returns the browser of the session.
    async fn of(port: u16, token: &str) -> Self {
        let mut browser = Self::new(port);
        let page = browser.log_in(token).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        browser
    }

    async fn send(&self, method: Method, target: &str, form: String) -> Page {
        let mut request = Request::builder().method(method.clone()).uri(target);
        if !self.cookie.is_empty() {
            request = request.header(header::COOKIE, &self.cookie);
        }
        if method == Method::POST {
            request = request.header(header::ORIGIN, format!("https://127.0.0.1:{}", self.port));
        }
        let request = request.body(Body::from(form.into_bytes())).expect("a request");
        let answer = self.kube.send(request).await.unwrap_or_else(|e| panic!("{target}: {e}"));
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let html = String::from_utf8_lossy(&bytes).into_owned();
        Page { status: parts.status, headers: parts.headers, html }
    }

    async fn get(&self, target: &str) -> Page {
        self.send(Method::GET, target, String::new()).await
    }

    async fn log_in(&mut self, token: &str) -> Page {
        let page = self.send(Method::POST, "/login", format!("bearer={token}")).await;
        if let Some(cookie) = page.headers.get(header::SET_COOKIE) {
            let cookie = cookie.to_str().expect("text");
            self.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        }
        page
    }

    /// Waits until a page meets a condition.
    async fn until(&self, cluster: &Cluster, target: &str, is_so: impl Fn(&str) -> bool) -> Page {
        let deadline = cluster.clock().now() + WAIT_TIMEOUT;
        loop {
            let page = self.get(target).await;
            if is_so(&page.html) {
                return page;
            }
            assert!(cluster.clock().now() < deadline, "{target} stays {}", page.html);
            cluster.sleep(POLL_INTERVAL).await;
        }
    }
}

/// Asserts that an unauthenticated client sees only the log-in page, and that a wrong token is refused.
async fn strangers_see_nothing(running: &Running, secrets: &[&str], name: &str) {
    let mut stranger = Browser::new(running.console);
    let objects = "/object/apps/v1/deployments/default/web";
    for target in
        ["/", "/objects", "/events", "/pending", "/live?page=%2F", "/controller/x", objects]
    {
        let page = stranger.get(target).await.is(401).lacks(secrets);
        assert!(page.html.contains("Bearer token of the API") && page.html.contains(name));
        assert!(!page.html.contains("<nav"), "{target}: {}", page.html);
        assert!(page.headers[header::CONTENT_SECURITY_POLICY].to_str().is_ok());
    }
    stranger.get("/assets/console.css").await.is(200);
    for wrong in ["guessed", "a.b.c", "", "two%20words"] {
        let page = stranger.log_in(wrong).await;
        assert!(page.status == 401 || page.status == 400, "{wrong}: {}", page.html);
        assert!(!page.headers.contains_key(header::SET_COOKIE), "{wrong}");
    }
    stranger.get("/").await.is(401);
    // A page of another origin cannot log the browser in.
    let request = Request::post("/login").header(header::ORIGIN, "https://evil.example");
    let request = request.body(Body::from(b"bearer=x".to_vec())).expect("a request");
    let answer = stranger.kube.send(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

/// Returns the names of the program's caches from its metrics.
async fn caches(running: &Running, token: &str) -> Vec<String> {
    let metrics = Watcher::with_token(running.secure, token).text("/metrics").await;
    let name = "informer_store_resource_version{";
    let caches = metrics.lines().filter_map(|line| line.strip_prefix(name)?.split('}').next());
    let mut caches: Vec<String> = caches.map(str::to_owned).collect();
    caches.sort();
    caches
}

/// Returns the token of a page's form.
fn form_token(html: &str) -> String {
    let rest = html.split("name=\"token\" value=\"").nth(1).expect("a form");
    rest.split('"').next().unwrap_or_default().to_owned()
}

fn is_without_token(log: &str, scene: &Scene) {
    assert!(log.contains("Serving the console"), "{log}");
    assert!(!log.contains(scene.admin()), "the token is logged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_manager_shows_each_user_what_rbac_allows() {
    let scene = Scene::start().await;
    let cluster = scene.cluster();
    let arguments = [CONTROLLERS, "--leader-elect=false", "--controller-start-interval=0s"];
    let running = scene.run(MANAGER, "manager", &arguments).await;
    let namespace = cluster.namespace("console").await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    namespace.until("deployments/web", |web| web["status"]["replicas"] == 2).await;
    let before = caches(&running, scene.admin()).await;
    assert!(!before.is_empty());

    let secrets = [&*namespace.name, "deployment-controller"];
    strangers_see_nothing(&running, &secrets, "kube-controller-manager").await;
    let web = format!("/object/apps/v1/deployments/{}/web", namespace.name);

    // A user without permissions.
    let mut limited = Browser::new(running.console);
    let page = limited.log_in(USER).await.is(303);
    let cookie = page.headers[header::SET_COOKIE].to_str().expect("text");
    let name = format!("__Host-evenkeel-console-{}=", running.console);
    assert!(cookie.starts_with(&name), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
    let refused = format!("User {USER} may not get /debug/controllers.");
    let hidden = ["id=\"controllers\"", "id=\"plots\"", "id=\"nodes\"", secrets[0], secrets[1]];
    limited.get("/").await.has(&[&refused, "kube-controller-manager"]).lacks(&hidden);
    limited.get(&web).await.is(403).lacks(&["replicas:", "deployment-controller"]);
    limited.get("/objects?kind=pods").await.is(403).lacks(&["web-"]);
    limited.get("/controller/deployment-controller").await.is(403);
    limited.get("/events").await.is(403);

    // One right shows one part.
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
    ]);
    scene.grant("console-deployments", rules).await;
    let parts = ["replicas:", "User limited may not get /debug/controllers."];
    limited.get(&web).await.has(&parts).lacks(&["id=\"explain\""]);
    let rules = json!([{"nonResourceURLs": ["/debug/controllers"], "verbs": ["get"]}]);
    scene.grant("console-controllers", rules).await;
    limited.get(&web).await.has(&["id=\"explain\"", "2 wanted, 2 there, 0 ready"]);
    limited.get("/").await.has(&["replicaset-controller"]).lacks(&["id=\"plots\"", "pods ready"]);
    limited.get("/objects?kind=pods").await.is(403);

    // One who may see everything.
    let admin = Browser::of(running.console, scene.admin()).await;
    let parts = ["deployment-controller", "Deployments ready", "<h1>kube-controller-manager</h1>"];
    // None of these controllers reads nodes, so there is no heat map, and no list of pending pods.
    let absent = ["id=\"nodes\"", "Pending pods", "on standby", "Pods in the scheduler"];
    admin.get("/").await.has(&parts).lacks(&absent);
    let plots = admin.until(cluster, "/", |html| html.contains("id=\"plots\"")).await;
    plots.has(&["Writes of the components", "Mean latency", "Keys that wait"]).lacks(&absent);
    admin.get(&web).await.has(&["deployment-controller", "ReplicaSet", "Pod "]);
    admin.get("/controller/replicaset-controller").await.has(&["ReplicaSet"]);
    let pods = admin.get("/objects?kind=pods").await.has(&["web-"]).html;
    let pod = pods.split("href=\"/object/core/v1/pods/").nth(1).expect("a pod");
    let pod = format!("/object/core/v1/pods/{}", pod.split('"').next().expect("a path"));
    admin
        .get(&pod)
        .await
        .has(&["id=\"explain\"", "ReplicaSet console"])
        .lacks(&["Scheduling:", "/switch"]);
    admin.get("/pending").await.is(404);
    let scheduling = format!("{}/scheduling", pod.replace("/object/core/v1/pods", "/pod"));
    admin.get(&scheduling).await.is(404);
    let edit = web.replacen("/object/", "/edit/", 1);
    let token = form_token(&admin.get(&edit).await.has(&["replicas: 2"]).html);
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/web", namespace.name);
    let mut edited = cluster.get(&path).await;
    edited["spec"]["replicas"] = json!(5);
    let text = utf8_percent_encode(&edited.to_string(), NON_ALPHANUMERIC).to_string();
    let parts = ["<del>2</del>", "<ins>5</ins>", ">deployment-controller</a>", ">new</span>"];
    let form = |token: &str| format!("token={token}&yaml={text}");
    let preview = admin.send(Method::POST, &edit, form(&token)).await.has(&parts);
    preview.lacks(&["id=\"run-what-if\""]);
    assert_eq!(cluster.get(&path).await["spec"]["replicas"], 2, "nothing is written");
    let token = form_token(&limited.get(&edit).await.html);
    let refused = limited.send(Method::POST, &edit, form(&token)).await.is(403);
    assert!(refused.html.contains("may not update deployments.apps web"), "{}", refused.html);
    admin.get("/what-if").await.is(404);
    admin.get("/simulation").await.is(404);
    let form = "annotation=sim.evenkeel.dev%2Frun-time&name=x&namespace=y&value=5s".to_owned();
    admin.send(Method::POST, "/switch", form).await.is(404);
    assert_eq!(caches(&running, scene.admin()).await, before, "the console starts no watch");

    is_without_token(&running.program.log(), &scene);
    running.program.stop(cluster).await;
    scene.stop().await;
}

/// Flags of an election with short durations.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// Waits until a lease has a holder, and returns the holder.
async fn holder(cluster: &Cluster, lease: &str) -> String {
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}");
    let lease = cluster.until(&path, |lease| holder(lease).is_some()).await;
    holder(&lease).expect("a holder")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_scheduler_on_standby_shows_its_warm_caches() {
    let scene = Scene::start().await;
    let cluster = scene.cluster();
    pending(&scene).await;
    let leader = scene.run(SCHEDULER, "leader", &ELECTION).await;
    let holder = holder(cluster, "kube-scheduler").await;
    let standby = scene.run(SCHEDULER, "standby", &ELECTION).await;
    let admin = Browser::of(standby.console, scene.admin()).await;
    let leads = format!("{holder} holds the lease kube-system/kube-scheduler.");
    admin.until(cluster, "/", |html| html.contains(&leads)).await.has(&["on standby"]);
    let page = admin.until(cluster, "/pending", |html| html.contains("default/huge")).await;
    page.has(&["on standby", &leads]);
    leader.program.stop(cluster).await;
    let page = admin.until(cluster, "/pending", |html| !html.contains("on standby")).await;
    page.has(&["default/huge"]);
    standby.program.stop(cluster).await;
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_standby_says_who_leads_until_it_does_itself() {
    let scene = Scene::start().await;
    let cluster = scene.cluster();
    let mut arguments = vec![CONTROLLERS, "--controller-start-interval=0s"];
    arguments.extend(ELECTION);
    let leader = scene.run(MANAGER, "leader", &arguments).await;
    let holder = holder(cluster, "kube-controller-manager").await;
    let admin = Browser::of(leader.console, scene.admin()).await;
    let page = admin.until(cluster, "/", |html| html.contains("deployment-controller")).await;
    page.lacks(&["on standby"]);

    let standby = scene.run(MANAGER, "standby", &arguments).await;
    strangers_see_nothing(&standby, &[&holder], "kube-controller-manager").await;
    let admin = Browser::of(standby.console, scene.admin()).await;
    let leads = format!("{holder} holds the lease kube-system/kube-controller-manager.");
    let page = admin.until(cluster, "/", |html| html.contains(&leads)).await;
    page.has(&["on standby"]).lacks(&["id=\"controllers\"", "id=\"nodes\"", "quiet controllers"]);
    let page = admin.get("/object/core/v1/namespaces/-/default").await;
    page.has(&["on standby", "kubernetes.io/metadata.name"]).lacks(&["id=\"explain\""]);
    let limited = Browser::of(standby.console, USER).await;
    let page = limited.get("/").await.has(&["on standby", "Another process holds the lease"]);
    page.lacks(&[&holder]);

    leader.program.stop(cluster).await;
    let page = admin.until(cluster, "/", |html| html.contains("deployment-controller")).await;
    page.has(&["id=\"controllers\""]).lacks(&["on standby"]);
    standby.program.stop(cluster).await;
    scene.stop().await;
}

/// Creates a node, a pod that fits on no node, and a pod of an unknown scheduler.
async fn pending(scene: &Scene) {
    let cluster = scene.cluster();
    cluster.create("nodes", json!({"metadata": {"name": "small"}})).await;
    let allocatable = json!({"cpu": "1", "memory": "1Gi", "pods": "9"});
    let ready = json!([{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]);
    let status = json!({"allocatable": allocatable, "capacity": allocatable, "conditions": ready});
    cluster.patch("nodes/small/status", json!({"status": status})).await;
    // No controller removes the taint of new nodes.
    cluster.patch("nodes/small", json!({"spec": {"taints": null}})).await;
    let account = json!({"metadata": {"name": "default"}});
    cluster.create("/api/v1/namespaces/default/serviceaccounts", account).await;
    let mut huge = pod("huge", &json!({}), "app:v1");
    huge["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "64"}});
    let pods = "/api/v1/namespaces/default/pods";
    cluster.create(pods, huge).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_scheduler_shows_pending_pods_and_why() {
    let scene = Scene::start().await;
    let cluster = scene.cluster();
    pending(&scene).await;
    let running = scene.run(SCHEDULER, "scheduler", &[]).await;
    let path = "/api/v1/namespaces/default/pods/huge";
    cluster.until(path, |pod| condition(pod, "PodScheduled")["status"] == "False").await;
    let before = caches(&running, scene.admin()).await;
    strangers_see_nothing(&running, &["huge", "small"], "kube-scheduler").await;

    let limited = Browser::of(running.console, USER).await;
    limited.get("/").await.has(&["kube-scheduler"]).lacks(&["huge", "small", "id=\"nodes\""]);
    let refused = format!("User {USER} may not list pods.");
    let page = limited.get("/pending").await.is(403).lacks(&["huge"]);
    assert!(page.html.contains(&refused), "{}", page.html);
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    scene.grant("console-pods", rules).await;
    limited.get("/pending").await.has(&["default/huge", "Insufficient cpu"]).lacks(&["queue "]);
    let scheduling = "/pod/default/huge/scheduling";
    let page = limited.get(scheduling).await.is(403).lacks(&["small", "Insufficient"]);
    assert!(page.html.contains(&format!("User {USER} may not list nodes.")), "{}", page.html);

    let admin = Browser::of(running.console, scene.admin()).await;
    let parts = ["class=\"cell ready", " Pending</a>", "href=\"/pending\""];
    admin.get("/").await.has(&parts).lacks(&["id=\"controllers\"", "Deployments ready"]);
    let plots = admin.until(cluster, "/", |html| html.contains("id=\"plots\"")).await;
    plots.has(&["Pods in the scheduler&#39;s queues"]).lacks(&["Keys that wait"]);
    let pending = admin.get("/pending").await;
    pending.has(&["queue unschedulable", "href=\"/pod/default/huge/scheduling\""]);
    admin.get("/pending?namespace=kube-system").await.has(&["No pod waits for a node."]);
    let page = admin.get(scheduling).await;
    page.has(&["NodeResourcesFit", "Insufficient cpu", "0/1 nodes are available", "small"]);
    let page = admin.get("/object/core/v1/pods/default/huge").await;
    page.has(&["Scheduling: nodes and plugins"]).lacks(&["id=\"explain\"", "/switch"]);
    assert_eq!(caches(&running, scene.admin()).await, before, "the console starts no watch");

    is_without_token(&running.program.log(), &scene);
    running.program.stop(cluster).await;
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn is_off_without_the_flag() {
    let scene = Scene::start().await;
    for (binary, more) in [(MANAGER, CONTROLLERS), (SCHEDULER, "--v=0")] {
        let name = Path::new(binary).file_name().expect("a name").to_string_lossy();
        let arguments = [more];
        let (program, secure) = scene.start_program(binary, &name, &arguments, &[]).await;
        let mut admin = Browser::new(secure);
        for target in ["/console", "/console/", "/login", "/pending", "/assets/console.js"] {
            let request = Request::get(target)
                .header(header::AUTHORIZATION, format!("Bearer {}", scene.admin()))
                .body(Body::empty())
                .expect("a request");
            let answer = admin.kube.send(request).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{name} {target}");
        }
        // Upstream's response to an unauthenticated user.
        let page = admin.log_in(USER).await.is(403);
        assert!(page.html.contains("system:anonymous"), "{}", page.html);
        assert!(!program.log().contains("console"), "{}", program.log());
        program.stop(scene.cluster()).await;
    }
    // An invalid value of the flag is refused like that of any other flag.
    for binary in [MANAGER, SCHEDULER] {
        let output = std::process::Command::new(binary)
            .args(["--console-bind-address=10261", "--leader-elect=false"])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let message = "--console-bind-address 10261 must be an IP address with a port";
        assert!(text.contains(message), "{text}");
    }
    scene.stop().await;
}
