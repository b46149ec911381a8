//! Services of type LoadBalancer, and nodes with machines in a cloud.

use crate::{
    cluster::{Cluster, Namespace},
    deployment::until_event,
};
use evenkeel_cloud::ip_pool::{Config, IpPool, Machine};
use serde_json::{Value, json};
use std::sync::Arc;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const NODE: &str = "nodes/e2e-metal";

/// Pools and machines of the cluster.
fn config() -> Config {
    Config::parse(
        "pools: [{name: default, addresses: [198.18.0.0/24]}, {name: tiny, addresses: [198.18.1.1]}]
nodes: {machines: []}",
    )
    .expect("a configuration")
}

/// Returns the cloud of these tests' clusters.
pub(crate) fn provider() -> Arc<IpPool> {
    Arc::new(IpPool::new(&config()).expect("good pools"))
}

fn balanced(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

fn address(service: &Value) -> Option<&str> {
    service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str()
}

async fn given(namespace: &Namespace<'_>, name: &str) -> Value {
    namespace.until(&format!("services/{name}"), |service| address(service).is_some()).await
}

pub(crate) async fn a_load_balancer_gets_an_address_and_gives_it_back(cluster: &Cluster) {
    let namespace = cluster.namespace("balanced").await;
    let mut asking = balanced("asks");
    asking["spec"]["loadBalancerIP"] = json!("198.18.0.77");
    asking["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
    namespace.create("services", asking).await;
    let service = given(&namespace, "asks").await;
    let ingress = &service["status"]["loadBalancer"]["ingress"];
    assert_eq!(*ingress, json!([{"ip": "198.18.0.77", "ipMode": "VIP"}]));
    assert_eq!(service["metadata"]["finalizers"], json!([FINALIZER]));
    until_event(&namespace, "asks", "EnsuringLoadBalancer", "Ensuring load balancer").await;
    until_event(&namespace, "asks", "EnsuredLoadBalancer", "Ensured load balancer").await;
    until_event(&namespace, "asks", "LoadBalancerSourceRangesIgnored", "has no effect").await;
    namespace.create("services", balanced("other")).await;
    assert_ne!(address(&given(&namespace, "other").await), Some("198.18.0.77"));

    // Another Service type releases the address and the rest of the load balancer.
    let change = json!({"spec": {"type": "ClusterIP", "loadBalancerIP": null, "loadBalancerSourceRanges": null}});
    namespace.patch("services/asks", change).await;
    let free = |service: &Value| service["metadata"]["finalizers"].is_null();
    let plain = namespace.until("services/asks", free).await;
    assert_eq!(address(&plain), None, "{plain:#}");
    until_event(&namespace, "asks", "DeletedLoadBalancer", "Deleted load balancer").await;
    let mut next = balanced("next");
    next["spec"]["loadBalancerIP"] = json!("198.18.0.77");
    namespace.create("services", next).await;
    given(&namespace, "next").await;

    // Services of another load balancer class are ignored.
    let mut classed = balanced("classed");
    classed["spec"]["loadBalancerClass"] = json!("example.com/other");
    namespace.create("services", classed).await;

    // A node is added and deleted: load balancers are updated.
    let node = json!({
        "metadata": {"name": "e2e-host", "labels": {}},
        "spec": {"taints": [{"key": "e2e.evenkeel.dev/reserved", "effect": "NoSchedule"}]},
    });
    cluster.create("nodes", node).await;
    until_event(&namespace, "next", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        .await;
    cluster.delete("nodes/e2e-host", "Background").await;

    // Deletion is delayed no longer than necessary.
    for name in ["next", "other", "classed"] {
        namespace.delete(&format!("services/{name}"), "Background").await;
        namespace.until_gone(&format!("services/{name}")).await;
    }
}

pub(crate) async fn an_exhausted_pool_says_so_and_serves_who_waits(cluster: &Cluster) {
    let namespace = cluster.namespace("exhausted").await;
    for name in ["first", "second"] {
        let mut service = balanced(name);
        service["metadata"]["annotations"] = json!({"evenkeel.dev/address-pool": "tiny"});
        namespace.create("services", service).await;
        if name == "first" {
            assert_eq!(address(&given(&namespace, name).await), Some("198.18.1.1"));
        }
    }
    until_event(&namespace, "second", "SyncLoadBalancerFailed", "no free IPv4 address is left")
        .await;
    namespace.delete("services/first", "Background").await;
    assert_eq!(address(&given(&namespace, "second").await), Some("198.18.1.1"));
}

fn with_machine(machine: Machine) -> Config {
    let mut config = config();
    config.nodes.get_or_insert_default().machines.push(machine);
    config
}

fn cloud_taints(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    let keys = taints.iter().filter_map(|taint| taint["key"].as_str());
    keys.filter(|key| key.starts_with("node.cloudprovider.kubernetes.io/")).collect()
}

pub(crate) async fn a_machine_makes_a_node_and_takes_it_away(cluster: &Cluster) {
    let machine = Machine {
        name: "e2e-metal".into(),
        internal: vec!["10.9.8.7".into()],
        zone: "cellar".into(),
        instance_type: "metal".into(),
        ..Machine::default()
    };
    cluster.cloud().set(&with_machine(machine.clone())).expect("good machines");
    let waits = "node.cloudprovider.kubernetes.io/uninitialized";
    let node = json!({
        "metadata": {"name": "e2e-metal"},
        "spec": {"taints": [
            {"key": waits, "value": "true", "effect": "NoSchedule"},
            {"key": "e2e.evenkeel.dev/reserved", "effect": "NoSchedule"},
        ]},
    });
    cluster.create("nodes", node).await;
    let node = cluster
        .until(NODE, |node| cloud_taints(node).is_empty() && !node["status"]["addresses"].is_null())
        .await;
    assert_eq!(node["spec"]["providerID"], "ip-pool://e2e-metal");
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "cellar");
    assert_eq!(node["metadata"]["labels"]["node.kubernetes.io/instance-type"], "metal");
    let address = json!([{"type": "InternalIP", "address": "10.9.8.7"}]);
    assert_eq!(node["status"]["addresses"], address);

    let off = Machine { shut_down: true, ..machine };
    cluster.cloud().set(&with_machine(off)).expect("good machines");
    let shutdown = "node.cloudprovider.kubernetes.io/shutdown";
    cluster.until(NODE, |node| cloud_taints(node) == [shutdown]).await;

    // A node that is Ready again has no such taint.
    let ready = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "Test", "message": ""},
    ]}});
    cluster.patch(&format!("{NODE}/status"), ready).await;
    cluster.until(NODE, |node| cloud_taints(node).is_empty()).await;

    let silent = json!({"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "Test", "message": ""},
    ]}});
    cluster.patch(&format!("{NODE}/status"), silent).await;
    cluster.until(NODE, |node| cloud_taints(node) == [shutdown]).await;
    cluster.cloud().set(&config()).expect("good machines");
    cluster.until(NODE, Value::is_null).await;
}
