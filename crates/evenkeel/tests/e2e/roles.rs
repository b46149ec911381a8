//! Roles that are aggregated from others.

use crate::cluster::Cluster;
use serde_json::{Value, json};

fn role(name: &str, label: &str, verbs: &[&str]) -> Value {
    let rules: Vec<Value> = verbs
        .iter()
        .map(|verb| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}))
        .collect();
    json!({"metadata": {"name": name, "labels": {"e2e.evenkeel.dev/part-of": label}}, "rules": rules})
}

fn whole(name: &str, label: &str, of: &str) -> Value {
    let mut role = role(name, label, &[]);
    role["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {"e2e.evenkeel.dev/part-of": of}}]});
    role
}

fn verbs(role: &Value) -> Vec<&str> {
    let rules = role["rules"].as_array().map_or(&[][..], Vec::as_slice);
    rules.iter().filter_map(|rule| rule["verbs"][0].as_str()).collect()
}

pub(crate) async fn are_put_together(cluster: &Cluster) {
    cluster.create("clusterroles", whole("e2e-whole", "nothing", "whole")).await;
    cluster.create("clusterroles", role("e2e-part-b", "whole", &["get", "list"])).await;
    cluster.create("clusterroles", role("e2e-part-a", "whole", &["watch", "get"])).await;
    let path = "clusterroles/e2e-whole";
    cluster.until(path, |role| verbs(role) == ["watch", "get", "list"]).await;
    cluster
        .patch(
            path,
            json!({"rules": [{"apiGroups": ["forged"], "resources": ["*"], "verbs": ["*"]}]}),
        )
        .await;
    cluster.until(path, |role| verbs(role) == ["watch", "get", "list"]).await;
    let away = json!({"metadata": {"labels": {"e2e.evenkeel.dev/part-of": "nothing"}}});
    cluster.patch("clusterroles/e2e-part-a", away).await;
    cluster.until(path, |role| verbs(role) == ["get", "list"]).await;
    cluster.delete("clusterroles/e2e-part-b", "Background").await;
    cluster.until(path, |role| verbs(role).is_empty()).await;
}

pub(crate) async fn follow_chains_of_parts(cluster: &Cluster) {
    cluster.create("clusterroles", whole("e2e-top", "nothing", "top")).await;
    cluster.create("clusterroles", whole("e2e-middle", "top", "middle")).await;
    cluster.create("clusterroles", role("e2e-bottom", "middle", &["get"])).await;
    cluster.until("clusterroles/e2e-top", |role| verbs(role) == ["get"]).await;
    let more = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    cluster.patch("clusterroles/e2e-bottom", more).await;
    cluster.until("clusterroles/e2e-top", |role| verbs(role) == ["list"]).await;
}
