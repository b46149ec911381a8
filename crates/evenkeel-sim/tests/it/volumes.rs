//! Claims get volumes, and give them back, while something goes wrong: no volume is two claims', none is left over.

use crate::fixtures::{
    KINDS, MINUTE, PODS, REST, SILENCE, bare_pod, each_of, is_ready, several, template,
};
use evenkeel_nodes::StorageOptions;
use evenkeel_sim::{Faults, Options, Part, What, World};
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const STATEFUL: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// A world whose nodes have storage, which is attached.
fn options() -> Options {
    let mut options = Options::default();
    options.nodes.storage = Some(StorageOptions { attach: true, ..StorageOptions::default() });
    options
}

fn stateful() -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2, "serviceName": "web",
            "selector": { "matchLabels": { "app": "web" } }, "template": template("a"),
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }],
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Retain" },
        },
    })
}

fn claim(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "storageClassName": "", "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } })
}

fn volume(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain", "nfs": { "server": "s", "path": "/p" } } })
}

fn phases(objects: &[Value]) -> Vec<&str> {
    let mut phases: Vec<&str> =
        objects.iter().filter_map(|object| object["status"]["phase"].as_str()).collect();
    phases.sort_unstable();
    phases
}

/// Each bound claim has a volume of its own that says so, too.
#[track_caller]
fn check_pairs(claims: &[Value], volumes: &[Value]) {
    for claim in claims {
        let name = &claim["spec"]["volumeName"];
        let volume = volumes.iter().find(|volume| volume["metadata"]["name"] == *name);
        let volume = volume.unwrap_or_else(|| panic!("no volume {name}: {volumes:#?}"));
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"], "{claim:#}");
        assert_eq!(
            (&volume["status"]["phase"], &claim["status"]["phase"]),
            (&json!("Bound"), &json!("Bound"))
        );
        assert_eq!(claim["status"]["capacity"]["storage"], "1Gi", "{claim:#}");
    }
}

/// Volumes are made for pods, and go with their claims.
async fn made(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    world.create(STATEFUL, &stateful()).await;
    world
        .until("2 pods are ready", 10 * MINUTE, async |world| {
            let pods = world.list(PODS).await;
            pods.len() == 2 && pods.iter().all(is_ready)
        })
        .await;
    world.settle(REST).await;
    let (claims, volumes) = (world.list(CLAIMS).await, world.list(VOLUMES).await);
    assert_eq!((claims.len(), volumes.len()), (2, 2), "{volumes:#?}");
    check_pairs(&claims, &volumes);
    world.stays_silent(SILENCE).await;
    world.delete(&format!("{STATEFUL}/web"), "Background").await;
    world.settle(REST).await;
    let (claims, volumes) = (world.list(CLAIMS).await, world.list(VOLUMES).await);
    assert!(claims.is_empty() && volumes.is_empty(), "{claims:#?} {volumes:#?}");
    world.stays_silent(SILENCE).await;
}

/// Two claims for three volumes that are there.
async fn found(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    for name in ["a", "b", "c"] {
        world.create(VOLUMES, &volume(name)).await;
    }
    for name in ["x", "y"] {
        world.create(CLAIMS, &claim(name)).await;
    }
    world.settle(REST).await;
    let (claims, volumes) = (world.list(CLAIMS).await, world.list(VOLUMES).await);
    check_pairs(&claims, &volumes);
    assert_eq!(phases(&volumes), ["Available", "Bound", "Bound"]);
    world.delete(&format!("{CLAIMS}/x"), "Background").await;
    world.settle(REST).await;
    assert_eq!(phases(&world.list(VOLUMES).await), ["Available", "Bound", "Released"]);
    assert_eq!(world.list(CLAIMS).await.len(), 1);
    world.stays_silent(SILENCE).await;
}

/// A pod's own claim comes with it, grows when it is asked to, and goes with it.
async fn of_its_own(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let mut pod = bare_pod("web");
    pod["spec"]["volumes"] =
        json!([{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": spec } } }]);
    world.create(PODS, &pod).await;
    let (path, claim) = (format!("{PODS}/web"), format!("{CLAIMS}/web-scratch"));
    world
        .until("the pod is ready", 10 * MINUTE, async |user| {
            user.get(&path).await.is_some_and(|pod| is_ready(&pod))
        })
        .await;
    world.settle(REST).await;
    assert_eq!(world.list(ATTACHMENTS).await.len(), 1);
    let more = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
    world.merge(&claim, &more).await;
    world
        .until("it has grown", 10 * MINUTE, async |user| {
            let claim = user.get(&claim).await.unwrap_or_default();
            claim["status"]["capacity"]["storage"] == "2Gi"
        })
        .await;
    world.settle(REST).await;
    world.stays_silent(SILENCE).await;
    world.delete(&path, "Background").await;
    world.settle(REST).await;
    for left in [CLAIMS, VOLUMES, ATTACHMENTS] {
        let left = world.list(left).await;
        assert!(left.is_empty(), "{left:#?}");
    }
    world.stays_silent(SILENCE).await;
}

fn each(part: Part, what: What, scenario: &impl AsyncFn(&mut World, Faults)) {
    each_of(&options(), part, what, 3, scenario);
}

#[test]
fn volumes_are_made_with_a_crash_after_each_write() {
    each(Part::Controllers, What::CrashAfter, &made);
}

#[test]
fn volumes_are_made_with_each_answer_lost() {
    each(Part::Controllers, What::LoseAnswer, &made);
}

#[test]
fn volumes_are_made_with_a_crash_of_the_scheduler_after_each_write() {
    each(Part::Scheduler, What::CrashAfter, &made);
}

#[test]
fn a_pods_own_volume_with_a_crash_after_each_write() {
    each(Part::Controllers, What::CrashAfter, &of_its_own);
}

#[test]
fn volumes_are_found_with_a_crash_after_each_write() {
    each(Part::Controllers, What::CrashAfter, &found);
}

#[test]
fn volumes_are_found_with_a_crash_before_each_write() {
    each(Part::Controllers, What::CrashBefore, &found);
}

#[test]
fn volumes_are_made_with_everything_going_wrong() {
    several(&options(), 8, (6, 30), &KINDS, &made);
}
