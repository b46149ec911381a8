//! Table tests of plans. A property test checks that slices contain each pod once, with few writes.

use super::{
    desired::PlacedPod,
    hints::TopologyHints,
    plan::{Decision, Observed, decide},
    zones::Ratios,
};
use crate::{
    discovery::trigger::{TRIGGER_TIME_ANNOTATION, TriggerTimes},
    fixtures::{T0, object},
};
use evenkeel_api::views::{Endpoint, EndpointSlice, Node, Pod, Service};
use evenkeel_runtime::plan::{Action, Key, OnError};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A Service `ns/web` with its pods, slices and nodes.
struct World {
    service: Service,
    pods: BTreeMap<String, Pod>,
    slices: BTreeMap<String, EndpointSlice>,
    /// Zones of the existing nodes, by node name.
    nodes: BTreeMap<String, String>,
    /// CPU shares of the zones, for topology hints.
    ratios: Option<Ratios>,
    /// Memory of the topology hints from the previous pass.
    topology_hints: TopologyHints,
    /// Maximum number of endpoints in a slice.
    max_endpoints_per_slice: usize,
    /// Number of slices created so far.
    created: usize,
}

/// Returns the Service `web`; the fields of `spec` override its own.
fn service(spec: &Value, annotations: &Value) -> Service {
    let mut service = json!({
        "metadata": {
            "name": "web", "namespace": "ns", "uid": "s", "labels": {"team": "a"}, "annotations": annotations,
            "creationTimestamp": T0.to_string(),
        },
        "spec": {
            "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        service["spec"][key] = value.clone();
    }
    object(&service)
}

fn pod(name: &str, node: &str, ips: &[String], ready: bool) -> Pod {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    object(&json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node},
        "status": {
            "phase": "Running", "podIPs": ips,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": T0.to_string()}],
        },
    }))
}

impl World {
    fn new(spec: &Value) -> Self {
        Self {
            service: service(spec, &json!({})),
            pods: BTreeMap::new(),
            slices: BTreeMap::new(),
            nodes: [("n-a".to_owned(), "a".to_owned()), ("n-b".to_owned(), "b".to_owned())].into(),
            ratios: None,
            topology_hints: TopologyHints::default(),
            max_endpoints_per_slice: 10,
            created: 0,
        }
    }

    /// Adds the ready pod number `n`, on the node `n-a` of zone `a` if `n` is even, else on the node `n-b` of zone
    /// `b`.
    fn add(&mut self, n: usize) {
        let node = if n.is_multiple_of(2) { "n-a" } else { "n-b" };
        let ips = [format!("10.0.{}.{}", n / 256, n % 256), format!("fd00::{n:x}")];
        let name = format!("p{n:03}");
        self.pods.insert(name.clone(), pod(&name, node, &ips, true));
    }

    fn observed(&self) -> Observed {
        let node = |pod: &Pod| {
            let zone = self.nodes.get(&*pod.spec.node_name)?;
            let labels = json!({"topology.kubernetes.io/zone": zone});
            Some(Arc::new(object::<Node>(
                &json!({"metadata": {"name": pod.spec.node_name, "labels": labels}}),
            )))
        };
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().map(Arc::new).collect();
        let trigger_times = Arc::new(TriggerTimes::of(&self.service, &pods));
        Observed {
            key: Key::new("ns", "web"),
            service: Arc::new(self.service.clone()),
            pods: pods.into_iter().map(|pod| PlacedPod { node: node(&pod), pod }).collect(),
            slices: self.slices.values().cloned().map(Arc::new).collect(),
            previous_trigger_times: Some(Arc::clone(&trigger_times)),
            trigger_times,
            ratios: self.ratios.clone().map(Arc::new),
            topology_hints: self.topology_hints.clone(),
            max_endpoints_per_slice: self.max_endpoints_per_slice,
        }
    }

    /// Executes one pass. Returns how many slices were created, updated and deleted, and the messages of events.
    fn pass(&mut self) -> ([usize; 3], Vec<String>) {
        let decision = decide(&self.observed());
        self.topology_hints = decision.topology_hints.clone();
        self.execute(&decision)
    }

    fn execute(&mut self, decision: &Decision) -> ([usize; 3], Vec<String>) {
        let (mut counts, mut events) = ([0; 3], Vec::new());
        for action in decision.plan().actions {
            match action {
                Action::Create(create) => {
                    counts[0] += 1;
                    self.created += 1;
                    let mut slice = decode_slice(&create.body);
                    assert_eq!(&*slice.meta.generate_name, "web-");
                    slice.meta.name = format!("web-{}", self.created).into();
                    slice.meta.uid = slice.meta.name.clone();
                    self.slices.insert(slice.meta.name.to_string(), slice);
                }
                Action::Update(update) => {
                    counts[1] += 1;
                    let slice = decode_slice(&update.body);
                    let old =
                        self.slices.insert(slice.meta.name.to_string(), slice.clone()).unwrap();
                    assert_eq!(old.address_type, slice.address_type, "a slice keeps its family");
                    assert_ne!(old, slice, "the update changes nothing");
                }
                Action::Delete(delete) => {
                    counts[2] += 1;
                    self.slices.remove(&*delete.target.name).unwrap();
                }
                Action::Event(event) => events.push(format!("{} {}", event.reason, event.message)),
                other => panic!("{other:?}"),
            }
        }
        (counts, events)
    }

    /// Returns the sizes of a family's slices, in ascending order.
    fn sizes(&self, family: &str) -> Vec<usize> {
        let slices = self.slices.values().filter(|slice| &*slice.address_type == family);
        let mut sizes: Vec<usize> = slices.map(|slice| slice.endpoints.len()).collect();
        sizes.sort_unstable();
        sizes
    }

    fn endpoints(&self) -> Vec<&Endpoint> {
        self.slices.values().flat_map(|slice| &slice.endpoints).collect()
    }

    /// Returns the number of endpoints by hint, as `zones/nodes`.
    fn hints(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for endpoint in self.endpoints() {
            let hints = endpoint.hints.clone().unwrap_or_default();
            let zones: Vec<&str> = hints.for_zones.iter().map(|zone| &*zone.name).collect();
            let nodes: Vec<&str> = hints.for_nodes.iter().map(|node| &*node.name).collect();
            *counts.entry(format!("{}/{}", zones.join(","), nodes.join(","))).or_default() += 1;
        }
        counts
    }
}

fn decode_slice(body: &[u8]) -> EndpointSlice {
    let mut slice: EndpointSlice = object(&serde_json::from_slice(body).unwrap());
    slice.meta.resource_version = "1".into();
    slice
}

#[test]
fn service_without_pods_has_a_placeholder_slice() {
    let mut world = World::new(&json!({}));
    assert_eq!(world.pass().0, [1, 0, 0]);
    assert_eq!(world.pass().0, [0, 0, 0], "the placeholder stays");
    let slice = world.slices.values().next().unwrap();
    assert!(slice.ports.is_empty());
    let labels: Vec<_> = slice.meta.labels.iter().collect();
    let manager = ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");
    assert_eq!(labels, [manager, ("kubernetes.io/service-name", "web"), ("team", "a")]);
    world.add(1);
    assert_eq!(world.pass().0, [0, 1, 0], "the placeholder is filled");
    world.pods.clear();
    assert_eq!(world.pass().0, [0, 1, 0], "emptied again");
    assert_eq!(world.sizes("IPv4"), [0]);
}

#[test]
fn slices_are_filled_and_change_one_at_a_time() {
    let mut world = World::new(&json!({}));
    (0..25).for_each(|n| world.add(n));
    assert_eq!(world.pass().0, [3, 0, 0]);
    assert_eq!(world.sizes("IPv4"), [5, 10, 10]);
    world.pods.remove("p000");
    assert_eq!(world.pass().0, [0, 1, 0]);
    assert_eq!(world.sizes("IPv4"), [5, 9, 10]);
    world.add(30);
    assert_eq!(world.pass().0, [0, 1, 0], "the fullest slice with room");
    assert_eq!(world.sizes("IPv4"), [5, 10, 10]);
    world.pods.remove("p010");
    world.add(31);
    assert_eq!(world.pass().0, [0, 1, 0], "a removed endpoint makes room for a new one");
    (40..52).for_each(|n| world.add(n));
    assert_eq!(
        world.pass().0,
        [1, 1, 0],
        "a new slice is filled, and the rest is added to another"
    );
    assert_eq!(world.sizes("IPv4"), [7, 10, 10, 10]);
    world.service.meta.labels = world.service.meta.labels.with("team", "b");
    assert_eq!(world.pass().0, [0, 4, 0], "all slices have the labels");
}

#[test]
fn each_address_family_has_its_own_slices() {
    let mut world = World::new(&json!({"ipFamilies": ["IPv6", "IPv4"]}));
    (0..3).for_each(|n| world.add(n));
    assert_eq!(world.pass().0, [2, 0, 0]);
    assert_eq!((world.sizes("IPv4"), world.sizes("IPv6")), (vec![3], vec![3]));
    world.service.spec.ip_families = Box::new(["IPv4".into()]);
    assert_eq!(world.pass().0, [0, 0, 1]);
    assert_eq!((world.sizes("IPv4"), world.sizes("IPv6")), (vec![3], vec![]));
}

#[test]
fn failed_address_type_does_not_block_the_other() {
    let mut world = World::new(&json!({"ipFamilies": ["IPv4", "IPv6"]}));
    (0..15).for_each(|n| world.add(n));
    let parts = |world: &World| -> Vec<OnError> {
        decide(&world.observed()).plan().actions.iter().map(Action::on_error).collect()
    };
    let [v4, v6] = [OnError::SkipPart(0), OnError::SkipPart(1)];
    assert_eq!(parts(&world), [v4, v4, v6, v6], "two slices for each");
    world.pass();
    world.service.spec.ip_families = Box::new(["IPv6".into()]);
    world.pods.remove("p000");
    assert_eq!(
        parts(&world),
        [v6, OnError::Continue, OnError::Continue],
        "deletes are independent"
    );
}

#[test]
fn endpoint_conditions_follow_readiness_and_deletion() {
    // `publishNotReadyAddresses`, whether the pod is ready and terminating, and `ready`, `serving` and `terminating`.
    let table = [
        (false, true, false, [true, true, false]),
        (false, false, false, [false, false, false]),
        (false, true, true, [false, true, true]),
        (true, false, true, [true, false, true]),
    ];
    for (publish, ready, terminating, want) in table {
        let mut world = World::new(&json!({"publishNotReadyAddresses": publish}));
        let mut pod = pod("p", "n-a", &["10.0.0.1".to_owned()], ready);
        pod.meta.deletion = terminating.then_some(T0);
        world.pods.insert("p".into(), pod);
        world.pass();
        let conditions = world.endpoints()[0].conditions;
        let actual = [conditions.ready, conditions.serving, conditions.terminating];
        assert_eq!(actual, want.map(Some), "{publish} {ready} {terminating}");
    }
}

#[test]
fn pod_of_a_missing_node_is_skipped() {
    let mut world = World::new(&json!({}));
    (0..2).for_each(|n| world.add(n));
    world.nodes.remove("n-b");
    let (counts, events) = world.pass();
    assert_eq!(counts, [1, 0, 0]);
    assert_eq!(
        events,
        [
            "FailedToUpdateEndpointSlices Error updating Endpoint Slices for Service ns/web: skipping Pod p001 for Service ns/web: Node n-b Not Found"
        ]
    );
    assert_eq!(world.sizes("IPv4"), [1]);
    world.service.spec.publish_not_ready_addresses = true;
    assert_eq!(world.pass().1, [] as [&str; 0]);
    assert_eq!(world.sizes("IPv4"), [2]);
}

#[test]
fn slices_of_a_former_service_are_replaced() {
    let mut world = World::new(&json!({}));
    world.add(1);
    world.pass();
    world.service.meta.uid = "another".into();
    assert_eq!(world.pass().0, [1, 0, 1]);
    world.service.meta.deletion = Some(T0);
    world.slices.clear();
    assert_eq!(world.pass().0, [0, 0, 0], "a terminating Service gets no slice");
}

#[test]
fn trigger_time_is_written_and_removed() {
    let mut world = World::new(&json!({}));
    world.add(1);
    let mut observed = world.observed();
    observed.previous_trigger_times = None;
    world.execute(&decide(&observed));
    let trigger_time = |world: &World| {
        world
            .slices
            .values()
            .next()
            .unwrap()
            .meta
            .annotations
            .get(TRIGGER_TIME_ANNOTATION)
            .map(str::to_owned)
    };
    assert_eq!(trigger_time(&world).as_deref(), Some("2026-09-21T14:13:20Z"));
    world.pods.clear();
    world.pass();
    assert_eq!(trigger_time(&world), None);
}

#[test]
fn hints_follow_the_traffic_distribution() {
    // Traffic distribution, and the hints (`zones/nodes`) of the endpoints in the zones `a` and `b`.
    let table = [
        ("PreferClose", "a/", "b/"),
        ("PreferSameZone", "a/", "b/"),
        ("PreferSameNode", "a/n-a", "b/n-b"),
        ("Elsewhere", "/", "/"),
    ];
    for (distribution, a, b) in table {
        let mut world = World::new(&json!({}));
        (0..3).for_each(|n| world.add(n));
        world.pass();
        world.service.spec.traffic_distribution = distribution.into();
        let (counts, _) = world.pass();
        assert_eq!(counts, [0, usize::from(distribution != "Elsewhere"), 0], "{distribution}");
        let mut want = BTreeMap::new();
        *want.entry(a.to_owned()).or_default() += 2;
        *want.entry(b.to_owned()).or_default() += 1;
        assert_eq!(world.hints(), want, "{distribution}");
        assert_eq!(world.pass().0, [0; 3], "{distribution}");
        world.service.spec.traffic_distribution = "".into();
        world.pass();
        assert_eq!(world.hints(), BTreeMap::from([("/".to_owned(), 3)]), "{distribution}");
    }
}

#[test]
fn topology_hints_follow_the_annotation() {
    let mut world = World::new(&json!({}));
    (0..10).filter(|n| n % 2 == 0).for_each(|n| world.add(n));
    world.add(1);
    world.ratios = Some([("a".into(), 0.5), ("b".into(), 0.5)].into());
    world.service.meta.annotations =
        crate::fixtures::label("service.kubernetes.io/topology-mode", "Auto");
    let (_, events) = world.pass();
    assert_eq!(
        events,
        ["TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: IPv4"]
    );
    assert_eq!(world.hints(), BTreeMap::from([("a/".to_owned(), 3), ("b/".to_owned(), 3)]));
    assert_eq!(world.pass(), ([0; 3], vec![]), "the hints stay");
    world.pods.retain(|name, _| name == "p001");
    let (_, events) = world.pass();
    assert_eq!(
        events,
        [
            "TopologyAwareHintsDisabled Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4"
        ]
    );
    assert_eq!(world.hints(), BTreeMap::from([("/".to_owned(), 1)]));
    world.add(2);
    world.pass();
    world.service.meta.annotations = evenkeel_api::StrMap::default();
    let (_, events) = world.pass();
    assert_eq!(
        events,
        ["TopologyAwareHintsDisabled Topology Aware Hints has been disabled, addressType: IPv4"]
    );
    assert_eq!(world.hints(), BTreeMap::from([("/".to_owned(), 2)]));
}

/// A change of the world. Numbers identify pods.
#[derive(Debug, Clone)]
enum Step {
    /// The pod is added, with this number of its port `http`.
    Add(usize, i32),
    Remove(usize),
    BecomeUnready(usize),
    /// The Service gets this `trafficDistribution`.
    Mode(&'static str),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..40, 1i32..=2).prop_map(|(n, port)| Step::Add(n, port)),
        3 => (0usize..40).prop_map(Step::Remove),
        2 => (0usize..40).prop_map(Step::BecomeUnready),
        1 => prop_oneof![Just(""), Just("PreferSameNode"), Just("PreferSameZone")].prop_map(Step::Mode),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn slices_contain_each_pod_once_with_few_writes(
        rounds in proptest::collection::vec(proptest::collection::vec(step(), 1..12), 1..8),
        max_endpoints_per_slice in 1usize..12,
    ) {
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}]);
        let mut world = World::new(&json!({"ipFamilies": ["IPv4", "IPv6"], "ports": ports}));
        world.max_endpoints_per_slice = max_endpoints_per_slice;
        for steps in rounds {
            let before = world.slices.clone();
            let step_count = steps.len();
            let mut mode_changed = false;
            for step in steps {
                match step {
                    Step::Add(n, port) => {
                        world.add(n);
                        let pod = world.pods.get_mut(&format!("p{n:03}")).unwrap();
                        pod.spec.containers = object::<Pod>(&json!({"spec": {"containers": [
                            {"name": "c", "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]},
                        ]}})).spec.containers.clone();
                    }
                    Step::Remove(n) => drop(world.pods.remove(&format!("p{n:03}"))),
                    Step::BecomeUnready(n) => if let Some(pod) = world.pods.get_mut(&format!("p{n:03}")) {
                        pod.status.conditions = Box::default();
                    },
                    Step::Mode(mode) => {
                        mode_changed = true;
                        world.service.spec.traffic_distribution = mode.into();
                    }
                }
            }
            let ([created, changed, deleted], _) = world.pass();
            prop_assert!(mode_changed || before.is_empty() || created + changed + deleted <= 4 * step_count + 4, "{created} {changed} {deleted} after {step_count}");
            prop_assert_eq!(world.pass(), ([0; 3], vec![]), "a second pass writes nothing");
            for family in ["IPv4", "IPv6"] {
                let slices: Vec<&EndpointSlice> = world.slices.values().filter(|slice| &*slice.address_type == family).collect();
                let names: Vec<&str> = slices.iter().flat_map(|slice| &slice.endpoints)
                    .filter_map(|endpoint| Some(&*endpoint.target_ref.as_ref()?.name)).collect();
                prop_assert_eq!(names.len(), world.pods.len());
                let names: BTreeSet<&str> = names.into_iter().collect();
                prop_assert!(names.into_iter().eq(world.pods.keys().map(|name| &**name)));
                prop_assert!(slices.iter().all(|slice| slice.endpoints.len() <= max_endpoints_per_slice));
                prop_assert!(!slices.is_empty());
                prop_assert!(slices.len() == 1 || slices.iter().all(|slice| !slice.endpoints.is_empty()));
            }
        }
    }
}
