//! Table tests of plans, and a property test that plans converge.

use super::plan::{Counts, Observed, decide};
use crate::fixtures::object;
use evenkeel_api::views::{EndpointSlice, Endpoints, Service};
use evenkeel_runtime::plan::{Action, Key};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Endpoints `ns/web`, their Service and the slices that mirror them.
struct World {
    endpoints: Option<Endpoints>,
    service: Option<Service>,
    slices: BTreeMap<String, EndpointSlice>,
    /// Maximum number of mirrored addresses of a subset.
    max_addresses_per_subset: usize,
    /// Number of slices created so far.
    created: usize,
}

/// Returns the Endpoints `web` with these subsets.
fn endpoints(subsets: &Value) -> Endpoints {
    object(&json!({
        "metadata": {
            "name": "web", "namespace": "ns", "uid": "e", "labels": {"team": "a"},
            "annotations": {
                "note": "kept",
                "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            },
        },
        "subsets": subsets,
    }))
}

fn service(selector: &Value) -> Option<Service> {
    Some(object(
        &json!({"metadata": {"name": "web", "namespace": "ns", "uid": "s"}, "spec": {"selector": selector}}),
    ))
}

impl World {
    fn new(subsets: &Value) -> Self {
        let endpoints = Some(endpoints(subsets));
        Self {
            endpoints,
            service: service(&json!({})),
            slices: BTreeMap::new(),
            max_addresses_per_subset: 1000,
            created: 0,
        }
    }

    /// Executes one pass. Returns how many slices were created, updated and deleted, the messages of events, and the
    /// counts for metrics.
    fn pass(&mut self) -> ([usize; 3], Vec<String>, Option<Counts>) {
        let decision = decide(&Observed {
            key: Key::new("ns", "web"),
            endpoints: self.endpoints.clone().map(Arc::new),
            service: self.service.clone().map(Arc::new),
            slices: self.slices.values().cloned().map(Arc::new).collect(),
            max_addresses_per_subset: self.max_addresses_per_subset,
        });
        let (mut counts, mut events) = ([0; 3], Vec::new());
        for action in decision.plan().actions {
            match action {
                Action::Create(create) => {
                    counts[0] += 1;
                    self.created += 1;
                    let mut slice: EndpointSlice =
                        object(&serde_json::from_slice(&create.body).unwrap());
                    slice.meta.name = format!("web-{}", self.created).into();
                    self.slices.insert(slice.meta.name.to_string(), slice);
                }
                Action::Update(update) => {
                    counts[1] += 1;
                    let slice: EndpointSlice =
                        object(&serde_json::from_slice(&update.body).unwrap());
                    let old =
                        self.slices.insert(slice.meta.name.to_string(), slice.clone()).unwrap();
                    assert_eq!(old.address_type, slice.address_type, "a slice keeps its family");
                }
                Action::Delete(delete) => {
                    counts[2] += 1;
                    self.slices.remove(&*delete.target.name).unwrap();
                }
                Action::Event(event) => events.push(event.message),
                other => panic!("{other:?}"),
            }
        }
        (counts, events, decision.counts)
    }

    /// Returns each slice as `family ports addresses`.
    fn formatted(&self) -> Vec<String> {
        let format = |slice: &EndpointSlice| {
            let ports: Vec<String> =
                slice.ports.iter().filter_map(|port| Some(port.port?.to_string())).collect();
            let ips: Vec<&str> =
                slice.endpoints.iter().map(|endpoint| &*endpoint.addresses[0]).collect();
            format!("{} {} {}", slice.address_type, ports.join(","), ips.join(","))
        };
        let mut formatted: Vec<String> = self.slices.values().map(format).collect();
        formatted.sort_unstable();
        formatted
    }
}

#[test]
fn each_port_set_and_address_family_has_a_slice() {
    let mut world = World::new(&json!([
        {"addresses": [{"ip": "10.0.0.2", "hostname": "two", "nodeName": "n"}, {"ip": "fd00::1"}], "notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80, "protocol": "TCP"}]},
        {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 443, "protocol": "TCP"}]},
    ]));
    let (counts, events, _) = world.pass();
    assert_eq!((counts, events), ([3, 0, 0], vec![]));
    assert_eq!(
        world.formatted(),
        ["IPv4 443 10.0.0.1", "IPv4 80 10.0.0.2,10.0.0.1", "IPv6 80 fd00::1"]
    );
    let slice = world.slices.values().find(|slice| slice.endpoints.len() == 2).unwrap();
    let ready_and_serving = |index: usize| {
        (slice.endpoints[index].conditions.ready, slice.endpoints[index].conditions.serving)
    };
    assert_eq!(
        (ready_and_serving(0), ready_and_serving(1)),
        ((Some(true), None), (Some(false), None))
    );
    assert_eq!((&*slice.endpoints[0].hostname, &*slice.endpoints[0].node_name), ("two", "n"));
    assert!(slice.meta.annotations.iter().eq([("note", "kept")]));
    assert_eq!(slice.meta.labels.get("team"), Some("a"));
    assert_eq!(&*slice.meta.owners[0].kind, "Endpoints");
    assert_eq!(world.pass().0, [0; 3], "a second pass writes nothing");
}

#[test]
fn changes_update_existing_slices() {
    let subset = |port: i32, ip: &str| json!({"addresses": [{"ip": ip}], "ports": [{"port": port, "protocol": "TCP"}]});
    let mut world = World::new(&json!([subset(80, "10.0.0.1")]));
    world.pass();
    world.endpoints = Some(endpoints(&json!([subset(80, "10.0.0.2")])));
    assert_eq!(world.pass().0, [0, 1, 0], "another address");
    world.endpoints = Some(endpoints(&json!([subset(81, "10.0.0.2")])));
    assert_eq!(world.pass().0, [0, 1, 0], "another port");
    world.endpoints = Some(endpoints(&json!([subset(81, "fd00::2")])));
    assert_eq!(world.pass().0, [1, 0, 1], "another family");
    world.endpoints.as_mut().unwrap().meta.labels = crate::fixtures::label("team", "b");
    assert_eq!(world.pass().0, [0, 1, 0], "labels");
    world.endpoints.as_mut().unwrap().meta.uid = "another".into();
    assert_eq!(world.pass().0, [0, 1, 0], "another uid");
    assert_eq!(world.pass().0, [0; 3]);
}

#[test]
fn slices_are_deleted_when_mirroring_ends() {
    type Edit = fn(&mut World);
    let table: [(&str, Edit); 5] = [
        ("no Endpoints", |world| world.endpoints = None),
        ("no Service", |world| world.service = None),
        ("a selector", |world| world.service = service(&json!({"app": "web"}))),
        ("skip-mirror label", |world| {
            let meta = &mut world.endpoints.as_mut().unwrap().meta;
            meta.labels = meta.labels.with("endpointslice.kubernetes.io/skip-mirror", "true");
        }),
        ("leader annotation", |world| {
            let meta = &mut world.endpoints.as_mut().unwrap().meta;
            meta.annotations =
                meta.annotations.with("control-plane.alpha.kubernetes.io/leader", "{}");
        }),
    ];
    for (what, edit) in table {
        let mut world =
            World::new(&json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]));
        world.pass();
        edit(&mut world);
        let (counts, _, metrics) = world.pass();
        assert_eq!((counts, metrics), ([0, 0, 1], None), "{what}");
        assert_eq!(world.pass().0, [0; 3], "{what}");
    }
}

#[test]
fn too_many_and_invalid_addresses_are_reported() {
    let ips: Vec<Value> = (0..5).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
    let mut world = World::new(
        &json!([{"addresses": ips[..2], "notReadyAddresses": ips[2..], "ports": [{"port": 80}]}]),
    );
    world.max_addresses_per_subset = 3;
    let (counts, events, metrics) = world.pass();
    assert_eq!(counts, [1, 0, 0]);
    assert_eq!(
        events,
        [
            "A max of 3 addresses can be mirrored to EndpointSlices per Endpoints subset. 2 addresses were skipped"
        ]
    );
    assert_eq!(world.formatted(), ["IPv4 80 10.0.0.0,10.0.0.1,10.0.0.2"]);
    assert_eq!(metrics.unwrap().skipped, 2);
    let mut world = World::new(
        &json!([{"addresses": [{"ip": "nowhere"}, {"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]),
    );
    assert_eq!(world.pass().1, ["Skipped 1 invalid IP addresses when mirroring to EndpointSlices"]);
    assert_eq!(world.formatted(), ["IPv4 80 10.0.0.1"]);
}

/// Strategy for up to 3 subsets with IPv4 and IPv6 addresses, each with one of three ports.
fn subsets() -> impl Strategy<Value = Value> {
    let few = || proptest::collection::vec(0u8..6, 0..4);
    let subset = (few(), few(), 80u16..83).prop_map(|(ready, unready, port)| {
        let ip = |n: &u8| if n.is_multiple_of(3) { format!("fd00::{n}") } else { format!("10.0.0.{n}") };
        let addresses = |octets: &[u8]| octets.iter().map(|n| json!({"ip": ip(n)})).collect::<Vec<_>>();
        json!({"addresses": addresses(&ready), "notReadyAddresses": addresses(&unready), "ports": [{"port": port, "protocol": "TCP"}]})
    });
    proptest::collection::vec(subset, 0..4).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn one_plan_converges(first in subsets(), second in subsets()) {
        let mut world = World::new(&first);
        world.pass();
        world.endpoints = Some(endpoints(&second));
        world.pass();
        prop_assert_eq!(world.pass().0, [0; 3]);
        let mut rebuilt = World::new(&second);
        rebuilt.pass();
        prop_assert_eq!(world.formatted(), rebuilt.formatted());
    }
}
