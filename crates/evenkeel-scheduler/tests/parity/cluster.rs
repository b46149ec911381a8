//! etcd, kube-apiserver and kube-scheduler of upstream's, and what ours sees of them.

use crate::generate::{CLASSES, DEVICES, Made};
use bytes::Bytes;
use evenkeel_api::views::{Node, Pod, PodDisruptionBudget, ResourceClaim, ResourceSlice};
use evenkeel_runtime::{
    cache::Caches,
    client::{self, ApiError, Client, ConnectOptions},
    clock::Clock,
    tasks::Tasks,
};
use evenkeel_scheduler::{SchedulerOptions, explain::Looker};
use http::{HeaderValue, Method, Request, header};
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, OnceLock},
    time::Duration,
};

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn binaries() -> Option<PathBuf> {
    variable("EVENKEEL_UPSTREAM_BIN").map(PathBuf::from)
}

/// How many clusters are asked for.
pub(crate) fn wanted() -> Option<u64> {
    variable("EVENKEEL_PARITY_CLUSTERS")?.parse().ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests read the environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Says something however the tests are run.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The programs, ended with it.
pub(crate) struct Cluster {
    binaries: PathBuf,
    folder: tempfile::TempDir,
    running: std::sync::Mutex<Vec<Child>>,
    server: u16,
    connected: OnceLock<(Client, Caches)>,
    tasks: Tasks,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.running.get_mut().unwrap().iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Cluster {
    /// Starts etcd and the API server.
    pub(crate) fn start(binaries: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [client, peer, server] = free_ports();
        let cluster = Self {
            binaries,
            folder,
            running: std::sync::Mutex::default(),
            server,
            connected: OnceLock::new(),
            tasks: Tasks::new(),
        };
        let accounts = KeyPair::generate().unwrap();
        cluster.write("accounts.key", &accounts.serialize_pem());
        cluster.write("accounts.pub", &accounts.public_key_pem());
        cluster.write("tokens.csv", "admin,admin,admin,system:masters\n");
        let (etcd, peers) =
            (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        cluster.run(
            "etcd",
            &[
                format!("--data-dir={}", cluster.path("etcd").display()),
                "--unsafe-no-fsync".into(),
                "--log-level=error".into(),
                format!("--listen-client-urls={etcd}"),
                format!("--advertise-client-urls={etcd}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster=default={peers}"),
            ],
        );
        cluster.run(
            "kube-apiserver",
            &[
                format!("--etcd-servers={etcd}"),
                format!("--secure-port={server}"),
                "--bind-address=127.0.0.1".into(),
                "--endpoint-reconciler-type=none".into(),
                format!("--cert-dir={}", cluster.path("certificates").display()),
                format!("--token-auth-file={}", cluster.path("tokens.csv").display()),
                "--authorization-mode=RBAC".into(),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--service-account-key-file={}", cluster.path("accounts.pub").display()),
                format!(
                    "--service-account-signing-key-file={}",
                    cluster.path("accounts.key").display()
                ),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
            ],
        );
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, program: &str, arguments: &[String]) {
        let log = std::fs::File::create(self.path(&format!("{program}.log"))).unwrap();
        let child = Command::new(self.binaries.join(program))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.running
            .lock()
            .unwrap()
            .push(child.unwrap_or_else(|error| panic!("{program}: {error}")));
    }

    /// Returns the log of upstream's scheduler so far.
    pub(crate) fn log(&self) -> String {
        self.log_from(0)
    }

    /// The same without its first bytes.
    fn log_from(&self, at: u64) -> String {
        let mut file = std::fs::File::open(self.path("kube-scheduler.log")).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Makes nodes, and waits until both schedulers know all of them. Upstream's takes an image's spread from when it last
    /// copied a node, so that it must not see the first pod before the last node.
    pub(crate) async fn create_nodes(&self, nodes: &[Value]) {
        let before = std::fs::metadata(self.path("kube-scheduler.log")).unwrap().len();
        for node in nodes {
            self.create("/api/v1/nodes", node).await;
        }
        let known = || self.log_from(before).matches("\"Add event for node\"").count();
        self.until(|| self.caches().of::<Node>().len() == nodes.len()).await;
        self.until(|| known() >= nodes.len()).await;
    }

    /// Our scheduler, which only looks, with filled caches; upstream's runs from then on.
    pub(crate) async fn looker(&self) -> Looker {
        let cluster = json!({"server": format!("https://127.0.0.1:{}", self.server), "insecure-skip-tls-verify": true});
        let kubeconfig = self.write(
            "kubeconfig",
            &json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "admin"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            })
            .to_string(),
        );
        let options = ConnectOptions {
            kubeconfig: Some(kubeconfig.clone()),
            qps: -1.0,
            ..ConnectOptions::default()
        };
        let clock = Clock::system();
        let client = client::connect(options, clock.clone()).await.unwrap();
        let caches = Caches::new(client.clone(), clock.clone(), &prometheus::Registry::new());
        let mut looker =
            Looker::new(client.clone(), caches.clone(), clock, &SchedulerOptions::default());
        assert!(self.connected.set((client, caches.clone())).is_ok());
        let began = Clock::system().instant();
        while self.ask("GET", "/api/v1/namespaces/default", None).await.is_err() {
            assert!(began.elapsed() < 2 * WAIT_TIMEOUT, "the API server is not ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.create_classes().await;
        caches.start(&self.tasks);
        looker.ready().await;
        self.start_scheduler(&kubeconfig);
        looker
    }

    async fn create_classes(&self) {
        for (name, value, policy) in CLASSES {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
            self.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        }
        let selector = format!("device.driver == \"{DEVICES}\"");
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DEVICES},
            "spec": {"selectors": [{"cel": {"expression": selector}}]},
        });
        self.create("/apis/resource.k8s.io/v1/deviceclasses", &class).await;
    }

    fn start_scheduler(&self, kubeconfig: &Path) {
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
            "percentageOfNodesToScore": 100,
        });
        let config = self.write("scheduler.json", &config.to_string());
        self.run(
            "kube-scheduler",
            &[
                format!("--config={}", config.display()),
                "--secure-port=0".into(),
                // Each pod is looked at by itself, so that there is something to compare.
                "--feature-gates=OpportunisticBatching=false".into(),
                "--v=10".into(),
            ],
        );
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.connected.get().unwrap().1
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Bytes, ApiError> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let mut request = Request::new(body);
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = path.parse().unwrap();
        let json = HeaderValue::from_static("application/json");
        let patch = HeaderValue::from_static("application/merge-patch+json");
        let sent = if method == "PATCH" { patch } else { json.clone() };
        request.headers_mut().insert(header::CONTENT_TYPE, sent);
        request.headers_mut().insert(header::ACCEPT, json);
        Ok(self.connected.get().unwrap().0.raw(request).await?.into_body())
    }

    /// What there is of devices and budgets, before the first pod.
    pub(crate) async fn create_others(&self, slices: &[Value], budgets: &[(Value, i32)]) {
        for slice in slices {
            self.create("/apis/resource.k8s.io/v1/resourceslices", slice).await;
        }
        for (budget, allowed) in budgets {
            self.create(BUDGETS, budget).await;
            let status = json!({"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "disruptionsAllowed": allowed});
            let name = budget["metadata"]["name"].as_str().unwrap();
            self.patch(&format!("{BUDGETS}/{name}/status"), &json!({"status": status})).await;
        }
        let is_observed = |budget: &Arc<PodDisruptionBudget>| {
            let name = &*budget.meta.name;
            let made = budgets.iter().find(|(made, _)| made["metadata"]["name"] == name);
            made.is_some_and(|(_, allowed)| budget.status.disruptions_allowed == *allowed)
        };
        self.until(|| {
            let seen = self.caches().of::<PodDisruptionBudget>().list();
            seen.len() == budgets.len() && seen.iter().all(is_observed)
        })
        .await;
        self.until(|| self.caches().of::<ResourceSlice>().len() == slices.len()).await;
    }

    /// Makes a pod that upstream's scheduler leaves alone until its gate is opened.
    pub(crate) async fn create_gated(&self, made: &Made) {
        if let Some(claim) = &made.claim {
            self.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim).await;
            let claims = self.caches().of::<ResourceClaim>();
            self.until(|| claims.get("default", &made.name).is_some()).await;
        }
        let mut pod = made.pod.clone();
        pod["spec"]["schedulingGates"] = json!([{"name": "example.com/asked"}]);
        self.create(PODS, &pod).await;
        self.until(|| self.pod(&made.name).is_some()).await;
    }

    pub(crate) async fn open_gate(&self, name: &str) {
        self.patch(&format!("{PODS}/{name}"), &json!({"spec": {"schedulingGates": []}})).await;
    }

    /// Has a placed pod start, so many seconds into the year.
    pub(crate) async fn start_pod(&self, name: &str, second: u32) {
        let time =
            format!("2026-01-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        let status = json!({"status": {"startTime": time}});
        self.patch(&format!("{PODS}/{name}/status"), &status).await;
        self.until(|| self.pod(name).is_some_and(|pod| pod.status.start_time.is_some())).await;
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let answer = self.ask("PATCH", path, Some(patch)).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}: {patch}"));
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        let created = self.ask("POST", path, Some(object)).await;
        created.unwrap_or_else(|error| panic!("{error}: {object}"));
    }

    pub(crate) async fn delete(&self, path: &str) {
        let answer = self.ask("DELETE", &format!("{path}?gracePeriodSeconds=0"), None).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Takes away all pods and nodes, and what was made with them. Claims stay: nobody is there who would take their finalizers
    /// off, and the devices that they hold are gone.
    pub(crate) async fn clear(&self) {
        self.delete(PODS).await;
        self.until(|| self.caches().of::<Pod>().is_empty()).await;
        self.delete("/apis/resource.k8s.io/v1/resourceslices").await;
        self.until(|| self.caches().of::<ResourceSlice>().is_empty()).await;
        self.delete(BUDGETS).await;
        self.until(|| self.caches().of::<PodDisruptionBudget>().is_empty()).await;
        self.delete("/api/v1/nodes").await;
        self.until(|| self.caches().of::<Node>().is_empty()).await;
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Arc<Pod>> {
        self.caches().of::<Pod>().get("default", name)
    }

    /// Those of some pods, by namespace and name, that are not there any more.
    pub(crate) fn gone(&self, of: &BTreeSet<String>) -> BTreeSet<String> {
        let left = |pod: &&String| {
            let found = pod.split_once('/').and_then(|(_, name)| self.pod(name));
            found.is_none_or(|pod| pod.meta.deleting())
        };
        of.iter().filter(left).cloned().collect()
    }

    /// Waits until something is seen.
    pub(crate) async fn until(&self, seen: impl Fn() -> bool) {
        let began = Clock::system().instant();
        while !seen() {
            assert!(began.elapsed() < WAIT_TIMEOUT, "nothing happens any more");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// A pod that is placed.
    pub(crate) async fn placed(&self, name: &str) -> Arc<Pod> {
        self.until(|| self.pod(name).is_some_and(|pod| !pod.spec.node_name.is_empty())).await;
        self.pod(name).unwrap()
    }

    /// A pod that upstream has placed, or has not.
    pub(crate) async fn settled(&self, name: &str) -> Arc<Pod> {
        let settled = |pod: &Arc<Pod>| {
            let conditions = &pod.status.conditions;
            !pod.spec.node_name.is_empty()
                || conditions
                    .iter()
                    .any(|one| &*one.type_ == "PodScheduled" && &*one.reason == "Unschedulable")
        };
        self.until(|| self.pod(name).is_some_and(|pod| settled(&pod))).await;
        self.pod(name).unwrap()
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
