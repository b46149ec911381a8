//! Tests of conflicting volumes.

use serde_json::{Value, json};

use super::{RestrictedVolumes, VolumeRestrictions, have_conflicting_disks};
use crate::{
    fixtures::{info, merge, node, pod, table},
    framework::{
        Change, CycleState, Delta, Filter, Plugin, PreFilter, PreFilterResult, QueueingHint,
    },
    nodes::NodeTable,
    plugins::volumes::test_objects::{VolumeObjects, object, using},
    pod::PodInfo,
};

#[expect(clippy::needless_pass_by_value, reason = "values are written where they are used")]
fn pod_with_volume(source: Value) -> Value {
    let mut volume = json!({"name": "v"});
    merge(&mut volume, &source);
    json!({"spec": {"volumes": [volume]}})
}

#[test]
fn pods_with_conflicting_disks_exclude_each_other() {
    let gce = |name: &str, read_only: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": read_only}});
    let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}});
    let iscsi = |iqn: &str, lun: i32, read_only: bool| json!({"iscsi": {"targetPortal": "p", "iqn": iqn, "lun": lun, "readOnly": read_only}});
    let rbd = |monitors: &[&str], pool: &str, image: &str, read_only: bool| json!({"rbd": {"monitors": monitors, "pool": pool, "image": image, "readOnly": read_only}});
    for (a, b, expected) in [
        (gce("a", false), gce("a", false), true),
        (gce("a", true), gce("a", false), true),
        (gce("a", true), gce("a", true), false),
        (gce("a", false), gce("b", false), false),
        (ebs("a"), ebs("a"), true),
        (ebs("a"), ebs("b"), false),
        (iscsi("i", 0, false), iscsi("i", 1, true), true),
        (iscsi("i", 0, true), iscsi("i", 0, true), false),
        (rbd(&["m", "n"], "p", "i", false), rbd(&["n"], "p", "i", true), true),
        (rbd(&["m"], "p", "i", false), rbd(&["n"], "p", "i", false), false),
        (rbd(&["m"], "p", "i", false), rbd(&["m"], "q", "i", false), false),
        (rbd(&["m"], "p", "i", true), rbd(&["m"], "p", "i", true), false),
        (gce("a", false), ebs("a"), false),
        (json!({"emptyDir": {}}), json!({"emptyDir": {}}), false),
    ] {
        assert_eq!(
            have_conflicting_disks(
                &pod("p", &pod_with_volume(a.clone())),
                &pod("q", &pod_with_volume(b.clone()))
            ),
            expected,
            "{a} {b}"
        );
    }
}

/// Returns the plugin with a `ReadWriteOncePod` claim `alone` and a `ReadWriteMany` claim `shared`.
fn plugin() -> VolumeRestrictions {
    let plugin = VolumeRestrictions::default();
    let modes = |mode: &str| json!({"spec": {"accessModes": [mode]}});
    let objects = VolumeObjects {
        claims: vec![
            object("alone", &modes("ReadWriteOncePod")),
            object("shared", &modes("ReadWriteMany")),
        ],
        ..VolumeObjects::default()
    };
    assert!(plugin.listers.set(Box::new(objects)).is_ok());
    plugin
}

/// Runs PreFilter, and Filter for the node `a`.
fn outcome(nodes: &NodeTable, pod: &PodInfo) -> String {
    let (plugin, mut state) = (plugin(), CycleState::default());
    match plugin.pre_filter(&mut state, pod, nodes) {
        Err(rejection) => rejection.reasons.join(", "),
        Ok(PreFilterResult::Skip) => "skip".to_owned(),
        Ok(_) => match plugin.filter(&state, pod, nodes.get("a").unwrap()) {
            Ok(()) => "fits".to_owned(),
            Err(rejection) => rejection.reasons.join(", "),
        },
    }
}

#[test]
fn a_read_write_once_pod_claim_is_used_by_one_pod() {
    let mut nodes = table(&[node("a", &json!({}))]);
    let alone = info("p", &using(&["alone", "shared"]));
    assert_eq!(outcome(&nodes, &alone), "skip");
    nodes.place(info("q", &using(&["alone", "shared"])), "a");
    assert_eq!(outcome(&nodes, &alone), super::CLAIM_IN_USE);
    assert_eq!(outcome(&nodes, &info("p", &using(&["shared"]))), "skip");
    assert_eq!(
        outcome(&nodes, &info("p", &using(&["none"]))),
        "persistentvolumeclaim \"none\" not found"
    );
    nodes.remove("q");
    assert_eq!(outcome(&nodes, &alone), "skip");
}

#[test]
fn a_disk_in_use_rejects_only_its_node() {
    let mut nodes = table(&[node("a", &json!({})), node("b", &json!({}))]);
    let pod_with_disk = |name: &str| {
        info(name, &pod_with_volume(json!({"awsElasticBlockStore": {"volumeID": "d"}})))
    };
    nodes.place(pod_with_disk("q"), "b");
    assert_eq!(outcome(&nodes, &pod_with_disk("p")), "fits");
    nodes.place(pod_with_disk("q"), "a");
    assert_eq!(outcome(&nodes, &pod_with_disk("p")), "node(s) had no available disk");
}

#[test]
fn added_and_removed_pods_change_the_count() {
    let mut restricted = RestrictedVolumes {
        has_disks: false,
        exclusive_claims: vec!["alone".into()],
        claim_users: 1,
    };
    let other = pod("q", &using(&["alone", "shared"]));
    restricted.count_references(&other, -1);
    assert_eq!(restricted.claim_users, 0);
    restricted.count_references(&other, 1);
    restricted.count_references(&pod("r", &using(&["shared"])), 1);
    assert_eq!(restricted.claim_users, 1);
}

#[test]
fn deletion_of_a_pod_with_the_same_claim_queues_the_pod() {
    let waiting = info("p", &using(&["alone"]));
    for (deleted, expected) in [
        (using(&["alone"]), QueueingHint::Queue),
        (using(&["shared"]), QueueingHint::Skip),
        (
            json!({"metadata": {"namespace": "other"}, "spec": using(&["alone"])["spec"]}),
            QueueingHint::Skip,
        ),
    ] {
        let deleted = info("q", &deleted);
        assert_eq!(
            plugin().queueing_hint(&waiting, &Change::AssignedPod(Delta::Deleted(deleted))),
            expected
        );
    }
}
