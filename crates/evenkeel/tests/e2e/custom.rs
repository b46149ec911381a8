//! Objects of kinds that come and go while controllers run; the embedded server has no such kinds yet.

use crate::{
    cluster::{Cluster, condition},
    objects::{config_map, owned_by},
};
use serde_json::json;

pub(crate) async fn resources_own_and_are_owned(cluster: &Cluster) {
    let namespace = cluster.namespace("custom").await;
    let definition = json!({
        "metadata": {"name": "widgets.e2e.evenkeel.dev"},
        "spec": {
            "group": "e2e.evenkeel.dev",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    cluster.create("customresourcedefinitions", definition).await;
    let path = "customresourcedefinitions/widgets.e2e.evenkeel.dev";
    cluster
        .until(path, |definition| condition(definition, "Established")["status"] == "True")
        .await;
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

    // A namespace that holds some of them ends, too, and what is left goes with its definition.
    let ending = cluster.namespace("custom-ending").await;
    ending.create("widgets", widget("one", &[])).await;
    let ending = format!("namespaces/{}", ending.name);
    cluster.delete(&ending, "Background").await;
    cluster.until(&ending, serde_json::Value::is_null).await;
    cluster.delete(path, "Background").await;
    cluster.until(path, serde_json::Value::is_null).await;
}
