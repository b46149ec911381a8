//! A controller manager without permission for some resources: forbidden resources are logged by name and retried with growing
//! delays, other controllers continue, and permissions that are granted later take effect without a restart.

use crate::{
    cluster::{Cluster, items},
    objects::{deployment, replica_set},
    program::{Embedded, Program, Watcher, free_port},
};
use base64::prelude::*;
use evenkeel_controllers::{needs::Gates, wiring::descriptor::descriptors};
use serde_json::{Value, json};
use std::path::Path;

const BINARY: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// User who has only the permissions that the case grants; also the user's token.
pub(crate) const USER: &str = "limited";

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_resources_do_not_block_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let embedded = Embedded::start().await;
    let ca = BASE64_STANDARD.encode(embedded.server.ca_pem());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": embedded.url, "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": {"token": USER}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).expect("a kubeconfig");
    some_lists_are_forbidden(&embedded.cluster, folder.path(), &path).await;
    embedded.serving.stop().await;
}

/// Checks that the API server's bootstrap roles grant permissions to the service account of each controller.
pub(crate) async fn each_account_has_permissions(cluster: &Cluster) {
    let mut bound = Vec::new();
    for bindings in [BINDINGS, "/apis/rbac.authorization.k8s.io/v1/rolebindings"] {
        let bindings = cluster.get(bindings).await;
        for binding in items(&bindings) {
            let subjects = binding["subjects"].as_array().map_or(&[][..], Vec::as_slice);
            bound.extend(subjects.iter().filter(|one| one["kind"] == "ServiceAccount").cloned());
        }
    }
    // The token controller uses the program's own credentials.
    let accounts = descriptors().into_iter().filter(|one| one.client != "tokens-controller");
    // Upstream has the roles of some controllers only with their feature gates.
    let gates = Gates::default();
    let started = accounts.filter(|one| one.gates.iter().all(|gate| gates.enabled(gate)));
    let without: Vec<_> = started
        .filter(|one| !bound.iter().any(|subject| subject["name"] == one.client))
        .map(|one| (one.name, one.client))
        .collect();
    assert!(without.is_empty(), "accounts without permissions: {without:?}");
}

/// Runs on a cluster without other controller managers, and possibly without nodes. `kubeconfig` is that of [`USER`].
pub(crate) async fn some_lists_are_forbidden(cluster: &Cluster, folder: &Path, kubeconfig: &Path) {
    grant(cluster, "e2e-limited-some", &some()).await;
    let port = free_port();
    let controllers = "--controllers=serviceaccount-controller,namespace-controller,deployment-controller,\
        replicaset-controller,statefulset-controller,garbage-collector-controller";
    let arguments = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--secure-port={port}"),
        controllers.to_owned(),
        "--leader-elect=false".to_owned(),
        "--controller-start-interval=0s".to_owned(),
        "--authentication-skip-lookup=true".to_owned(),
        "--authorization-always-allow-paths=/healthz,/metrics".to_owned(),
    ];
    let mut program = Program::start(BINARY, &arguments, folder);
    program.serves(cluster, port).await;
    let namespace = cluster.namespace("forbidden").await;
    let mut stateful = replica_set("db", 2, "app:v1");
    stateful["spec"]["serviceName"] = json!("db");
    stateful["spec"]["podManagementPolicy"] = json!("Parallel");
    namespace.create("statefulsets", stateful).await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    let of = |pods: &Value, app: &str| {
        items(pods).iter().filter(|pod| pod["metadata"]["labels"]["app"] == app).count()
    };
    namespace.until("pods", |pods| of(pods, "web") == 2).await;
    // The garbage collector has waited long enough for the forbidden resources, and works without them.
    namespace.delete("deployments/web", "Background").await;
    namespace.until_none("replicasets").await;
    assert_eq!(of(&namespace.get("pods").await, "db"), 0, "nobody sees the set");

    let log = program.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("statefulsets")).collect();
    let (user, resource) = (format!("User \\\"{USER}\\\""), "statefulsets.apps is forbidden");
    assert!(
        lines.iter().any(|line| line.contains(resource) && line.contains(&user)),
        "{}",
        program.last_words()
    );
    // At least half a minute with delays that start at 0.8 s and double each time.
    assert!((2..=12).contains(&lines.len()), "{} times: {lines:#?}", lines.len());
    let healthy = Watcher::anonymous(port).text("/healthz").await;
    assert_eq!(healthy.trim(), "ok", "another process would be allowed no more");

    grant(cluster, "e2e-limited-more", &more()).await;
    namespace.until("pods", |pods| of(pods, "db") == 2).await;
    assert!(program.is_running(), "{}", program.last_words());
    program.stop(cluster).await;
}

/// Returns the rules of all permissions that Deployments need.
fn some() -> Value {
    json!([
        {"apiGroups": ["", "events.k8s.io"], "verbs": ["*"],
         "resources": ["configmaps", "events", "namespaces", "pods", "serviceaccounts"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "deployments/status", "replicasets", "replicasets/status"],
         "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ])
}

fn more() -> Value {
    json!([{"apiGroups": ["apps"], "resources": ["statefulsets", "statefulsets/status", "controllerrevisions"], "verbs": ["*"]},
           {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["*"]}])
}

async fn grant(cluster: &Cluster, name: &str, rules: &Value) {
    let metadata = json!({"name": name});
    cluster.create(ROLES, json!({"metadata": metadata, "rules": rules})).await;
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    cluster.create(BINDINGS, binding).await;
}
