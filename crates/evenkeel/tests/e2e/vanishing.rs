//! A kind that is removed while the garbage collector and the quota controller watch it: no controller is blocked, no warning
//! is repeated forever, and the kind is watched again when it returns.

use crate::{
    cluster::{Cluster, Namespace, condition},
    objects::{config_map, owned_by},
    program::{Program, free_port},
};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};

const BINARY: &str = env!("CARGO_BIN_EXE_kube-controller-manager");
const DEFINITION: &str = "customresourcedefinitions/gizmos.e2e.evenkeel.dev";
/// Time in which the controllers discover the API again: longer than the interval between two discoveries.
const NOTICED: Duration = Duration::from_secs(35);

/// Runs on a cluster without other controller managers. `kubeconfig` is that of a user with all permissions.
pub(crate) async fn a_process_does_not_go_on_about_it(
    cluster: &Cluster,
    folder: &Path,
    kubeconfig: &Path,
) {
    let port = free_port();
    let controllers = "--controllers=serviceaccount-controller,namespace-controller,garbage-collector-controller,\
        resourcequota-controller";
    let arguments = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--secure-port={port}"),
        controllers.to_owned(),
        "--leader-elect=false".to_owned(),
        "--controller-start-interval=0s".to_owned(),
        "--authentication-skip-lookup=true".to_owned(),
    ];
    let mut program = Program::start(BINARY, &arguments, folder);
    program.serves(cluster, port).await;
    goes_and_comes_back(cluster, &|| about_it(&program)).await;
    assert!(program.is_running(), "{}", program.last_words());
    program.stop(cluster).await;
}

/// Removes a kind while controllers watch it, and installs it again. `complaints` returns the warnings about the kind,
/// either all so far or the current ones.
async fn goes_and_comes_back(cluster: &Cluster, complaints: &dyn Fn() -> Vec<String>) {
    let namespace = cluster.namespace("vanishing").await;
    let hard = json!({"count/gizmos.e2e.evenkeel.dev": "5", "configmaps": "20"});
    let quota = json!({"metadata": {"name": "quota"}, "spec": {"hard": hard}});
    namespace.create("resourcequotas", quota).await;
    comes(cluster, &namespace).await;

    cluster.delete(DEFINITION, "Background").await;
    cluster.until(DEFINITION, Value::is_null).await;
    namespace.until_gone("configmaps/dependent").await;
    cluster.sleep(NOTICED).await;
    let before = complaints();
    // An object whose owner has an unknown kind may wait for that kind; other objects are processed.
    let orphan = json!([{"apiVersion": "e2e.evenkeel.dev/v1", "kind": "Gizmo", "name": "top", "uid": "no-such-uid"}]);
    let orphan = json!({"metadata": {"name": "waiting", "ownerReferences": orphan}});
    namespace.create("configmaps", orphan).await;
    let owner = namespace.create("configmaps", config_map("owner", &[], &[])).await;
    let mut of_owner = owned_by(&owner, false);
    (of_owner["apiVersion"], of_owner["kind"]) = (json!("v1"), json!("ConfigMap"));
    namespace.create("configmaps", config_map("owned", &[of_owner], &[])).await;
    namespace.delete("configmaps/owner", "Background").await;
    namespace.until_gone("configmaps/owned").await;
    let ending = cluster.namespace("vanishing-too").await;
    let path = format!("namespaces/{}", ending.name);
    cluster.delete(&path, "Background").await;
    cluster.until(&path, Value::is_null).await;
    cluster.sleep(Duration::from_secs(10)).await;
    let after = complaints();
    assert!(before.len() <= 16, "{before:#?}");
    // The waiting object may be in the log.
    assert!(after.len() <= before.len() + 8, "it does not end: {after:#?}");

    comes(cluster, &namespace).await;
    let path = format!("namespaces/{}", namespace.name);
    cluster.delete(&path, "Background").await;
    cluster.until(&path, Value::is_null).await;
    cluster.delete(DEFINITION, "Background").await;
    cluster.until(DEFINITION, Value::is_null).await;
}

/// Installs the kind, and creates an object that a quota counts and that owns another object.
async fn comes(cluster: &Cluster, namespace: &Namespace<'_>) {
    let definition = json!({
        "metadata": {"name": "gizmos.e2e.evenkeel.dev"},
        "spec": {
            "group": "e2e.evenkeel.dev",
            "scope": "Namespaced",
            "names": {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    cluster.create("customresourcedefinitions", definition).await;
    cluster
        .until(DEFINITION, |definition| condition(definition, "Established")["status"] == "True")
        .await;
    namespace.until("gizmos", |list| !list.is_null()).await;
    let count = |quota: &Value| quota["status"]["used"]["count/gizmos.e2e.evenkeel.dev"].clone();
    // The server refuses creations until the quota counts the kind.
    namespace.until("resourcequotas/quota", |quota| count(quota).is_string()).await;
    let gizmo =
        json!({"apiVersion": "e2e.evenkeel.dev/v1", "kind": "Gizmo", "metadata": {"name": "top"}});
    let top = namespace.create("gizmos", gizmo).await;
    namespace.create("configmaps", config_map("dependent", &[owned_by(&top, false)], &[])).await;
    namespace.until("resourcequotas/quota", |quota| count(quota) == "1").await;
}

/// Returns the warnings and errors that name the kind.
fn about_it(program: &Program) -> Vec<String> {
    let grave = |line: &&str| line.starts_with('W') || line.starts_with('E');
    let log = program.log();
    log.lines().filter(grave).filter(|line| line.contains("izmo")).map(str::to_owned).collect()
}
