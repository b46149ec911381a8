//! Table tests of volume limits.

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

/// Objects of a test: claims `c0`… with volumes `v0`… of the driver `csi.example`, and an unbound
/// claim `new` of its class.
fn given(limits: &Value) -> VolumeObjects {
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

fn outcome(given: VolumeObjects, there: &[PodInfo], pod: &PodInfo) -> String {
    outcome_of(&NodeVolumeLimits::default(), given, there, pod)
}

fn outcome_of(
    plugin: &NodeVolumeLimits,
    given: VolumeObjects,
    there: &[PodInfo],
    pod: &PodInfo,
) -> String {
    assert!(plugin.listers.set(Box::new(given)).is_ok());
    let mut nodes = table(&[node("a", &json!({}))]);
    for pod in there {
        nodes.place(pod.clone(), "a");
    }
    let mut state = CycleState::default();
    match plugin.pre_filter(&mut state, pod, &nodes) {
        Err(why) => why.reasons.join(", "),
        Ok(PreFilterResult::Skip) => "skip".to_owned(),
        Ok(_) => match plugin.filter(&state, pod, nodes.get("a").unwrap()) {
            Ok(()) => "fits".to_owned(),
            Err(why) => why.reasons.join(", "),
        },
    }
}

const REFUSED: &str = "node(s) exceed max volume count";

#[test]
fn volumes_of_a_driver_are_counted_once_each() {
    let two = json!({"csi.example": 2});
    let there = [info("q", &using(&["c0"])), info("r", &using(&["c0", "c1"]))];
    for (pod, want) in [
        (using(&["c2"]), REFUSED),
        (using(&["c0"]), "fits"),
        (using(&["new"]), REFUSED),
        (json!({}), "skip"),
    ] {
        assert_eq!(outcome(given(&two), &there, &info("p", &pod)), want, "{pod}");
    }
    assert_eq!(outcome(given(&two), &there[..1], &info("p", &using(&["new"]))), "fits");
    assert_eq!(outcome(given(&two), &there[..1], &info("p", &using(&["new", "c1"]))), REFUSED);
    let none = given(&json!({"other": 1}));
    assert_eq!(outcome(none, &there, &info("p", &using(&["c2"]))), "fits", "no limit is said");
    let none = given(&json!({"csi.example": 0}));
    assert_eq!(outcome(none, &[], &info("p", &using(&["c2"]))), REFUSED);
}

#[test]
fn attached_volumes_count_without_a_pod() {
    let mut given = given(&json!({"csi.example": 2}));
    for volume in ["v0", "v3"] {
        let source = json!({"persistentVolumeName": volume});
        given.attachments.push(object(
            volume,
            &json!({"spec": {"attacher": "csi.example", "nodeName": "a", "source": source}}),
        ));
    }
    let there = [info("q", &using(&["c0"]))];
    assert_eq!(outcome(given.clone(), &there, &info("p", &using(&["c1"]))), REFUSED);
    given.attachments.pop();
    assert_eq!(outcome(given, &there, &info("p", &using(&["c1"]))), "fits");
}

#[test]
fn in_tree_volumes_count_for_their_csi_driver() {
    let inline = |id: &str| json!({"spec": {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": id}}]}});
    let there = [info("q", &inline("vol-1"))];
    let one = json!({"ebs.csi.aws.com": 1});
    assert_eq!(outcome(given(&one), &there, &info("p", &inline("vol-2"))), REFUSED);
    assert_eq!(outcome(given(&one), &there, &info("p", &inline("aws://z/vol-1"))), "fits");
    let mut unknown = given(&one);
    unknown.csi_nodes.clear();
    assert_eq!(outcome(unknown, &there, &info("p", &inline("vol-2"))), "fits");
}

#[test]
fn claims_must_be_there_and_the_pods_own() {
    let pod_of = |volume: Value| info("p", &json!({"spec": {"volumes": [volume]}}));
    let missing = pod_of(json!({"name": "v", "persistentVolumeClaim": {"claimName": "x"}}));
    let one = json!({"csi.example": 1});
    assert_eq!(
        outcome(given(&one), &[], &missing),
        "looking up PVC shop/x: persistentvolumeclaim \"x\" not found"
    );
    let ephemeral = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    let mut others = given(&one);
    others.claims.push(object("p-v", &json!({"spec": {"storageClassName": "k"}})));
    assert_eq!(
        outcome(others, &[], &pod_of(ephemeral)),
        "PVC shop/p-v was not created for pod shop/p (pod is not owner)"
    );
}

#[test]
fn a_driver_may_insist_on_being_there() {
    let mut given = given(&json!({"other": 1}));
    let insists =
        |yes: bool| object("csi.example", &json!({"spec": {"preventPodSchedulingIfMissing": yes}}));
    given.drivers = vec![insists(true)];
    let pod = info("p", &using(&["c0"]));
    assert_eq!(
        outcome(given.clone(), &[], &pod),
        "csi.example CSI driver is not installed on the node"
    );
    let unasked = NodeVolumeLimits::new(false);
    assert_eq!(outcome_of(&unasked, given.clone(), &[], &pod), "fits");
    given.drivers = vec![insists(false)];
    assert_eq!(outcome(given, &[], &pod), "fits");
}

#[test]
fn more_room_helps() {
    let node = |limits: Value| csi_node(&limits);
    for (old, new, want) in [
        (json!({"a": 1}), json!({"a": 2}), true),
        (json!({"a": 2}), json!({"a": 1}), false),
        (json!({}), json!({"a": 1}), true),
        (json!({"a": 1}), json!({"a": 1, "b": 0}), false),
    ] {
        assert_eq!(has_higher_limit(&node(old.clone()), &node(new.clone())), want, "{old} {new}");
    }
    assert_eq!(super::max_volumes(&pod("p", &using(&["a", "b"]))), 2);
}
