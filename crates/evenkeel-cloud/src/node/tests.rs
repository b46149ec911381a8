//! Tests of the plans that initialize a node and update its addresses and labels. They must converge.

use super::{
    addresses::NodeIpError,
    plan::{self, InitializeError, UNINITIALIZED},
};
use crate::{
    InstanceMetadata,
    fixtures::{action_summaries, apply, node, node_view},
};
use evenkeel_api::views::NodeAddress;
use proptest::prelude::*;
use serde_json::{Value, json};

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.into(), address: address.into() }
}

/// Returns the metadata of a cloud instance. Only some of its labels may become labels of the node.
fn machine() -> InstanceMetadata {
    InstanceMetadata {
        provider_id: "rack://n".into(),
        instance_type: "big".into(),
        addresses: vec![address("InternalIP", "10.0.0.1"), address("ExternalIP", "192.0.2.1")],
        zone: "a".into(),
        region: "r".into(),
        labels: [
            ("rack".to_owned(), "7".to_owned()),
            ("present".to_owned(), "theirs".to_owned()),
            ("x.kubernetes.io/y".to_owned(), "no".to_owned()),
            ("k8s.io/y".to_owned(), "no".to_owned()),
            ("mykubernetes.io/y".to_owned(), "yes".to_owned()),
        ]
        .into(),
    }
}

/// Returns a node with the taint that waits for the cloud controller manager.
fn uninitialized_node() -> Value {
    let mut node = node("n");
    node["metadata"]["labels"] = json!({"present": "ours"});
    node["spec"]["taints"] = json!([
        {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
        {"key": "other", "effect": "NoSchedule"},
    ]);
    node["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": "n"},
    ]);
    node
}

#[test]
fn initialization_sets_metadata_and_removes_the_taint() {
    let mut node = uninitialized_node();
    let plan = plan::initialize_node(&node_view(&node), &machine()).unwrap();
    assert_eq!(action_summaries(&plan), ["patch nodes", "patch nodes", "Synced"]);
    apply(&plan, &mut node);
    assert_eq!(
        node["spec"],
        json!({"providerID": "rack://n", "taints": [{"key": "other", "effect": "NoSchedule"}]})
    );
    assert_eq!(
        node["metadata"]["labels"],
        json!({
            "beta.kubernetes.io/instance-type": "big", "node.kubernetes.io/instance-type": "big",
            "failure-domain.beta.kubernetes.io/zone": "a", "topology.kubernetes.io/zone": "a",
            "failure-domain.beta.kubernetes.io/region": "r", "topology.kubernetes.io/region": "r",
            "rack": "7", "present": "ours", "mykubernetes.io/y": "yes",
        })
    );
    assert_eq!(
        node["status"]["addresses"],
        json!([
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "Hostname", "address": "n"},
        ])
    );
    let view = node_view(&node);
    assert!(!plan::has_cloud_taint(&view));
    assert!(plan::update_node_address(&view, &machine()).unwrap().is_nothing());
    assert!(plan::reconcile_labels(&view).is_nothing());
}

#[test]
fn provider_id_and_addresses_of_the_kubelet_are_kept() {
    let mut node = uninitialized_node();
    node["spec"]["providerID"] = json!("kubelets://1");
    apply(&plan::initialize_node(&node_view(&node), &machine()).unwrap(), &mut node);
    assert_eq!(node["spec"]["providerID"], "kubelets://1");
    let without_addresses = InstanceMetadata::default();
    assert!(plan::update_node_address(&node_view(&node), &without_addresses).unwrap().is_nothing());
    let with_hostname =
        InstanceMetadata { addresses: vec![address("Hostname", "m")], ..without_addresses };
    apply(&plan::update_node_address(&node_view(&node), &with_hostname).unwrap(), &mut node);
    assert_eq!(node["status"]["addresses"], json!([{"type": "Hostname", "address": "m"}]));
}

#[test]
fn provided_node_ip_must_match_an_address() {
    let annotation = "alpha.kubernetes.io/provided-node-ip";
    let mut node = uninitialized_node();
    node["metadata"]["annotations"] = json!({annotation: "10.0.0.9"});
    let machine = InstanceMetadata {
        addresses: vec![
            address("InternalIP", "10.0.0.1"),
            address("InternalIP", "10.0.0.9"),
            address("ExternalIP", "192.0.2.1"),
        ],
        ..machine()
    };
    apply(&plan::initialize_node(&node_view(&node), &machine).unwrap(), &mut node);
    assert_eq!(
        node["status"]["addresses"],
        json!([
            {"type": "InternalIP", "address": "10.0.0.9"}, {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "Hostname", "address": "n"},
        ])
    );
    for (text, why) in [
        ("10.0.0.8", NodeIpError::Unknown("10.0.0.8".parse().unwrap())),
        ("10.0.0.9,fd00::1", NodeIpError::Unknown("fd00::1".parse().unwrap())),
        ("here", NodeIpError::Unreadable("here".into())),
    ] {
        let mut node = uninitialized_node();
        node["metadata"]["annotations"] = json!({annotation: text});
        let problem = plan::initialize_node(&node_view(&node), &machine).unwrap_err();
        assert_eq!(problem, InitializeError::NodeIp("n".into(), why), "{text}");
    }
}

#[test]
fn missing_provider_id_is_an_error() {
    let machine = InstanceMetadata { provider_id: String::new(), ..machine() };
    let problem = plan::initialize_node(&node_view(&uninitialized_node()), &machine).unwrap_err();
    assert_eq!(problem, InitializeError::NoProviderId("n".into()));
}

#[test]
fn stable_labels_follow_beta_labels() {
    let mut node = node("n");
    node["metadata"]["labels"] = json!({
        "failure-domain.beta.kubernetes.io/zone": "a", "topology.kubernetes.io/zone": "b",
        "beta.kubernetes.io/instance-type": "big", "topology.kubernetes.io/region": "r",
    });
    assert_eq!(apply(&plan::reconcile_labels(&node_view(&node)), &mut node), 1);
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["topology.kubernetes.io/zone"], "a");
    assert_eq!(labels["node.kubernetes.io/instance-type"], "big");
    assert_eq!(labels["topology.kubernetes.io/region"], "r");
    assert!(plan::reconcile_labels(&node_view(&node)).is_nothing());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn addresses_converge_after_one_write(known in proptest::collection::vec((0usize..4, 0u8..4), 0..6)) {
        let types = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS"];
        let addresses = known.iter().map(|(t, n)| address(types[*t], &format!("10.0.0.{n}"))).collect();
        let machine = InstanceMetadata { addresses, ..machine() };
        let mut node = uninitialized_node();
        apply(&plan::update_node_address(&node_view(&node), &machine).unwrap(), &mut node);
        prop_assert!(plan::update_node_address(&node_view(&node), &machine).unwrap().is_nothing());
    }
}
