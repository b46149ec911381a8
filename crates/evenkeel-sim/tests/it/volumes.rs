//! Claims are bound to volumes and release them under faults: no volume belongs to two claims, and none is left over.

use crate::fixtures::{
    KINDS, MINUTE, PODS, REST, SILENCE, bare_pod, each_of, every_kind, is_ready, several, template,
};
use evenkeel_nodes::StorageOptions;
use evenkeel_sim::{FaultKind, Faults, Options, Part, World, part};
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const STATEFUL: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// Returns options for nodes with storage. Volumes must be attached.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.nodes.storage = Some(StorageOptions { attach: true, ..StorageOptions::default() });
    options
}

/// Returns the same options for scenarios in which several volumes fit a claim. Comparisons leave out which one is
/// bound.
fn any_volume() -> Options {
    let equal = "which of equal volumes a claim gets depends on which is looked at first";
    options()
        .ignores("PersistentVolume/spec/claimRef", equal)
        .ignores("PersistentVolume/metadata/annotations", equal)
        .ignores("PersistentVolume/status", equal)
        .ignores("PersistentVolumeClaim/spec/volumeName", equal)
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

/// Checks that each bound claim has its own volume, whose `claimRef` names the claim.
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

/// The provisioner creates volumes for pods, and deletes them with their claims.
pub(crate) async fn provisioning(world: &mut World, faults: Faults) {
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

/// The controller binds two claims to two of three existing volumes.
async fn binding(world: &mut World, faults: Faults) {
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

/// An ephemeral volume: its claim is created with the pod, expanded on request, and deleted with the pod.
pub(crate) async fn ephemeral_volume(world: &mut World, faults: Faults) {
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

/// Returns the phase of an object, and the `claimRef` of a volume.
async fn phase(world: &World, path: &str) -> (String, Value) {
    let object = world.get(path).await.unwrap_or_else(|| panic!("{path} is there"));
    let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
    (phase, object["spec"]["claimRef"]["uid"].clone())
}

/// Creates a volume that is pre-bound to the claim `x`, but too small for it.
async fn given(world: &World, name: &str) -> Value {
    let claim = world.get(&format!("{CLAIMS}/x")).await.expect("the claim");
    let mut volume = volume(name);
    volume["spec"]["capacity"]["storage"] = "1Mi".into();
    volume["spec"]["claimRef"] =
        json!({ "namespace": "default", "name": "x", "uid": claim["metadata"]["uid"] });
    world.create(VOLUMES, &volume).await
}

/// A claim is deleted before it is bound to its pre-bound volume. No other claim may get that volume.
async fn pre_bound_claim_deleted(world: &mut World, faults: Faults) {
    world.create(CLAIMS, &claim("x")).await;
    given(world, "a").await;
    world.settle(REST).await;
    assert_eq!(phase(world, &format!("{CLAIMS}/x")).await.0, "Pending");
    world.arm(faults);
    world.delete(&format!("{CLAIMS}/x"), "Background").await;
    world.settle(REST).await;
    assert_eq!(phase(world, &format!("{VOLUMES}/a")).await.0, "Released");
    world.stays_silent(SILENCE).await;
}

/// The claim is bound to another volume than the pre-bound one. The pre-bound volume remains available for a claim of
/// that name.
async fn bound_elsewhere(world: &mut World, faults: Faults) {
    world.create(CLAIMS, &claim("x")).await;
    given(world, "a").await;
    world.settle(REST).await;
    world.arm(faults);
    world.create(VOLUMES, &volume("b")).await;
    world.settle(REST).await;
    let bound = world.get(&format!("{CLAIMS}/x")).await.expect("the claim");
    assert_eq!(
        (&bound["spec"]["volumeName"], &bound["status"]["phase"]),
        (&json!("b"), &json!("Bound"))
    );
    assert_eq!(phase(world, &format!("{VOLUMES}/a")).await, ("Available".to_owned(), Value::Null));
    world.stays_silent(SILENCE).await;
}

/// A claim whose volume was deleted is Lost, until the volume exists again.
async fn lost_and_found(world: &mut World, faults: Faults) {
    world.create(VOLUMES, &volume("a")).await;
    world.create(CLAIMS, &claim("x")).await;
    world.settle(REST).await;
    let (a, x) = (format!("{VOLUMES}/a"), format!("{CLAIMS}/x"));
    assert_eq!(phase(world, &x).await.0, "Bound");
    world.delete(&a, "Background").await;
    world.merge(&a, &json!({ "metadata": { "finalizers": null } })).await;
    world.settle(REST).await;
    assert_eq!(phase(world, &x).await.0, "Lost");
    world.arm(faults);
    world.create(VOLUMES, &volume("a")).await;
    world.settle(REST).await;
    check_pairs(&world.list(CLAIMS).await, &world.list(VOLUMES).await);
    world.stays_silent(SILENCE).await;
}

fn each(part: Part, what: FaultKind, scenario: &impl AsyncFn(&mut World, Faults)) {
    each_of(&options(), part, what, 3, scenario);
}

#[test]
fn provisioning_with_a_crash_after_each_write() {
    each(part::CONTROLLERS, FaultKind::CrashAfter, &provisioning);
}

#[test]
fn provisioning_with_each_answer_lost() {
    each(part::CONTROLLERS, FaultKind::LoseAnswer, &provisioning);
}

#[test]
fn provisioning_with_a_scheduler_crash_after_each_write() {
    each(part::SCHEDULER, FaultKind::CrashAfter, &provisioning);
}

#[test]
fn ephemeral_volume_with_a_crash_after_each_write() {
    each(part::CONTROLLERS, FaultKind::CrashAfter, &ephemeral_volume);
}

#[test]
fn binding_with_a_crash_after_each_write() {
    each(part::CONTROLLERS, FaultKind::CrashAfter, &binding);
}

#[test]
fn binding_with_a_crash_before_each_write() {
    each(part::CONTROLLERS, FaultKind::CrashBefore, &binding);
}

/// Like [`each`], for scenarios with few writes.
fn few(scenario: &impl AsyncFn(&mut World, Faults)) {
    each_of(&options(), part::CONTROLLERS, FaultKind::CrashAfter, 0, scenario);
}

#[test]
fn pre_bound_volume_is_released_when_its_claim_is_deleted() {
    few(&pre_bound_claim_deleted);
}

#[test]
fn pre_bound_volume_is_available_when_its_claim_is_bound_elsewhere() {
    few(&bound_elsewhere);
}

#[test]
fn lost_claim_is_bound_when_its_volume_returns() {
    few(&lost_and_found);
}

#[test]
fn provisioning_with_random_faults() {
    several(&options(), 8, (6, 30), &KINDS, &provisioning);
}

#[test]
fn provisioning_with_every_kind_of_fault() {
    every_kind(&options(), &provisioning);
}

#[test]
fn binding_with_every_kind_of_fault() {
    every_kind(&any_volume(), &binding);
}

#[test]
fn ephemeral_volume_with_every_kind_of_fault() {
    every_kind(&options(), &ephemeral_volume);
}

#[test]
fn pre_bound_with_every_kind_of_fault() {
    every_kind(&options(), &pre_bound_claim_deleted);
}

#[test]
fn bound_elsewhere_with_every_kind_of_fault() {
    every_kind(&options(), &bound_elsewhere);
}

#[test]
fn lost_and_found_with_every_kind_of_fault() {
    every_kind(&options(), &lost_and_found);
}
