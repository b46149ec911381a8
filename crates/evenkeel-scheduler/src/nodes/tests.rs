//! Tests of the node table: sums of requests, order of nodes, images and taints.

use proptest::prelude::*;
use serde_json::json;

use super::NodeTable;
use crate::fixtures::{info, node, table, with_requests};

#[test]
fn nodes_are_ordered_round_robin_over_zones() {
    let node_in_zone = |name: &str, zone: &str| {
        node(name, &json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": zone } } }))
    };
    let table = table(&[
        node_in_zone("a1", "a"),
        node_in_zone("a2", "a"),
        node_in_zone("a3", "a"),
        node_in_zone("b1", "b"),
    ]);
    let order: Vec<&str> = table.iter().map(|node| &**node.name()).collect();
    assert_eq!(order, ["a1", "b1", "a2", "a3"]);
}

#[test]
fn pods_of_a_deleted_node_count_until_they_are_removed() {
    let mut table = table(&[node("a", &json!({}))]);
    table.place(info("p", &with_requests("1", "1Gi")), "a");
    table.remove_node("a");
    assert_eq!((table.len(), table.n_pods()), (0, 1));
    table.set_node(node("a", &json!({})));
    assert_eq!(table.get("a").unwrap().requested_cpu(), 1000);
    table.remove_node("a");
    table.remove("p");
    table.set_node(node("b", &json!({})));
    assert_eq!(table.get("b").unwrap().requested_cpu(), 0, "a reused slot is reset");
    assert!(table.get("a").is_none());
}

#[test]
fn an_image_is_indexed_by_the_nodes_that_have_it() {
    let node_with_images = |name: &str, images: &[(&str, i64)]| {
        let image = |(name, size): &(&str, i64)| json!({ "names": [name], "sizeBytes": size });
        let images: Vec<_> = images.iter().map(image).collect();
        node(name, &json!({ "status": { "images": images } }))
    };
    let mut table =
        table(&[node_with_images("a", &[("x", 5)]), node_with_images("b", &[("x", 7), ("y", 1)])]);
    let slot = |table: &NodeTable, name: &str| table.get(name).unwrap().slot();
    let x = table.image("x").unwrap();
    assert_eq!((x.size(), x.n_nodes()), (5, 2), "the first node determines the size");
    let (a, b) = (slot(&table, "a"), slot(&table, "b"));
    assert!(x.is_on(a) && x.is_on(b) && !table.image("y").unwrap().is_on(a));
    table.set_node(node_with_images("a", &[]));
    assert!(!table.image("x").unwrap().is_on(a));
    table.remove_node("b");
    assert!(table.image("x").is_none() && table.image("y").is_none());
}

#[test]
fn nodes_share_equal_taint_lists_and_unused_entries_are_reused() {
    let tainted = |name: &str, keys: &[&str]| {
        let taint = |key: &&str| json!({ "key": key, "effect": "NoSchedule" });
        let taints: Vec<_> = keys.iter().map(taint).collect();
        node(name, &json!({ "spec": { "taints": taints, "unschedulable": !keys.is_empty() } }))
    };
    let mut table = table(&[tainted("a", &["k"]), tainted("b", &["k"]), tainted("c", &[])]);
    assert_eq!((table.taint_sets().len(), table.n_unschedulable()), (2, 2));
    for n in 0..50 {
        table.set_node(tainted("a", &[&format!("k{n}")]));
        assert_eq!(&*table.get("a").unwrap().taints()[0].key, format!("k{n}"));
        assert_eq!(&*table.get("b").unwrap().taints()[0].key, "k");
    }
    assert_eq!(table.taint_sets().len(), 3);
    table.remove_node("a");
    table.set_node(tainted("b", &[]));
    assert_eq!(table.n_unschedulable(), 0);
    assert!(table.taint_sets().iter().all(|taints| taints.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any additions, moves and removals of pods, the sums equal those of the pods that remain.
    #[test]
    fn sums_stay_exact(steps in proptest::collection::vec((0_usize..6, 0_usize..4, 1_i64..4), 0..40)) {
        let nodes: Vec<_> = ["n0", "n1", "n2"].into_iter().map(|name| node(name, &json!({}))).collect();
        let mut table = table(&nodes);
        let mut model: std::collections::BTreeMap<usize, (usize, i64)> = std::collections::BTreeMap::new();
        for (pod, node, cpu) in steps {
            let name = format!("p{pod}");
            if node == 3 {
                table.remove(&name);
                model.remove(&pod);
            } else {
                table.place(info(&name, &with_requests(&cpu.to_string(), "1Gi")), &format!("n{node}"));
                model.insert(pod, (node, cpu));
            }
        }
        for n in 0..3 {
            let pods_on_node = model.values().filter(|(node, _)| *node == n);
            let cpu: i64 = pods_on_node.clone().map(|(_, cpu)| cpu * 1000).sum();
            let node = table.get(&format!("n{n}")).unwrap();
            prop_assert_eq!((node.requested_cpu(), node.pods().len()), (cpu, pods_on_node.count()));
        }
        prop_assert_eq!(NodeTable::n_pods(&table), model.len());
    }
}
