//! Tests of zones and regions of volumes.

use serde_json::{Value, json};

use super::VolumeZone;
use crate::{
    fixtures::{info, node, table},
    framework::{
        Change, CycleState, Delta, Filter, ObjectChange, Plugin, PreFilter, PreFilterResult,
        QueueingHint,
    },
    plugins::volumes::test_objects::{VolumeObjects, bound, object, using},
};
use evenkeel_api::views::PersistentVolume;

const ZONE: &str = "topology.kubernetes.io/zone";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

/// Runs PreFilter, and Filter for a node with these labels, for a pod with this claim.
fn outcome(objects: VolumeObjects, claim: &str, labels: &Value) -> String {
    let plugin = VolumeZone::default();
    assert!(plugin.listers.set(Box::new(objects)).is_ok());
    let nodes = table(&[node("a", &json!({"metadata": {"labels": labels}}))]);
    let (pod, mut state) = (info("p", &using(&[claim])), CycleState::default());
    match plugin.pre_filter(&mut state, &pod, &nodes) {
        Err(rejection) => rejection.reasons.join(", "),
        Ok(PreFilterResult::Skip) => "skip".to_owned(),
        Ok(_) => match plugin.filter(&state, &pod, nodes.get("a").unwrap()) {
            Ok(()) => "fits".to_owned(),
            Err(rejection) => rejection.reasons.join(", "),
        },
    }
}

#[test]
fn a_node_must_have_the_zone_and_region_of_the_volume() {
    let rejected = "node(s) had no available volume zone";
    for (volume, node, expected) in [
        (json!({}), json!({ZONE: "z"}), "skip"),
        (json!({ZONE: "z"}), json!({ZONE: "z"}), "fits"),
        (json!({ZONE: "z"}), json!({ZONE: "y"}), rejected),
        (json!({ZONE: "z"}), json!({}), "fits"),
        (json!({ZONE: "y__z"}), json!({ZONE: "z"}), "fits"),
        (json!({ZONE: "y____z"}), json!({ZONE: "z"}), "skip"),
        (json!({BETA_ZONE: "z"}), json!({ZONE: "z"}), "fits"),
        (json!({BETA_ZONE: "z"}), json!({ZONE: "y", BETA_ZONE: "z"}), "fits"),
        (json!({ZONE: "z"}), json!({BETA_ZONE: "z"}), rejected),
        (json!({ZONE: "z", "topology.kubernetes.io/region": "r"}), json!({ZONE: "z"}), rejected),
    ] {
        let objects = VolumeObjects {
            claims: vec![bound("c", "v")],
            volumes: vec![object("v", &json!({"metadata": {"labels": volume}}))],
            ..VolumeObjects::default()
        };
        assert_eq!(outcome(objects, "c", &node), expected, "{volume} {node}");
    }
}

#[test]
fn a_claim_without_a_volume_is_skipped_or_rejects_the_pod() {
    let class = |name: &str, mode: Value| object(name, &json!({"volumeBindingMode": mode}));
    let claim_of_class = |class: &str| object("c", &json!({"spec": {"storageClassName": class}}));
    for (claim, expected) in [
        (claim_of_class("late"), "skip"),
        (claim_of_class("now"), "PersistentVolume had no name"),
        (claim_of_class("odd"), "VolumeBindingMode not set for StorageClass \"odd\""),
        (claim_of_class("none"), "storageclass.storage.k8s.io \"none\" not found"),
        (claim_of_class(""), "PersistentVolumeClaim had no pv name and storageClass name"),
        (bound("c", "gone"), "persistentvolume \"gone\" not found"),
        (bound("other", "gone"), "persistentvolumeclaim \"c\" not found"),
    ] {
        let objects = VolumeObjects {
            claims: vec![claim],
            classes: vec![
                class("late", json!("WaitForFirstConsumer")),
                class("now", json!("Immediate")),
                class("odd", json!(null)),
            ],
            ..VolumeObjects::default()
        };
        assert_eq!(outcome(objects, "c", &json!({})), expected);
    }
}

#[test]
fn a_new_zone_of_a_volume_queues_the_pod() {
    let volume = |zone: &str| {
        object::<PersistentVolume>("v", &json!({"metadata": {"labels": {ZONE: zone}}}))
    };
    let (pod, plugin) = (info("p", &using(&["c"])), VolumeZone::default());
    let (a, b) = (volume("a"), volume("b"));
    let hint =
        |edit| plugin.queueing_hint(&pod, &Change::Object(ObjectChange::PersistentVolume(edit)));
    assert_eq!(hint(Delta::Added(a.clone())), QueueingHint::Queue);
    assert_eq!(hint(Delta::Updated { old: a.clone(), new: b.clone() }), QueueingHint::Queue);
    assert_eq!(hint(Delta::Updated { old: a.clone(), new: a.clone() }), QueueingHint::Skip);
}
