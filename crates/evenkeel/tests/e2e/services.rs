//! Services, their endpoints, and the ranges of their cluster IPs.

use crate::{
    cluster::{Cluster, Namespace, condition, items},
    objects::replica_set,
};
use serde_json::{Value, json};
use std::time::Duration;

fn service(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec})
}

fn slices_of(service: &str) -> String {
    format!("endpointslices?labelSelector=kubernetes.io/service-name={service}")
}

/// Returns the endpoints of all slices of a list.
fn endpoints(slices: &Value) -> Vec<&Value> {
    items(slices).iter().filter_map(|slice| slice["endpoints"].as_array()).flatten().collect()
}

fn ready(slices: &Value) -> usize {
    endpoints(slices).iter().filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
}

fn addresses(endpoints: &Value) -> usize {
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    subsets.filter_map(|subset| subset["addresses"].as_array()).map(Vec::len).sum()
}

async fn until_ready(namespace: &Namespace<'_>, service: &str, n: usize) -> Value {
    namespace.until(&format!("endpoints/{service}"), |endpoints| addresses(endpoints) == n).await;
    let is_so = |slices: &Value| ready(slices) == n && endpoints(slices).len() == n;
    namespace.until(&slices_of(service), is_so).await
}

pub(crate) async fn know_their_pods(cluster: &Cluster) {
    let namespace = cluster.namespace("services").await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    namespace.create("services", service("web", &spec)).await;
    let empty = namespace.until(&slices_of("web"), |slices| items(slices).len() == 1).await;
    let ports = items(&empty)[0]["ports"].as_array();
    assert!(ports.is_none_or(Vec::is_empty), "one without anything");
    namespace.create("replicasets", replica_set("web", 3, "app:v1")).await;
    let slices = until_ready(&namespace, "web", 3).await;
    assert_eq!(items(&slices).len(), 1, "the empty one was written over");
    let slice = &items(&slices)[0];
    assert_eq!(slice["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(slice["metadata"]["labels"]["team"], "a");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Service");
    assert!(endpoints(&slices).iter().all(|endpoint| endpoint["nodeName"].is_string()));
    namespace.patch("replicasets/web", json!({"spec": {"replicas": 1}})).await;
    until_ready(&namespace, "web", 1).await;
    namespace.patch("services/web", json!({"metadata": {"labels": {"team": "b"}}})).await;
    namespace
        .until(&slices_of("web"), |slices| items(slices)[0]["metadata"]["labels"]["team"] == "b")
        .await;
    namespace.delete("services/web", "Background").await;
    namespace.until_gone("endpoints/web").await;
    namespace.until_none(&slices_of("web")).await;
}

pub(crate) async fn are_mirrored_where_somebody_wrote_their_addresses(cluster: &Cluster) {
    let namespace = cluster.namespace("mirror").await;
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    namespace.create("services", service("manual", &json!({ "ports": ports }))).await;
    let subset = |ip: &str| json!({"addresses": [{"ip": ip}], "notReadyAddresses": [{"ip": "10.9.0.3"}], "ports": [{"name": "http", "port": 8080}]});
    let written = json!({"metadata": {"name": "manual", "annotations": {"note": "x"}}, "subsets": [subset("10.9.0.1")]});
    namespace.create("endpoints", written).await;
    let slices = namespace.until(&slices_of("manual"), |slices| endpoints(slices).len() == 2).await;
    let slice = &items(&slices)[0];
    assert_eq!(slice["metadata"]["annotations"], json!({"note": "x"}));
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
    assert_eq!(ready(&slices), 1);
    namespace.patch("endpoints/manual", json!({"subsets": [subset("10.9.0.2")]})).await;
    let is_new = |slices: &Value| {
        endpoints(slices).iter().any(|endpoint| endpoint["addresses"] == json!(["10.9.0.2"]))
    };
    let changed = namespace.until(&slices_of("manual"), is_new).await;
    assert_eq!(items(&changed)[0]["metadata"]["name"], slice["metadata"]["name"], "the same slice");
    let label = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    namespace.patch("endpoints/manual", json!({"metadata": {"labels": label}})).await;
    namespace.until_none(&slices_of("manual")).await;
}

pub(crate) async fn hold_the_ranges_that_their_addresses_are_of(cluster: &Cluster) {
    let namespace = cluster.namespace("ranges").await;
    let path = format!("servicecidrs/{}", namespace.name);
    let range = json!({"metadata": {"name": namespace.name}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    cluster.create("servicecidrs", range).await;
    let is = |range: &Value, status: &str| condition(range, "Ready")["status"] == status;
    cluster.until(&path, |range| is(range, "True")).await;
    let spec = json!({"clusterIP": "10.97.0.9", "ports": [{"port": 80}]});
    // The server may not know the range yet.
    while namespace.ask("POST", "services", service("far", &spec)).await.is_err() {
        cluster.sleep(Duration::from_secs(1)).await;
    }
    let address = cluster.get("ipaddresses/10.97.0.9").await;
    assert_eq!(address["spec"]["parentRef"]["name"], "far", "{address:#}");
    cluster.delete(&path, "Background").await;
    let held = cluster.until(&path, |range| is(range, "False")).await;
    assert_eq!(condition(&held, "Ready")["reason"], "Terminating");
    namespace.delete("services/far", "Background").await;
    cluster.until(&path, Value::is_null).await;
    assert!(cluster.get("ipaddresses/10.97.0.9").await.is_null());
}

pub(crate) async fn include_the_server_itself(cluster: &Cluster) {
    let path = "/api/v1/namespaces/default/endpoints/kubernetes";
    let whole = cluster.until(path, |endpoints| addresses(endpoints) > 0).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=kubernetes";
    let slices = cluster.until(slices, |slices| ready(slices) > 0).await;
    let ip = &whole["subsets"][0]["addresses"][0]["ip"];
    assert_eq!(endpoints(&slices)[0]["addresses"][0], *ip);
    assert_eq!(items(&slices).len(), 1, "nothing is mirrored");
}
