//! A Deployment gets a new image under faults.

use crate::fixtures::{
    DEPLOYMENTS, KINDS, REST, SILENCE, check_deployment, deployment, each, every_kind, image,
    ready, repeated, several, web_pods,
};
use evenkeel_sim::{FaultKind, Faults, Options, World};

/// A rolling update replaces four pods. At most five exist and at least three are ready: the default limits of 25 %.
pub(crate) async fn rollout(world: &mut World, faults: Faults) {
    roll_out(world, faults, 5).await;
}

/// Like [`rollout`], but permits another pod. As upstream, only the sizes of the ReplicaSets respect `maxSurge`. If the
/// deletion of an old pod fails, the pod exists for a while beside its replacement.
async fn rollout_where_deletions_fail(world: &mut World, faults: Faults) {
    roll_out(world, faults, 6).await;
}

async fn roll_out(world: &mut World, faults: Faults, most: usize) {
    world.settle(REST).await;
    let repeated = repeated(&faults);
    world.arm(faults);
    let pods = web_pods(world).await;
    world.create(DEPLOYMENTS, &deployment(4, "a")).await;
    ready(world, &pods, 4).await;
    assert!(pods.max_active() <= 4 + repeated, "{:?}", pods.counts());
    pods.reset();
    world.merge(&format!("{DEPLOYMENTS}/web"), &image("b")).await;
    world.settle(REST).await;
    assert!(pods.max_active() <= most + repeated, "too many pods: {:?}", pods.counts());
    assert!(pods.min_ready() >= 3, "too few pods: {:?}", pods.counts());
    check_deployment(world, 4, "b", 2).await;
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 20, &rollout);
}

#[test]
fn with_a_crash_before_each_write() {
    each(FaultKind::CrashBefore, 20, &rollout);
}

/// The run has several faults and stale caches.
#[test]
fn random_faults() {
    let kinds = [&KINDS[..], &[FaultKind::Refuse(503)]].concat();
    several(&Options::default(), 8, (8, 40), &kinds, &rollout_where_deletions_fail);
}

#[test]
fn rollout_with_every_kind_of_fault() {
    every_kind(&Options::default(), &rollout);
}
