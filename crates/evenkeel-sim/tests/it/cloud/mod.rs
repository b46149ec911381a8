//! A cloud's controllers, with crashes after each write, lost responses, and a failing cloud.

mod metal;

use crate::fixtures::{MINUTE, REST, SECOND, SILENCE, uid};
use evenkeel_sim::{Cloud, FaultKind, Faults, Options, World, explore, part};
use metal::Metal;
use serde_json::{Value, json};
use std::sync::Arc;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const NODES: &str = "/api/v1/nodes";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Field with the address of a load balancer, and the reason why it is not compared.
const BALANCER: &str = "Service/status/loadBalancer";
const ANY_ADDRESS: &str = "which free address a Service gets depends on who asks first";

fn with(cloud: &Metal) -> Options {
    let cloud = cloud.clone();
    let mut cloud = Cloud::new(move || Arc::new(cloud.clone()));
    cloud.options.cluster_cidrs = vec!["10.200.0.0/16".to_owned()];
    // Addresses are requested rarely enough that a settled world is silent.
    Options {
        cloud,
        parts: vec![part::NODES, part::CONTROLLERS, part::CLOUD],
        ..Options::default()
    }
    .ignores(BALANCER, ANY_ADDRESS)
}

/// Options with the provider of address pools.
fn with_pool() -> Options {
    let parts = vec![part::NODES, part::CONTROLLERS, part::CLOUD];
    Options { parts, ..Options::default() }.ignores(BALANCER, ANY_ADDRESS)
}

fn balanced(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": [{ "port": 80 }] },
    })
}

fn address(service: &Value) -> Option<&str> {
    service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str()
}

fn is_held(service: &Value) -> bool {
    service["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)))
}

async fn service(world: &World, name: &str) -> Value {
    world.get(&format!("{SERVICES}/{name}")).await.expect("the service is there")
}

/// Waits until the world has settled, including the retries of failed calls of the cloud.
async fn come_to_rest(world: &mut World) {
    world.settle(2 * MINUTE).await;
}

/// Services are created, changed and deleted. At the end, each Service of type LoadBalancer has its own address, and no other
/// address is held.
async fn balancers(world: &mut World, faults: Faults, pool: &[&str]) {
    world.settle(REST).await;
    world.arm(faults);
    for name in ["a", "b", "c"] {
        world.create(SERVICES, &balanced(name)).await;
        world.pass(SECOND / 5).await;
    }
    world.merge(&format!("{SERVICES}/a"), &json!({ "spec": { "type": "ClusterIP" } })).await;
    world.pass(SECOND / 5).await;
    world.delete(&format!("{SERVICES}/b"), "Background").await;
    come_to_rest(world).await;
    world.create(SERVICES, &balanced("d")).await;
    come_to_rest(world).await;
    assert!(world.get(&format!("{SERVICES}/b")).await.is_none(), "b is gone");
    let a = service(world, "a").await;
    assert_eq!((address(&a), is_held(&a)), (None, false), "{a:#}");
    let (c, d) = (service(world, "c").await, service(world, "d").await);
    for one in [&c, &d] {
        assert!(is_held(one) && pool.contains(&address(one).expect("an address")), "{one:#}");
    }
    assert_ne!(address(&c), address(&d));
    world.stays_silent(SILENCE).await;
}

const FREE: [&str; 4] = ["198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.0.4"];

#[test]
fn load_balancers_with_a_fault_at_each_write() {
    let cloud = Metal::default();
    let scenario = async |world: &mut World, faults: Faults| {
        cloud.reset([]);
        balancers(world, faults, &FREE).await;
        let (c, d) = (service(world, "c").await, service(world, "d").await);
        let mut wanted = [uid(&c).to_owned(), uid(&d).to_owned()];
        wanted.sort();
        let there: Vec<String> = cloud.state().balancers.keys().cloned().collect();
        assert_eq!(there, wanted, "the cloud has what is wanted and nothing else");
        for (_, hosts) in cloud.state().balancers.values() {
            assert_eq!(*hosts, ["node-0", "node-1", "node-2"]);
        }
    };
    for what in [FaultKind::CrashAfter, FaultKind::LoseAnswer, FaultKind::Refuse(500)] {
        assert!(explore::each_write(&with(&cloud), part::CLOUD, what, &scenario) >= 8, "{what:?}");
    }
}

#[test]
fn pool_allocates_no_address_twice_across_restarts() {
    let scenario = async |world: &mut World, faults: Faults| balancers(world, faults, &FREE).await;
    for what in [FaultKind::CrashAfter, FaultKind::BreakWatches] {
        assert!(explore::each_write(&with_pool(), part::CLOUD, what, &scenario) >= 8, "{what:?}");
    }
    let stale = Faults { max_watch_delay: 3 * SECOND, ..Faults::default() };
    explore::with_faults(&with_pool(), stale, &scenario);
}

#[test]
fn failed_cloud_calls_are_retried() {
    for at in (1..20).step_by(3) {
        let cloud = Metal::default();
        let scenario = async |world: &mut World, faults: Faults| {
            // Four consecutive failures, alternately with and without a retry delay.
            cloud.reset(at..at + 4);
            cloud.state().asks_for_patience = at % 2 == 0;
            balancers(world, faults, &FREE).await;
            assert_eq!(cloud.state().balancers.len(), 2);
        };
        explore::with_faults(&with(&cloud), Faults::default(), &scenario);
    }
}

#[test]
fn load_balancers_follow_nodes() {
    let cloud = Metal::default();
    let scenario = async |world: &mut World, faults: Faults| {
        cloud.reset([]);
        world.settle(REST).await;
        world.create(SERVICES, &balanced("a")).await;
        world.settle(REST).await;
        world.arm(faults);
        let hosts = || cloud.state().balancers.values().next().expect("one").1.clone();
        let exclude = json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
        world.merge(&format!("{NODES}/node-1"), &exclude).await;
        world.pass(SECOND).await;
        assert_eq!(hosts(), ["node-0", "node-2"]);
        let include = json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": null } } });
        world.merge(&format!("{NODES}/node-1"), &include).await;
        world.pass(SECOND).await;
        assert_eq!(hosts().len(), 3);
        let calls = |world: &World| world.writes(part::CLOUD);
        assert_eq!(calls(world), 0, "nothing of the service changes");
    };
    explore::with_faults(&with(&cloud), Faults::default(), &scenario);
}

/// The life cycle of a node in a cloud: the node is initialized, stops reporting, is tainted, and is deleted with its
/// machine.
async fn machine(world: &mut World, faults: Faults, cloud: &Metal) {
    world.settle(REST).await;
    cloud.state().machines.insert("metal".into(), false);
    world.arm(faults);
    let uninitialised = json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" });
    let node = json!({
        "metadata": { "name": "metal" },
        "spec": { "taints": [uninitialised], "podCIDRs": ["10.200.1.0/24"], "podCIDR": "10.200.1.0/24" },
    });
    world.create(NODES, &node).await;
    world.pass(2 * MINUTE).await;
    let path = format!("{NODES}/metal");
    let node = world.get(&path).await.expect("it is there");
    assert_eq!(node["spec"]["providerID"], "metal://metal", "{node:#}");
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "cellar");
    assert_eq!(
        node["status"]["addresses"],
        json!([{ "type": "InternalIP", "address": "10.9.0.1" }])
    );
    let keys = |node: &Value| -> Vec<String> {
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints
            .iter()
            .filter_map(|taint| taint["key"].as_str())
            .filter(|key| key.starts_with("node.cloudprovider"))
            .map(str::to_owned)
            .collect()
    };
    assert!(keys(&node).is_empty(), "{node:#}");
    let reachable =
        node["status"]["conditions"].as_array().expect("conditions").iter().any(|condition| {
            condition["type"] == "NetworkUnavailable" && condition["status"] == "False"
        });
    assert!(reachable, "{node:#}");
    let routes: Vec<String> = cloud.state().routes.iter().map(|r| r.destination.clone()).collect();
    assert_eq!(routes, ["10.200.1.0/24"]);
    cloud.state().machines.insert("metal".into(), true);
    world.pass(MINUTE).await;
    let node = world.get(&path).await.expect("a machine that is shut down has its node");
    assert_eq!(keys(&node), ["node.cloudprovider.kubernetes.io/shutdown"], "{node:#}");
    cloud.state().machines.remove("metal");
    world.pass(MINUTE).await;
    assert!(world.get(&path).await.is_none(), "its machine is gone");
    world.pass(MINUTE).await;
    assert_eq!(cloud.state().routes, []);
    assert_eq!(world.list(NODES).await.len(), 3, "nodes that are ready are not asked for");
}

#[test]
fn machine_with_a_fault_at_each_write() {
    let cloud = Metal::default();
    let scenario = async |world: &mut World, faults: Faults| {
        cloud.reset([]);
        machine(world, faults, &cloud).await;
        world.stays_silent(4 * MINUTE).await;
    };
    for what in [FaultKind::CrashAfter, FaultKind::Refuse(409)] {
        assert!(explore::each_write(&with(&cloud), part::CLOUD, what, &scenario) >= 5, "{what:?}");
    }
}

#[test]
fn machine_with_failing_cloud_calls() {
    let cloud = Metal::default();
    // The failing calls are drawn at random, because periodic calls could hit every fixed interval.
    let drawn =
        |call: u64, every: u64| (call.wrapping_mul(2_654_435_761) >> 7).is_multiple_of(every);
    for every in [4, 7] {
        let scenario = async |world: &mut World, faults: Faults| {
            cloud.reset((0..2000).filter(|call| drawn(*call, every)));
            machine(world, faults, &cloud).await;
        };
        explore::with_faults(&with(&cloud), Faults::default(), &scenario);
    }
}
