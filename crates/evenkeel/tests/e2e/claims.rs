//! ResourceClaims that are created from templates of pods.

use crate::cluster::{Cluster, Namespace, items, name};
use serde_json::{Value, json};

fn template() -> Value {
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "e2e.evenkeel.dev"}}]);
    let spec = json!({"metadata": {"labels": {"from": "template"}}, "spec": {"devices": {"requests": requests}}});
    json!({"metadata": {"name": "t"}, "spec": spec})
}

/// Returns a pod that no scheduler handles, with one claim from a template.
fn pod() -> Value {
    json!({
        "metadata": {"name": "p"},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "c", "image": "app:v1", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        },
    })
}

/// Returns the name of the pod's claim, once the status has it.
async fn claim_of_pod(namespace: &Namespace<'_>, not: &str) -> String {
    let claim_name = |pod: &Value| {
        pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let has_name = |pod: &Value| !claim_name(pod).is_empty() && claim_name(pod) != not;
    claim_name(&namespace.until("pods/p", has_name).await)
}

pub(crate) async fn are_made_from_templates_and_made_again(cluster: &Cluster) {
    let namespace = cluster.namespace("claims").await;
    namespace.create("resourceclaimtemplates", template()).await;
    namespace.create("pods", pod()).await;
    let first = claim_of_pod(&namespace, "").await;
    assert!(first.starts_with("p-gpu-"), "{first}");
    let claim = namespace.get(&format!("resourceclaims/{first}")).await;
    assert_eq!(claim["metadata"]["labels"]["from"], "template");
    assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpu");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "p");
    assert_eq!(claim["spec"]["devices"]["requests"][0]["name"], "r");
    namespace.delete(&format!("resourceclaims/{first}"), "Background").await;
    let second = claim_of_pod(&namespace, &first).await;
    namespace.until("resourceclaims", |claims| items(claims).len() == 1).await;
    assert_eq!(name(&items(&namespace.get("resourceclaims").await)[0]), second);
    // A completed pod needs no claim.
    namespace.patch("pods/p/status", json!({"status": {"phase": "Failed"}})).await;
    namespace.until_none("resourceclaims").await;
}

pub(crate) async fn wait_for_their_template(cluster: &Cluster) {
    let namespace = cluster.namespace("claims").await;
    namespace.create("pods", pod()).await;
    let why = r#"PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found"#;
    let has_name =
        |event: &Value| event["reason"] == "FailedResourceClaimCreation" && event["message"] == why;
    namespace.until("events", |events| items(events).iter().any(has_name)).await;
    namespace.create("resourceclaimtemplates", template()).await;
    claim_of_pod(&namespace, "").await;
    namespace.until("resourceclaims", |claims| items(claims).len() == 1).await;
}
