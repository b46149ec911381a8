//! Objects of kinds that are installed and removed while controllers run.

use crate::{
    cluster::{Cluster, condition},
    objects::{config_map, owned_by},
};
use serde_json::json;

/// Installs a CustomResourceDefinition, waits until it is established, and returns its path.
async fn define(cluster: &Cluster, group: &str, plural: &str, kind: &str) -> String {
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    cluster.create("customresourcedefinitions", definition).await;
    let path = format!("customresourcedefinitions/{plural}.{group}");
    cluster
        .until(&path, |definition| condition(definition, "Established")["status"] == "True")
        .await;
    path
}

pub(crate) async fn resources_are_counted_by_quotas(cluster: &Cluster) {
    let namespace = cluster.namespace("custom-quota").await;
    let path = define(cluster, "quota.evenkeel.dev", "gadgets", "Gadget").await;
    namespace.until("gadgets", |list| !list.is_null()).await;
    let count = "count/gadgets.quota.evenkeel.dev";
    let quota = json!({"metadata": {"name": "one"}, "spec": {"hard": {count: "1"}}});
    namespace.create("resourcequotas", quota).await;
    let used = |wanted: &'static str| {
        move |quota: &serde_json::Value| quota["status"]["used"][count] == wanted
    };
    namespace.until("resourcequotas/one", used("0")).await;
    let gadget = |name: &str| json!({"apiVersion": "quota.evenkeel.dev/v1", "kind": "Gadget", "metadata": {"name": name}});
    namespace.create("gadgets", gadget("first")).await;
    namespace.until("resourcequotas/one", used("1")).await;
    let refused = namespace.ask("POST", "gadgets", gadget("second")).await;
    assert!(refused.expect_err("it is one too many").to_string().contains("exceeded quota"));
    namespace.delete("gadgets/first", "Background").await;
    namespace.until("resourcequotas/one", used("0")).await;
    cluster.delete(&path, "Background").await;
    cluster.until(&path, serde_json::Value::is_null).await;
}

pub(crate) async fn resources_own_and_are_owned(cluster: &Cluster) {
    let namespace = cluster.namespace("custom").await;
    let path = define(cluster, "e2e.evenkeel.dev", "widgets", "Widget").await;
    let widget = |name: &str, owners: &[serde_json::Value]| {
        let mut widget = config_map(name, owners, &[]);
        widget["apiVersion"] = json!("e2e.evenkeel.dev/v1");
        widget["kind"] = json!("Widget");
        widget
    };
    namespace.until("widgets", |list| !list.is_null()).await;
    let top = namespace.create("widgets", widget("top", &[])).await;
    let middle =
        namespace.create("configmaps", config_map("middle", &[owned_by(&top, true)], &[])).await;
    let mut of_middle = owned_by(&middle, true);
    (of_middle["apiVersion"], of_middle["kind"]) = (json!("v1"), json!("ConfigMap"));
    namespace.create("widgets", widget("bottom", &[of_middle])).await;
    namespace.create("widgets", widget("other", &[])).await;
    namespace.delete("widgets/top", "Foreground").await;
    namespace.until_gone("widgets/top").await;
    assert!(namespace.get("configmaps/middle").await.is_null());
    namespace.until_gone("widgets/bottom").await;
    assert!(!namespace.get("widgets/other").await.is_null());

    // A namespace with custom objects is deleted, and the remaining objects are deleted with their CustomResourceDefinition.
    let ending = cluster.namespace("custom-ending").await;
    ending.create("widgets", widget("one", &[])).await;
    let ending = format!("namespaces/{}", ending.name);
    cluster.delete(&ending, "Background").await;
    cluster.until(&ending, serde_json::Value::is_null).await;
    cluster.delete(&path, "Background").await;
    cluster.until(&path, serde_json::Value::is_null).await;
}
