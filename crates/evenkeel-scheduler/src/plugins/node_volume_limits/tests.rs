//! Tests of volume limits.

use serde_json::{Value, json};

use super::{NodeVolumeLimits, has_higher_limit};
use crate::{
    fixtures::{info, node, pod, table},
    framework::{CycleState, Filter, PreFilter, PreFilterResult},
    plugins::volumes::test_objects::{VolumeObjects, bound, object, using},
    pod::PodInfo,
};
use evenkeel_api::views::CsiNode;

fn csi_node(limits: &Value) -> std::sync::Arc<CsiNode> {
    let drivers: Vec<Value> = limits
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, count)| json!({"name": name, "nodeID": "n", "allocatable": {"count": count}}))
        .collect();
    object("a", &json!({"spec": {"drivers": drivers}}))
}

/// Objects of a test: claims `c0`… with volumes `v0`… of the driver `csi.example`, an unbound claim `new`
/// of its class, and the CSINode `a` with these limits by driver.
fn volume_objects(limits: &Value) -> VolumeObjects {
    let numbers = 0..4;
    VolumeObjects {
        claims: numbers
            .clone()
            .map(|n| bound(&format!("c{n}"), &format!("v{n}")))
            .chain([object("new", &json!({"spec": {"storageClassName": "k"}}))])
            .collect(),
        volumes: numbers
            .map(|n| {
                let csi = json!({"driver": "csi.example", "volumeHandle": format!("h{n}")});
                object(&format!("v{n}"), &json!({"spec": {"csi": csi}}))
            })
            .collect(),
        classes: vec![object("k", &json!({"provisioner": "csi.example"}))],
        csi_nodes: vec![csi_node(limits)],
        ..VolumeObjects::default()
    }
}

/// Runs PreFilter and Filter for the node `a`, which runs the pods `existing`.
fn outcome(volume_objects: VolumeObjects, existing: &[PodInfo], pod: &PodInfo) -> String {
    outcome_with(&NodeVolumeLimits::default(), volume_objects, existing, pod)
}

fn outcome_with(
    plugin: &NodeVolumeLimits,
    volume_objects: VolumeObjects,
    existing: &[PodInfo],
    pod: &PodInfo,
) -> String {
    assert!(plugin.listers.set(Box::new(volume_objects)).is_ok());
    let mut nodes = table(&[node("a", &json!({}))]);
    for pod in existing {
        nodes.place(pod.clone(), "a");
    }
    let mut state = CycleState::default();
    match plugin.pre_filter(&mut state, pod, &nodes) {
        Err(rejection) => rejection.reasons.join(", "),
        Ok(PreFilterResult::Skip) => "skip".to_owned(),
        Ok(_) => match plugin.filter(&state, pod, nodes.get("a").unwrap()) {
            Ok(()) => "fits".to_owned(),
            Err(rejection) => rejection.reasons.join(", "),
        },
    }
}

const EXCEEDED: &str = "node(s) exceed max volume count";

#[test]
fn volumes_of_a_driver_are_counted_once_each() {
    let limits = json!({"csi.example": 2});
    let existing = [info("q", &using(&["c0"])), info("r", &using(&["c0", "c1"]))];
    for (pod, expected) in [
        (using(&["c2"]), EXCEEDED),
        (using(&["c0"]), "fits"),
        (using(&["new"]), EXCEEDED),
        (json!({}), "skip"),
    ] {
        assert_eq!(
            outcome(volume_objects(&limits), &existing, &info("p", &pod)),
            expected,
            "{pod}"
        );
    }
    assert_eq!(
        outcome(volume_objects(&limits), &existing[..1], &info("p", &using(&["new"]))),
        "fits"
    );
    assert_eq!(
        outcome(volume_objects(&limits), &existing[..1], &info("p", &using(&["new", "c1"]))),
        EXCEEDED
    );
    let without_limit = volume_objects(&json!({"other": 1}));
    assert_eq!(
        outcome(without_limit, &existing, &info("p", &using(&["c2"]))),
        "fits",
        "the driver has no limit"
    );
    let with_limit_zero = volume_objects(&json!({"csi.example": 0}));
    assert_eq!(outcome(with_limit_zero, &[], &info("p", &using(&["c2"]))), EXCEEDED);
}

#[test]
fn attached_volumes_count_without_a_pod() {
    let mut volume_objects = volume_objects(&json!({"csi.example": 2}));
    for volume in ["v0", "v3"] {
        let source = json!({"persistentVolumeName": volume});
        volume_objects.attachments.push(object(
            volume,
            &json!({"spec": {"attacher": "csi.example", "nodeName": "a", "source": source}}),
        ));
    }
    let existing = [info("q", &using(&["c0"]))];
    assert_eq!(outcome(volume_objects.clone(), &existing, &info("p", &using(&["c1"]))), EXCEEDED);
    volume_objects.attachments.pop();
    assert_eq!(outcome(volume_objects, &existing, &info("p", &using(&["c1"]))), "fits");
}

#[test]
fn in_tree_volumes_count_for_their_csi_driver() {
    let inline = |id: &str| json!({"spec": {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": id}}]}});
    let existing = [info("q", &inline("vol-1"))];
    let limits = json!({"ebs.csi.aws.com": 1});
    assert_eq!(outcome(volume_objects(&limits), &existing, &info("p", &inline("vol-2"))), EXCEEDED);
    assert_eq!(
        outcome(volume_objects(&limits), &existing, &info("p", &inline("aws://z/vol-1"))),
        "fits"
    );
    let mut without_csi_node = volume_objects(&limits);
    without_csi_node.csi_nodes.clear();
    assert_eq!(outcome(without_csi_node, &existing, &info("p", &inline("vol-2"))), "fits");
}

#[test]
fn claims_must_exist_and_belong_to_the_pod() {
    let pod_of = |volume: Value| info("p", &json!({"spec": {"volumes": [volume]}}));
    let missing = pod_of(json!({"name": "v", "persistentVolumeClaim": {"claimName": "x"}}));
    let limits = json!({"csi.example": 1});
    assert_eq!(
        outcome(volume_objects(&limits), &[], &missing),
        "looking up PVC shop/x: persistentvolumeclaim \"x\" not found"
    );
    let ephemeral = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    let mut with_claim_of_other = volume_objects(&limits);
    with_claim_of_other.claims.push(object("p-v", &json!({"spec": {"storageClassName": "k"}})));
    assert_eq!(
        outcome(with_claim_of_other, &[], &pod_of(ephemeral)),
        "PVC shop/p-v was not created for pod shop/p (pod is not owner)"
    );
}

#[test]
fn a_csi_driver_may_exclude_nodes_without_it() {
    let mut volume_objects = volume_objects(&json!({"other": 1}));
    let csi_driver = |prevents: bool| {
        object("csi.example", &json!({"spec": {"preventPodSchedulingIfMissing": prevents}}))
    };
    volume_objects.drivers = vec![csi_driver(true)];
    let pod = info("p", &using(&["c0"]));
    assert_eq!(
        outcome(volume_objects.clone(), &[], &pod),
        "csi.example CSI driver is not installed on the node"
    );
    let without_check = NodeVolumeLimits::new(false);
    assert_eq!(outcome_with(&without_check, volume_objects.clone(), &[], &pod), "fits");
    volume_objects.drivers = vec![csi_driver(false)];
    assert_eq!(outcome(volume_objects, &[], &pod), "fits");
}

#[test]
fn a_higher_limit_of_any_driver_is_detected() {
    let node = |limits: Value| csi_node(&limits);
    for (old, new, expected) in [
        (json!({"a": 1}), json!({"a": 2}), true),
        (json!({"a": 2}), json!({"a": 1}), false),
        (json!({}), json!({"a": 1}), true),
        (json!({"a": 1}), json!({"a": 1, "b": 0}), false),
    ] {
        assert_eq!(
            has_higher_limit(&node(old.clone()), &node(new.clone())),
            expected,
            "{old} {new}"
        );
    }
    assert_eq!(super::max_csi_volumes_of(&pod("p", &using(&["a", "b"]))), 2);
}
