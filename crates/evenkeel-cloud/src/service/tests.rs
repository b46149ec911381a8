//! Tests of decisions in tables of cases, and a property test: after any events, the plans converge to the desired state.

use super::{
    changes,
    hosts::{self, Hosts},
    plan::{self, Decision, FINALIZER, LastApplied},
};
use crate::fixtures::{action_summaries, apply, balanced, event, node, node_view, service};
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

fn last(service: &Arc<Service>, ensured: bool) -> LastApplied {
    LastApplied { service: Arc::clone(service), ensured, hosts: hosts_of(&["a"]) }
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
fn decision_follows_service_and_last_state() {
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
    for (name, now, before, expected) in table {
        let now = now.map(service);
        let before = before.map(|(json, ensured)| last(&service(json), ensured));
        let decided = plan::decide(now.as_deref(), before.as_ref(), &hosts_of(&["a"]));
        assert_eq!(decided, expected, "{name}");
    }
    let up_to_date = last(&service(&plain), true);
    let other_hosts =
        plan::decide(Some(&service(&plain)), Some(&up_to_date), &hosts_of(&["a", "b"]));
    assert_eq!(other_hosts, Hosts);
}

#[test]
fn only_fields_of_the_load_balancer_need_an_update() {
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
            !changes::needs_update(&old, &new) && !plan::needs_sync(Some(&old), &new),
            "{pointer}"
        );
    }
}

#[test]
fn events_and_writes_from_creation_to_deletion() {
    let mut object = balanced("s");
    let before = plan::before_ensure(&service(&object), 1);
    assert_eq!(action_summaries(&before), ["EnsuringLoadBalancer", "patch services"]);
    apply(&before, &mut object);
    assert_eq!(object["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(
        action_summaries(&plan::before_ensure(&service(&object), 0)),
        ["EnsuringLoadBalancer", "UnAvailableLoadBalancer"]
    );
    let after = plan::after_ensure(&service(&object), &status("198.18.0.1"));
    assert_eq!(action_summaries(&after), ["EnsuredLoadBalancer", "patch services"]);
    apply(&after, &mut object);
    assert_eq!(object["status"]["loadBalancer"]["ingress"], json!([{"ip": "198.18.0.1"}]));
    // The server sets this default.
    object["status"]["loadBalancer"]["ingress"][0]["ipMode"] = json!("VIP");
    let again = plan::after_ensure(&service(&object), &status("198.18.0.1"));
    assert_eq!(action_summaries(&again), ["EnsuredLoadBalancer"], "the status is unchanged");
    let gone = plan::after_cleanup(&service(&object));
    assert_eq!(action_summaries(&gone), ["patch services", "DeletedLoadBalancer"]);
    apply(&gone, &mut object);
    assert_eq!(object["metadata"]["finalizers"], json!([]));
    assert_eq!(object["status"]["loadBalancer"], json!({}));
    assert_eq!(action_summaries(&plan::after_cleanup(&service(&object))), ["DeletedLoadBalancer"]);
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
fn failed_operations_have_their_own_event_reasons() {
    let s = service(&balanced("s"));
    let sync = plan::failure_event(&s, &Decision::Ensure, "no");
    assert_eq!(event(&sync).reason, "SyncLoadBalancerFailed");
    assert_eq!(event(&sync).message, "Error syncing load balancer: no");
    assert_eq!(
        event(&plan::failure_event(&s, &Decision::Release, "no")).reason,
        "DeleteLoadBalancerFailed"
    );
    let names: Vec<String> = (10..35).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = plan::refused_hosts_event(&s, &hosts_of(&names), "no");
    let message = &event(&refused).message;
    assert!(
        message.contains("n29 <5 more>]") && message.contains("total number of nodes: 25"),
        "{message}"
    );
    assert_eq!(
        event(&plan::updated_hosts_event(&s, &hosts_of(&[]))).reason,
        "UnAvailableLoadBalancer"
    );
    assert_eq!(
        event(&plan::updated_hosts_event(&s, &hosts_of(&["a"]))).reason,
        "UpdatedLoadBalancer"
    );
}

#[test]
fn nodes_are_eligible_unless_excluded_or_about_to_be_deleted() {
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
    for (name, json, expected) in table {
        assert_eq!(hosts::eligible(vec![node_view(&json)]).len() == 1, expected, "{name}");
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

/// Simulation of one service, a cloud, and a controller. A restart clears the controller's memory.
struct Simulation {
    object: Option<Value>,
    cloud: Option<Hosts>,
    hosts: Hosts,
    memory: Option<LastApplied>,
    /// Number of the next calls to the cloud that fail.
    failures_left: u8,
}

#[derive(Debug, Clone)]
enum SimulatedEvent {
    Create,
    Type(&'static str),
    Annotate(u8),
    Delete,
    Nodes(u8),
    Restart,
    CloudFails(u8),
}

impl Simulation {
    fn apply_event(&mut self, simulated_event: &SimulatedEvent) {
        match (simulated_event, &mut self.object) {
            (SimulatedEvent::Create, None) => self.object = Some(balanced("s")),
            (SimulatedEvent::Type(kind), Some(object)) => object["spec"]["type"] = json!(kind),
            (SimulatedEvent::Annotate(n), Some(object)) => {
                object["metadata"]["annotations"] = json!({"n": n.to_string()});
            }
            (SimulatedEvent::Delete, Some(object)) => {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                self.remove_if_released();
            }
            (SimulatedEvent::Nodes(n), _) => {
                let names: Vec<String> = (0..*n).map(|n| n.to_string()).collect();
                self.hosts = hosts_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
            }
            (SimulatedEvent::Restart, _) => self.memory = None,
            (SimulatedEvent::CloudFails(n), _) => self.failures_left = *n,
            _ => {}
        }
    }

    /// Removes a deleted object once it has no finalizers.
    fn remove_if_released(&mut self) {
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
        self.remove_if_released();
    }

    fn call_cloud(&mut self) -> bool {
        let succeeds = self.failures_left == 0;
        self.failures_left = self.failures_left.saturating_sub(1);
        succeeds
    }

    /// Runs one sync as the controller does. Returns false if there is nothing to do.
    fn sync(&mut self) -> bool {
        let now = self.object.as_ref().map(service);
        match plan::decide(now.as_deref(), self.memory.as_ref(), &self.hosts) {
            Decision::Nothing => return false,
            Decision::Release => {
                if self.call_cloud() {
                    (self.cloud, self.memory) = (None, None);
                }
            }
            Decision::CleanUp => {
                if self.call_cloud() {
                    self.cloud = None;
                    self.write(&plan::after_cleanup(&now.unwrap()));
                    self.memory = None;
                }
            }
            Decision::Ensure => {
                let now = now.unwrap();
                self.memory = Some(LastApplied {
                    ensured: false,
                    hosts: self.hosts.clone(),
                    service: Arc::clone(&now),
                });
                self.write(&plan::before_ensure(&now, self.hosts.len()));
                if self.call_cloud() {
                    self.cloud = Some(self.hosts.clone());
                    self.write(&plan::after_ensure(&now, &status("198.18.0.1")));
                    self.memory.as_mut().unwrap().ensured = true;
                }
            }
            Decision::Hosts => {
                if self.call_cloud() {
                    self.cloud = Some(self.hosts.clone());
                    self.memory.as_mut().unwrap().hosts = self.hosts.clone();
                }
            }
        }
        true
    }
}

fn any_event() -> impl Strategy<Value = SimulatedEvent> {
    prop_oneof![
        3 => Just(SimulatedEvent::Create),
        2 => prop_oneof![Just("ClusterIP"), Just("LoadBalancer"), Just("NodePort")].prop_map(SimulatedEvent::Type),
        1 => any::<u8>().prop_map(SimulatedEvent::Annotate),
        1 => Just(SimulatedEvent::Delete),
        2 => (0u8..4).prop_map(SimulatedEvent::Nodes),
        1 => Just(SimulatedEvent::Restart),
        1 => (0u8..4).prop_map(SimulatedEvent::CloudFails),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn after_any_events_plans_converge(all in proptest::collection::vec((any_event(), 0usize..3), 0..12)) {
        let hosts = hosts_of(&["0"]);
        let mut simulation = Simulation { object: None, cloud: None, hosts, memory: None, failures_left: 0 };
        for (simulated_event, syncs) in &all {
            simulation.apply_event(simulated_event);
            for _ in 0..*syncs {
                simulation.sync();
            }
        }
        for syncs in 0.. {
            prop_assert!(syncs < 20, "does not converge");
            if !simulation.sync() {
                break;
            }
        }
        let expected = simulation.object.as_ref().is_some_and(|object| plan::wants_load_balancer(&service(object)));
        prop_assert_eq!(simulation.cloud.as_ref(), expected.then_some(&simulation.hosts));
        if let Some(object) = &simulation.object {
            let has_status = !service(object).status.load_balancer.ingress.is_empty();
            let is_held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            prop_assert_eq!((has_status, is_held), (expected, expected));
        }
    }
}
