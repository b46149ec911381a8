//! Cluster of upstream's etcd, kube-apiserver and kube-scheduler, with caches of our scheduler on it.

use crate::generate::{DEVICE_CLASS, GeneratedPod, PRIORITY_CLASSES};
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

/// Returns the directory of upstream's programs.
pub(crate) fn binaries() -> Option<PathBuf> {
    variable("EVENKEEL_UPSTREAM_BIN").map(PathBuf::from)
}

/// Returns the number of clusters that the environment sets.
pub(crate) fn requested_clusters() -> Option<u64> {
    variable("EVENKEEL_PARITY_CLUSTERS")?.parse().ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests read the environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Prints a line. The test harness does not capture it.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A cluster. Its programs end when it is dropped.
pub(crate) struct Cluster {
    binaries: PathBuf,
    folder: tempfile::TempDir,
    processes: std::sync::Mutex<Vec<Child>>,
    /// Port of the API server.
    server_port: u16,
    connected: OnceLock<(Client, Caches)>,
    tasks: Tasks,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.processes.get_mut().unwrap().iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Cluster {
    /// Starts etcd and the API server.
    pub(crate) fn start(binaries: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [client_port, peer_port, server_port] = free_ports();
        let cluster = Self {
            binaries,
            folder,
            processes: std::sync::Mutex::default(),
            server_port,
            connected: OnceLock::new(),
            tasks: Tasks::new(),
        };
        let service_account_key = KeyPair::generate().unwrap();
        cluster.write("accounts.key", &service_account_key.serialize_pem());
        cluster.write("accounts.pub", &service_account_key.public_key_pem());
        cluster.write("tokens.csv", "admin,admin,admin,system:masters\n");
        let client_url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        cluster.run(
            "etcd",
            &[
                format!("--data-dir={}", cluster.path("etcd").display()),
                "--unsafe-no-fsync".into(),
                "--log-level=error".into(),
                format!("--listen-client-urls={client_url}"),
                format!("--advertise-client-urls={client_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
            ],
        );
        cluster.run(
            "kube-apiserver",
            &[
                format!("--etcd-servers={client_url}"),
                format!("--secure-port={server_port}"),
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
        self.processes
            .lock()
            .unwrap()
            .push(child.unwrap_or_else(|error| panic!("{program}: {error}")));
    }

    /// Returns the log of upstream's scheduler so far.
    pub(crate) fn log(&self) -> String {
        self.log_from(0)
    }

    /// Returns the log of upstream's scheduler from this byte.
    fn log_from(&self, offset: u64) -> String {
        let mut file = std::fs::File::open(self.path("kube-scheduler.log")).unwrap();
        file.seek(SeekFrom::Start(offset)).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Creates nodes, and waits until both schedulers know all of them. Upstream's scheduler updates a node's image states
    /// only when it copies the node to its snapshot, so it must not see the first pod before the last node.
    pub(crate) async fn create_nodes(&self, nodes: &[Value]) {
        let log_start = std::fs::metadata(self.path("kube-scheduler.log")).unwrap().len();
        for node in nodes {
            self.create("/api/v1/nodes", node).await;
        }
        let n_known = || self.log_from(log_start).matches("\"Add event for node\"").count();
        self.wait_until(|| self.caches().of::<Node>().len() == nodes.len()).await;
        self.wait_until(|| n_known() >= nodes.len()).await;
    }

    /// Starts our caches and then upstream's scheduler. Returns our dry-run scheduler.
    pub(crate) async fn looker(&self) -> Looker {
        let cluster = json!({"server": format!("https://127.0.0.1:{}", self.server_port), "insecure-skip-tls-verify": true});
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
        let start = Clock::system().instant();
        while self.request("GET", "/api/v1/namespaces/default", None).await.is_err() {
            assert!(start.elapsed() < 2 * WAIT_TIMEOUT, "the API server is not ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.create_classes().await;
        caches.start(&self.tasks);
        looker.ready().await;
        self.start_scheduler(&kubeconfig);
        looker
    }

    async fn create_classes(&self) {
        for (name, value, policy) in PRIORITY_CLASSES {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
            self.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        }
        let selector = format!("device.driver == \"{DEVICE_CLASS}\"");
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DEVICE_CLASS},
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
                // Without batching, upstream scores the nodes for each pod.
                "--feature-gates=OpportunisticBatching=false".into(),
                "--v=10".into(),
            ],
        );
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.connected.get().unwrap().1
    }

    async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, ApiError> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let mut request = Request::new(body);
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = path.parse().unwrap();
        let json = HeaderValue::from_static("application/json");
        let patch = HeaderValue::from_static("application/merge-patch+json");
        let content_type = if method == "PATCH" { patch } else { json.clone() };
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        request.headers_mut().insert(header::ACCEPT, json);
        Ok(self.connected.get().unwrap().0.raw(request).await?.into_body())
    }

    /// Creates ResourceSlices, and PodDisruptionBudgets with their allowed disruptions. Waits until the caches have them.
    pub(crate) async fn create_slices_and_budgets(
        &self,
        slices: &[Value],
        budgets: &[(Value, i32)],
    ) {
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
            let created = budgets.iter().find(|(budget, _)| budget["metadata"]["name"] == name);
            created.is_some_and(|(_, allowed)| budget.status.disruptions_allowed == *allowed)
        };
        self.wait_until(|| {
            let cached = self.caches().of::<PodDisruptionBudget>().list();
            cached.len() == budgets.len() && cached.iter().all(is_observed)
        })
        .await;
        self.wait_until(|| self.caches().of::<ResourceSlice>().len() == slices.len()).await;
    }

    /// Creates a pod that upstream's scheduler does not schedule until its gate is removed.
    pub(crate) async fn create_gated(&self, generated: &GeneratedPod) {
        if let Some(claim) = &generated.claim {
            self.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim).await;
            let claims = self.caches().of::<ResourceClaim>();
            self.wait_until(|| claims.get("default", &generated.name).is_some()).await;
        }
        let mut pod = generated.pod.clone();
        pod["spec"]["schedulingGates"] = json!([{"name": "example.com/asked"}]);
        self.create(PODS, &pod).await;
        self.wait_until(|| self.pod(&generated.name).is_some()).await;
    }

    pub(crate) async fn remove_gate(&self, name: &str) {
        self.patch(&format!("{PODS}/{name}"), &json!({"spec": {"schedulingGates": []}})).await;
    }

    /// Sets the start time of a placed pod to this second of 2026.
    pub(crate) async fn start_pod(&self, name: &str, second: u32) {
        let time =
            format!("2026-01-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        let status = json!({"status": {"startTime": time}});
        self.patch(&format!("{PODS}/{name}/status"), &status).await;
        self.wait_until(|| self.pod(name).is_some_and(|pod| pod.status.start_time.is_some())).await;
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let response = self.request("PATCH", path, Some(patch)).await;
        response.unwrap_or_else(|error| panic!("{path}: {error}: {patch}"));
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        let created = self.request("POST", path, Some(object)).await;
        created.unwrap_or_else(|error| panic!("{error}: {object}"));
    }

    pub(crate) async fn delete(&self, path: &str) {
        let response = self.request("DELETE", &format!("{path}?gracePeriodSeconds=0"), None).await;
        response.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Deletes all pods, ResourceSlices, budgets and nodes. Claims stay, because no controller removes their finalizers.
    /// Their devices are deleted.
    pub(crate) async fn clear(&self) {
        self.delete(PODS).await;
        self.wait_until(|| self.caches().of::<Pod>().is_empty()).await;
        self.delete("/apis/resource.k8s.io/v1/resourceslices").await;
        self.wait_until(|| self.caches().of::<ResourceSlice>().is_empty()).await;
        self.delete(BUDGETS).await;
        self.wait_until(|| self.caches().of::<PodDisruptionBudget>().is_empty()).await;
        self.delete("/api/v1/nodes").await;
        self.wait_until(|| self.caches().of::<Node>().is_empty()).await;
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Arc<Pod>> {
        self.caches().of::<Pod>().get("default", name)
    }

    /// Returns the pods in `pods` (namespace and name) that are deleted or being deleted.
    pub(crate) fn deleted_pods(&self, pods: &BTreeSet<String>) -> BTreeSet<String> {
        let is_deleted = |pod: &&String| {
            let cached = pod.split_once('/').and_then(|(_, name)| self.pod(name));
            cached.is_none_or(|pod| pod.meta.deleting())
        };
        pods.iter().filter(is_deleted).cloned().collect()
    }

    /// Waits until the condition is true.
    pub(crate) async fn wait_until(&self, condition: impl Fn() -> bool) {
        let start = Clock::system().instant();
        while !condition() {
            assert!(start.elapsed() < WAIT_TIMEOUT, "the condition does not become true");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until a pod is placed, and returns it.
    pub(crate) async fn wait_until_placed(&self, name: &str) -> Arc<Pod> {
        self.wait_until(|| self.pod(name).is_some_and(|pod| !pod.spec.node_name.is_empty())).await;
        self.pod(name).unwrap()
    }

    /// Waits until upstream's scheduler has placed or rejected a pod, and returns it.
    pub(crate) async fn wait_until_attempted(&self, name: &str) -> Arc<Pod> {
        let is_attempted = |pod: &Arc<Pod>| {
            let conditions = &pod.status.conditions;
            !pod.spec.node_name.is_empty()
                || conditions.iter().any(|condition| {
                    &*condition.type_ == "PodScheduled" && &*condition.reason == "Unschedulable"
                })
        };
        self.wait_until(|| self.pod(name).is_some_and(|pod| is_attempted(&pod))).await;
        self.pod(name).unwrap()
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
