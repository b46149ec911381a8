//! Tests of decisions in tables of cases, and a property test: after a plan is carried out, no changes remain.

use super::{parse_cluster_cidrs, plan};
use crate::{
    Route,
    fixtures::{apply, node, node_view},
};
use evenkeel_api::{Text, cidr::Cidr, time::Timestamp, views::Node};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

const NOW: Timestamp = Timestamp::constant(1_790_000_000, 0);

fn cluster() -> Vec<Cidr> {
    vec![Cidr::parse("10.0.0.0/16").unwrap()]
}

fn with_ranges(name: &str, ranges: &[&str]) -> Value {
    let mut node = node(name);
    node["spec"]["podCIDRs"] = json!(ranges);
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "172.16.0.1"}]);
    node
}

fn route(node: &str, destination: &str) -> Route {
    Route {
        name: format!("{node} {destination}"),
        target_node: node.into(),
        destination: destination.into(),
        ..Route::default()
    }
}

/// Returns the changes for these nodes and routes: the names of the routes to delete, and node and destination of
/// the routes to create.
fn changes(nodes: &[&Value], routes: &[&Route]) -> (Vec<String>, Vec<String>) {
    let nodes: Vec<Arc<Node>> = nodes.iter().map(|node| node_view(node)).collect();
    let routes: Vec<Route> = routes.iter().map(|route| (*route).clone()).collect();
    let changes = plan::plan(&nodes, &routes, &cluster());
    let create =
        changes.create.iter().map(|c| format!("{} {}", c.route.target_node, c.route.destination));
    (changes.delete.iter().map(|route| route.name.clone()).collect(), create.collect())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn routes_follow_pod_cidrs() {
    let n = with_ranges("n", &["10.0.1.0/24"]);
    let good = route("n", "10.0.1.0/24");
    assert_eq!(changes(&[&n], &[]), (vec![], texts(&["n 10.0.1.0/24"])));
    assert_eq!(changes(&[&n], &[&good]), (vec![], vec![]));
    assert_eq!(changes(&[], &[&good]), (texts(&["n 10.0.1.0/24"]), vec![]), "the node is missing");
    let old = route("n", "10.0.2.0/24");
    assert_eq!(changes(&[&n], &[&good, &old]), (texts(&["n 10.0.2.0/24"]), vec![]));
    let foreign = [route("x", "192.168.0.0/24"), route("y", "nonsense"), route("", "11.0.0.0/8")];
    assert_eq!(changes(&[&n], &[&good, &foreign[0], &foreign[1], &foreign[2]]), (vec![], vec![]));
    let without_node = route("", "10.0.3.0/24");
    assert_eq!(changes(&[&n], &[&good, &without_node]), (texts(&[" 10.0.3.0/24"]), vec![]));
}

#[test]
fn blackhole_route_is_replaced() {
    let hole = Route { blackhole: true, ..route("n", "10.0.1.0/24") };
    let n = with_ranges("n", &["10.0.1.0/24"]);
    assert_eq!(changes(&[&n], &[&hole]), (texts(&["n 10.0.1.0/24"]), texts(&["n 10.0.1.0/24"])));
}

#[test]
fn route_to_other_node_addresses_is_recreated() {
    let n = with_ranges("n", &["10.0.1.0/24"]);
    let without_addresses = route("n", "10.0.1.0/24");
    assert_eq!(changes(&[&n], &[&without_addresses]), (vec![], vec![]));
    let wrong = Route { has_node_addresses: true, ..without_addresses };
    assert_eq!(changes(&[&n], &[&wrong]).1.len(), 1);
    let addresses = node_view(&n).status.addresses.to_vec();
    let right = Route { target_node_addresses: addresses, ..wrong };
    assert_eq!(changes(&[&n], &[&right]), (vec![], vec![]));
}

#[test]
fn network_unavailable_follows_the_routes() {
    let failed =
        |names: &[&str]| names.iter().map(|name| Text::from(*name)).collect::<BTreeSet<Text>>();
    let mut n = with_ranges("n", &["10.0.1.0/24"]);
    let state = |n: &Value| {
        let all = n["status"]["conditions"].as_array().unwrap();
        let condition = all.iter().find(|c| c["type"] == "NetworkUnavailable");
        condition.map(|c| {
            (c["status"].as_str().unwrap().to_owned(), c["reason"].as_str().unwrap().to_owned())
        })
    };
    let write_conditions = |n: &mut Value, routes: &[Route], broken: &[&str]| {
        let plan = plan::networking_conditions(&[node_view(n)], routes, &failed(broken), NOW);
        apply(&plan, n)
    };
    let pair = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    assert_eq!(
        (write_conditions(&mut n, &[], &["n"]), state(&n)),
        (1, pair("True", "NoRouteCreated"))
    );
    assert_eq!(write_conditions(&mut n, &[], &["n"]), 0, "the condition is unchanged");
    assert_eq!((write_conditions(&mut n, &[], &[]), state(&n)), (1, pair("False", "RouteCreated")));
    assert_eq!(write_conditions(&mut n, &[], &[]), 0);
    assert_eq!(n["status"]["conditions"].as_array().unwrap().len(), 2, "other conditions are kept");
    let mut bare = node("m");
    assert_eq!(
        write_conditions(&mut bare, &[], &[]),
        0,
        "a node without pod CIDRs gets no condition"
    );
    assert_eq!(
        (write_conditions(&mut bare, &[route("m", "10.0.9.0/24")], &[]), state(&bare)),
        (1, pair("True", "NoRouteCreated"))
    );
}

#[test]
fn cluster_cidrs_are_one_per_family() {
    for (given, good) in [
        (&["10.0.0.0/16"][..], true),
        (&["10.0.0.0/16", "fd00::/64"], true),
        (&["10.0.0.0/16", "10.1.0.0/16"], false),
        (&["10.0.0.0/16", "fd00::/64", "10.1.0.0/16"], false),
        (&["x"], false),
        (&[], false),
    ] {
        assert_eq!(parse_cluster_cidrs(&texts(given)).is_ok(), good, "{given:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn one_plan_converges(
        ranges in proptest::collection::vec(proptest::collection::vec(0u8..6, 0..3), 0..4),
        routes in proptest::collection::vec((0u8..5, 0u8..6, any::<bool>(), any::<bool>()), 0..8),
    ) {
        let nodes: Vec<Arc<Node>> = ranges.iter().enumerate().map(|(n, ranges)| {
            let unique: BTreeSet<u8> = ranges.iter().copied().collect();
            let ranges: Vec<String> = unique.iter().map(|r| format!("10.0.{r}.0/24")).collect();
            node_view(&with_ranges(&n.to_string(), &ranges.iter().map(String::as_str).collect::<Vec<_>>()))
        }).collect();
        let mut existing: Vec<Route> = routes.iter().enumerate().map(|(id, (n, r, blackhole, has))| Route {
            name: id.to_string(), blackhole: *blackhole, has_node_addresses: *has,
            ..route(&n.to_string(), &format!("10.0.{r}.0/24"))
        }).collect();
        let changes = plan::plan(&nodes, &existing, &cluster());
        existing.retain(|route| !changes.delete.contains(route));
        existing.extend(changes.create.iter().map(|c| c.route.clone()));
        prop_assert_eq!(plan::plan(&nodes, &existing, &cluster()), plan::Changes::default());
        let wanted: usize = nodes.iter().map(|node| node.spec.pod_cidrs.len()).sum();
        let pairs: BTreeSet<_> = existing.iter().map(|r| (&r.target_node, &r.destination)).collect();
        prop_assert_eq!(pairs.len(), wanted);
    }
}
