//! The cloud controller manager in its own process, and controllers that migrate to it from the other manager while both run
//! (leader migration, KEP-2436).

use crate::{
    cluster::{Cluster, Namespace},
    program::{Embedded, Program, Watcher, free_port},
};
use http::HeaderMap;
use serde_json::{Value, json};
use std::path::PathBuf;

const KUBE: &str = env!("CARGO_BIN_EXE_kube-controller-manager");
const CLOUD: &str = env!("CARGO_BIN_EXE_cloud-controller-manager");

/// Kubeconfig of a program, and the token of a user who may read the program's port.
pub(crate) struct Access {
    pub(crate) folder: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    /// Token of a user with all permissions.
    pub(crate) token: String,
}

impl Access {
    fn arguments(&self, port: u16) -> Vec<String> {
        let kubeconfig = |flag: &str| format!("--{flag}={}", self.kubeconfig.display());
        let mut arguments = vec![
            kubeconfig("kubeconfig"),
            kubeconfig("authentication-kubeconfig"),
            kubeconfig("authorization-kubeconfig"),
            format!("--leader-migration-config={}", self.folder.join("migration.yaml").display()),
            format!("--secure-port={port}"),
        ];
        let rest = "--bind-address=127.0.0.1 --enable-leader-migration --leader-elect-lease-duration=4s \
            --leader-elect-renew-deadline=3s --leader-elect-retry-period=500ms --controller-start-interval=0s";
        arguments.extend(rest.split_whitespace().map(str::to_owned));
        arguments
    }
}

const MIGRATION: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: cloud-provider-extraction-migration
controllerLeaders:
- {name: service-lb-controller, component: '*'}
";

const CONFIG: &str = "pools: [{name: default, addresses: [198.18.7.0/24]}]
nodes: {machines: [{name: e2e-cloud, internal: [10.9.9.9], zone: attic}]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_over_migrated_controllers() {
    let folder = tempfile::tempdir().expect("a folder");
    let embedded = Embedded::start().await;
    let kubeconfig = folder.path().join("kubeconfig");
    let text = embedded.server.kubeconfig(&embedded.url);
    std::fs::write(&kubeconfig, text).expect("a kubeconfig");
    let token = embedded.server.admin_token().to_owned();
    let access = Access { folder: folder.path().to_owned(), kubeconfig, token };
    controllers_move(&embedded.cluster, &access).await;
    embedded.serving.stop().await;
}

/// Runs on a cluster without other controller managers.
pub(crate) async fn controllers_move(cluster: &Cluster, access: &Access) {
    let write = |name: &str, text: &str| {
        std::fs::write(access.folder.join(name), text).expect("a file is written");
    };
    write("migration.yaml", MIGRATION);
    write("cloud.yaml", CONFIG);
    let [port, other] = [free_port(), free_port()];
    let mut arguments = access.arguments(other);
    arguments.push("--controllers=serviceaccount-controller".to_owned());
    let mut kube = Program::start(KUBE, &arguments, &access.folder);
    kube.serves(cluster, other).await;
    let before = holder(cluster, "cloud-provider-extraction-migration", |_| true).await;
    assert!(!before.is_empty());

    let mut arguments = access.arguments(port);
    arguments.push("--cloud-provider=ip-pool".to_owned());
    arguments.push(format!("--cloud-config={}", access.folder.join("cloud.yaml").display()));
    let mut cloud = Program::start(CLOUD, &arguments, &access.folder);
    cloud.serves(cluster, port).await;
    let own = holder(cluster, "cloud-controller-manager", |_| true).await;
    machine_is_known(cluster).await;
    let namespace = cluster.namespace("moving").await;
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    namespace.create("services", service).await;
    cluster.watch_a_while().await;
    assert_eq!(external(cluster, &namespace).await, "<pending>", "its controller has not moved");
    let watcher = Watcher::with_token(port, &access.token);
    let metrics = watcher.text("/metrics").await;
    assert!(!metrics.contains(&running("service-lb-controller", 1)), "{metrics}");
    assert!(metrics.contains(&running("cloud-node-controller", 1)), "{metrics}");

    kube.stop(cluster).await;
    holder(cluster, "cloud-provider-extraction-migration", |holder| holder != before).await;
    namespace
        .until("services/web", |web| web["status"]["loadBalancer"]["ingress"].is_array())
        .await;
    assert!(external(cluster, &namespace).await.starts_with("198.18.7."));
    serves(&watcher).await;
    namespace.delete("services/web", "Background").await;
    namespace.until_gone("services/web").await;
    cluster.delete("nodes/e2e-cloud", "Background").await;
    assert!(cloud.is_running(), "{}", cloud.last_words());
    cloud.stop(cluster).await;
    // Given back, both.
    holder(cluster, "cloud-controller-manager", |holder| holder != own).await;
}

/// Waits until the holder of a lease meets a condition, and returns it. The holder of a released lease is empty.
async fn holder(cluster: &Cluster, lease: &str, wanted: impl Fn(&str) -> bool) -> String {
    let of = |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}");
    let lease = cluster.until(&path, |lease| of(lease).is_some_and(|holder| wanted(&holder))).await;
    of(&lease).unwrap_or_default()
}

/// Controllers that are not migrated run under the program's own lease.
async fn machine_is_known(cluster: &Cluster) {
    let waits = "node.cloudprovider.kubernetes.io/uninitialized";
    let taints = [
        json!({"key": waits, "value": "true", "effect": "NoSchedule"}),
        json!({"key": "e2e.evenkeel.dev/reserved", "effect": "NoSchedule"}),
    ];
    let node = json!({"metadata": {"name": "e2e-cloud"}, "spec": {"taints": taints}});
    cluster.create("nodes", node).await;
    let known = |node: &Value| node["spec"]["providerID"] == "ip-pool://e2e-cloud";
    cluster.until("nodes/e2e-cloud", known).await;
}

/// Returns the external address in the output of `kubectl get service`.
async fn external(cluster: &Cluster, namespace: &Namespace<'_>) -> String {
    let path = namespace.path("services");
    let table = cluster.table(&path).await;
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let at = columns.iter().position(|column| column["name"] == "External-IP").expect("a column");
    let row = &table["rows"][0];
    row["cells"][at].as_str().unwrap_or_default().to_owned()
}

fn running(controller: &str, n: u32) -> String {
    format!(
        "running_managed_controllers{{manager=\"cloud-controller-manager\",name=\"{controller}\"}} {n}"
    )
}

/// Checks the content of the program's secure port while it holds the second lease.
async fn serves(watcher: &Watcher) {
    let health = watcher.text("/healthz?verbose").await;
    for check in
        ["leaderElection", "leaderMigration", "cloud-node-controller", "service-lb-controller"]
    {
        assert!(health.contains(&format!("[+]{check} ok")), "{check}: {health}");
    }
    let metrics = watcher.text("/metrics").await;
    assert!(metrics.contains(&running("service-lb-controller", 1)), "{metrics}");
    for family in
        ["kubernetes_build_info", "kubernetes_feature_enabled", "leader_election_master_status"]
    {
        assert!(metrics.contains(family), "{family}: {metrics}");
    }
    let configuration: Value = serde_json::from_str(&watcher.text("/configz").await).expect("JSON");
    assert!(configuration.is_object());
    let answer = watcher.put("/debug/flags/v", "4").await;
    assert_eq!(answer.trim_end(), "successfully set klog.logging.verbosity to 4");
    watcher.put("/debug/flags/v", "0").await;
    let refused = watcher.get("/nowhere", &HeaderMap::new()).await;
    assert_eq!(refused.map_err(|error| error.code()).err(), Some(404));
}
