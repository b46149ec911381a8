//! Tables of decisions, and a property: after any events, plans converge to the desired state.

use super::{
    changes,
    hosts::{self, Hosts},
    plan::{self, Decision, FINALIZER, Last},
};
use crate::fixtures::{apply, balanced, event, node, node_view, service, shape};
use evenkeel_api::views::{LoadBalancerIngress, LoadBalancerStatus, Service};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn hosts_of(names: &[&str]) -> Hosts {
    let nodes: Vec<_> = names.iter().map(|name| node_view(&node(name))).collect();
    Hosts::of(&nodes)
}

fn status(ip: &str) -> LoadBalancerStatus {
    let ingress = LoadBalancerIngress { ip: ip.into(), ..LoadBalancerIngress::default() };
    LoadBalancerStatus { ingress: Box::new([ingress]) }
}

fn last(service: &Arc<Service>, ensured: bool) -> Last {
    Last { service: Arc::clone(service), ensured, hosts: hosts_of(&["a"]) }
}

fn held(mut service: Value) -> Value {
    service["metadata"]["finalizers"] = json!([FINALIZER]);
    service
}

fn with(mut service: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    service.pointer_mut(parent).unwrap()[field] = value;
    service
}

#[test]
fn decision_by_service_and_last_state() {
    use Decision::{CleanUp, Ensure, Hosts, Nothing, Release};
    let plain = balanced("s");
    let internal = with(plain.clone(), "/spec/type", json!("ClusterIP"));
    let classed = with(plain.clone(), "/spec/loadBalancerClass", json!("example.com/lb"));
    let deleting =
        with(plain.clone(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let annotated = with(plain.clone(), "/metadata/annotations", json!({"a": "b"}));
    let other = balanced("other");
    let table = [
        ("new", Some(&plain), None, Ensure),
        ("ensured", Some(&plain), Some((&plain, true)), Nothing),
        ("failed earlier", Some(&plain), Some((&plain, false)), Ensure),
        ("changed", Some(&annotated), Some((&plain, true)), Ensure),
        ("type changed", Some(&internal), Some((&plain, true)), CleanUp),
        ("another type", Some(&internal), None, Nothing),
        ("load balancer class", Some(&classed), None, Nothing),
        ("finalizer, type changed", Some(&held(internal.clone())), None, CleanUp),
        ("finalizer, terminating", Some(&held(deleting.clone())), None, CleanUp),
        ("no finalizer, terminating", Some(&deleting), None, Nothing),
        ("finalizer, load balancer class", Some(&held(classed.clone())), None, Nothing),
        ("deleted without clean-up", None, Some((&plain, true)), Release),
        ("deleted, another type", None, Some((&internal, true)), Nothing),
        ("replaced", Some(&other), Some((&plain, true)), Release),
        ("unknown", None, None, Nothing),
    ];
    for (name, now, before, wanted) in table {
        let now = now.map(service);
        let before = before.map(|(json, ensured)| last(&service(json), ensured));
        let decided = plan::decide(now.as_deref(), before.as_ref(), &hosts_of(&["a"]));
        assert_eq!(decided, wanted, "{name}");
    }
    let done = last(&service(&plain), true);
    let other_hosts = plan::decide(Some(&service(&plain)), Some(&done), &hosts_of(&["a", "b"]));
    assert_eq!(other_hosts, Hosts);
}

#[test]
fn needs_update_by_field() {
    let plain = balanced("s");
    let relevant = [
        ("/spec/ports/0/nodePort", json!(30081)),
        ("/spec/ports/0/name", json!("http")),
        ("/spec/ports/0/appProtocol", json!("http2")),
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 5}})),
        ("/spec/loadBalancerIP", json!("198.18.0.9")),
        ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
        ("/spec/externalIPs", json!(["192.0.2.1"])),
        ("/spec/externalTrafficPolicy", json!("Local")),
        ("/spec/healthCheckNodePort", json!(31000)),
        ("/spec/ipFamilies", json!(["IPv4", "IPv6"])),
        ("/metadata/annotations", json!({"a": "b"})),
    ];
    for (pointer, value) in relevant {
        let changed = with(plain.clone(), pointer, value);
        assert!(changes::needs_update(&service(&plain), &service(&changed)), "{pointer}");
    }
    let irrelevant = [
        ("/metadata/labels", json!({"a": "b"})),
        ("/metadata/finalizers", json!([FINALIZER])),
        ("/spec/selector", json!({"a": "b"})),
        ("/status/loadBalancer", json!({"ingress": [{"ip": "198.18.0.1"}]})),
    ];
    for (pointer, value) in irrelevant {
        let (old, new) = (service(&plain), service(&with(plain.clone(), pointer, value)));
        assert!(
            !changes::needs_update(&old, &new) && !plan::concerns(Some(&old), &new),
            "{pointer}"
        );
    }
}

#[test]
fn events_and_writes_from_creation_to_deletion() {
    let mut object = balanced("s");
    let before = plan::before_ensure(&service(&object), 1);
    assert_eq!(shape(&before), ["EnsuringLoadBalancer", "patch services"]);
    apply(&before, &mut object);
    assert_eq!(object["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(
        shape(&plan::before_ensure(&service(&object), 0)),
        ["EnsuringLoadBalancer", "UnAvailableLoadBalancer"]
    );
    let after = plan::after_ensure(&service(&object), &status("198.18.0.1"));
    assert_eq!(shape(&after), ["EnsuredLoadBalancer", "patch services"]);
    apply(&after, &mut object);
    assert_eq!(object["status"]["loadBalancer"]["ingress"], json!([{"ip": "198.18.0.1"}]));
    // The server sets this default.
    object["status"]["loadBalancer"]["ingress"][0]["ipMode"] = json!("VIP");
    let again = plan::after_ensure(&service(&object), &status("198.18.0.1"));
    assert_eq!(shape(&again), ["EnsuredLoadBalancer"], "the status is unchanged");
    let gone = plan::after_cleanup(&service(&object));
    assert_eq!(shape(&gone), ["patch services", "DeletedLoadBalancer"]);
    apply(&gone, &mut object);
    assert_eq!(object["metadata"]["finalizers"], json!([]));
    assert_eq!(object["status"]["loadBalancer"], json!({}));
    assert_eq!(shape(&plan::after_cleanup(&service(&object))), ["DeletedLoadBalancer"]);
}

#[test]
fn status_is_written_with_all_fields() {
    let full = json!({"ingress": [{
        "hostname": "lb.example.com", "ipMode": "Proxy",
        "ports": [{"port": 80, "protocol": "TCP", "error": "NoRoute"}, {"port": 81, "protocol": "UDP"}],
    }]});
    let from = service(&with(balanced("s"), "/status/loadBalancer", full.clone()));
    let mut object = balanced("s");
    let plan = plan::after_ensure(&service(&object), &from.status.load_balancer);
    apply(&plan, &mut object);
    assert_eq!(object["status"]["loadBalancer"], full);
}

#[test]
fn failure_event_per_operation() {
    let s = service(&balanced("s"));
    let sync = plan::failed(&s, &Decision::Ensure, "no");
    assert_eq!(event(&sync).reason, "SyncLoadBalancerFailed");
    assert_eq!(event(&sync).message, "Error syncing load balancer: no");
    assert_eq!(
        event(&plan::failed(&s, &Decision::Release, "no")).reason,
        "DeleteLoadBalancerFailed"
    );
    let names: Vec<String> = (10..35).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = plan::refused_hosts(&s, &hosts_of(&names), "no");
    let message = &event(&refused).message;
    assert!(
        message.contains("n29 <5 more>]") && message.contains("total number of nodes: 25"),
        "{message}"
    );
    assert_eq!(event(&plan::after_hosts(&s, &hosts_of(&[]))).reason, "UnAvailableLoadBalancer");
    assert_eq!(event(&plan::after_hosts(&s, &hosts_of(&["a"]))).reason, "UpdatedLoadBalancer");
}

#[test]
fn eligible_nodes() {
    let label = "/metadata/labels";
    let excluded =
        |value: &str| json!({"node.kubernetes.io/exclude-from-external-load-balancers": value});
    let table = [
        ("ready", node("n"), true),
        ("not ready", with(node("n"), "/status/conditions", json!([])), true),
        ("cordoned", with(node("n"), "/spec/unschedulable", json!(true)), true),
        ("excluded", with(node("n"), label, excluded("true")), false),
        ("excluded without a value", with(node("n"), label, excluded("")), false),
        ("not excluded", with(node("n"), label, excluded("false")), true),
        (
            "marked by the Cluster Autoscaler",
            with(
                node("n"),
                "/spec/taints",
                json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
            ),
            false,
        ),
        (
            "deleting",
            with(node("n"), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            false,
        ),
    ];
    for (name, json, wanted) in table {
        assert_eq!(hosts::eligible(vec![node_view(&json)]).len() == 1, wanted, "{name}");
    }
    let n = |json: Value| node_view(&json);
    let plain = n(node("n"));
    assert!(hosts::should_sync_updated_node(&plain, &n(with(node("n"), label, excluded("true")))));
    assert!(hosts::should_sync_updated_node(
        &plain,
        &n(with(node("n"), "/spec/providerID", json!("x://1")))
    ));
    assert!(!hosts::should_sync_updated_node(
        &plain,
        &n(with(node("n"), "/status/conditions", json!([])))
    ));
}

/// Model of a service, a cloud, and a controller that may lose its memory.
struct World {
    object: Option<Value>,
    cloud: Option<Hosts>,
    hosts: Hosts,
    memory: Option<Last>,
    fails: u8,
}

#[derive(Debug, Clone)]
enum WorldEvent {
    Create,
    Type(&'static str),
    Annotate(u8),
    Delete,
    Nodes(u8),
    Restart,
    CloudFails(u8),
}

impl World {
    fn happen(&mut self, what: &WorldEvent) {
        match (what, &mut self.object) {
            (WorldEvent::Create, None) => self.object = Some(balanced("s")),
            (WorldEvent::Type(kind), Some(object)) => object["spec"]["type"] = json!(kind),
            (WorldEvent::Annotate(n), Some(object)) => {
                object["metadata"]["annotations"] = json!({"n": n.to_string()});
            }
            (WorldEvent::Delete, Some(object)) => {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                self.reap();
            }
            (WorldEvent::Nodes(n), _) => {
                let names: Vec<String> = (0..*n).map(|n| n.to_string()).collect();
                self.hosts = hosts_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
            }
            (WorldEvent::Restart, _) => self.memory = None,
            (WorldEvent::CloudFails(n), _) => self.fails = *n,
            _ => {}
        }
    }

    /// Removes a deleted object once it has no finalizers.
    fn reap(&mut self) {
        let gone = |object: &mut Value| {
            let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            !held && !object["metadata"]["deletionTimestamp"].is_null()
        };
        self.object.take_if(gone);
    }

    fn write(&mut self, plan: &evenkeel_runtime::plan::Plan) {
        assert_eq!(evenkeel_runtime::plan::lint(plan), Vec::<String>::new());
        if let Some(object) = &mut self.object {
            apply(plan, object);
        }
        self.reap();
    }

    fn cloud_answers(&mut self) -> bool {
        let fails = self.fails > 0;
        self.fails = self.fails.saturating_sub(1);
        !fails
    }

    /// Runs one pass as the shell does. Returns false if it has nothing to do.
    fn pass(&mut self) -> bool {
        let now = self.object.as_ref().map(service);
        match plan::decide(now.as_deref(), self.memory.as_ref(), &self.hosts) {
            Decision::Nothing => return false,
            Decision::Release => {
                if self.cloud_answers() {
                    (self.cloud, self.memory) = (None, None);
                }
            }
            Decision::CleanUp => {
                if self.cloud_answers() {
                    self.cloud = None;
                    self.write(&plan::after_cleanup(&now.unwrap()));
                    self.memory = None;
                }
            }
            Decision::Ensure => {
                let now = now.unwrap();
                self.memory = Some(Last {
                    ensured: false,
                    hosts: self.hosts.clone(),
                    service: Arc::clone(&now),
                });
                self.write(&plan::before_ensure(&now, self.hosts.len()));
                if self.cloud_answers() {
                    self.cloud = Some(self.hosts.clone());
                    self.write(&plan::after_ensure(&now, &status("198.18.0.1")));
                    self.memory.as_mut().unwrap().ensured = true;
                }
            }
            Decision::Hosts => {
                if self.cloud_answers() {
                    self.cloud = Some(self.hosts.clone());
                    self.memory.as_mut().unwrap().hosts = self.hosts.clone();
                }
            }
        }
        true
    }
}

fn any_event() -> impl Strategy<Value = WorldEvent> {
    prop_oneof![
        3 => Just(WorldEvent::Create),
        2 => prop_oneof![Just("ClusterIP"), Just("LoadBalancer"), Just("NodePort")].prop_map(WorldEvent::Type),
        1 => any::<u8>().prop_map(WorldEvent::Annotate),
        1 => Just(WorldEvent::Delete),
        2 => (0u8..4).prop_map(WorldEvent::Nodes),
        1 => Just(WorldEvent::Restart),
        1 => (0u8..4).prop_map(WorldEvent::CloudFails),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn after_any_events_plans_converge(all in proptest::collection::vec((any_event(), 0usize..3), 0..12)) {
        let mut world = World { object: None, cloud: None, hosts: hosts_of(&["0"]), memory: None, fails: 0 };
        for (what, passes) in &all {
            world.happen(what);
            for _ in 0..*passes {
                world.pass();
            }
        }
        for passes in 0.. {
            prop_assert!(passes < 20, "does not converge");
            if !world.pass() {
                break;
            }
        }
        let wanted = world.object.as_ref().is_some_and(|object| plan::wants_load_balancer(&service(object)));
        prop_assert_eq!(world.cloud.as_ref(), wanted.then_some(&world.hosts));
        if let Some(object) = &world.object {
            let has_status = !service(object).status.load_balancer.ingress.is_empty();
            let is_held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            prop_assert_eq!((has_status, is_held), (wanted, wanted));
        }
    }
}
