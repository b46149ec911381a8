//! Two controller managers with one leader: faults of the leader must never lead to two leaders.

use crate::fixtures::{DEPLOYMENTS, MINUTE, REST, check_deployment, deployment};
use evenkeel_sim::{FaultKind, Faults, Options, Outcome, Part, World, Write, explore, part};

const ONE: Part = part::REPLICA.replica(1);
const TWO: Part = part::REPLICA.replica(2);

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

fn options() -> Options {
    Options { parts: vec![part::NODES, part::SCHEDULER, ONE], ..Options::default() }
}

/// Returns the writes of controllers that the server received.
fn seen(world: &World) -> Vec<Write> {
    let written = |write: &Write| {
        let of_leader = write.part.name() == part::REPLICA.name();
        of_leader
            && !write.is_event()
            && matches!(write.outcome, Outcome::Answered(_) | Outcome::Unheard(_))
    };
    world.log().since(0).into_iter().filter(written).collect()
}

/// Returns the identity of the candidate that holds the lease.
async fn holder(world: &World) -> String {
    let lease = world.get(LEASE).await.expect("it is there");
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// A fault hits the leader while it creates the pods of a Deployment. The other process takes over and completes the work.
/// From then on, the first process writes nothing.
async fn work(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.start(TWO);
    world.settle(REST).await;
    assert!(seen(world).iter().all(|write| write.part == ONE), "the first one leads");
    let first = holder(world).await;
    assert!(first.starts_with(&format!("{ONE}_")), "{first} leads");
    let kind_at = faults.at_writes.first().map(|fault| (fault.kind, fault.at));
    world.arm(faults);
    world.create(DEPLOYMENTS, &deployment(2, "a")).await;
    world.settle(REST).await;
    // The absent process returns, and has nothing left to do.
    world.pass(MINUTE).await;
    world.settle(REST).await;
    check_deployment(world, 2, "a", 1).await;
    let writes = seen(world);
    let taken_over = writes.iter().position(|write| write.part == TWO);
    let last = holder(world).await;
    match kind_at.filter(|(_, at)| world.writes(ONE) >= *at) {
        None => assert_eq!(last, first, "nothing happened to it"),
        // A process that restarts at once is a candidate like the other one.
        Some((FaultKind::CrashAfter | FaultKind::StaleRestart, _)) => {
            assert_ne!(last, first, "its lease ends with it");
        }
        Some(_) => assert!(last.starts_with(&format!("{TWO}_")), "{last} leads"),
    }
    // The other process makes the writes that the first one never sent.
    if let Some((FaultKind::Pause | FaultKind::Cut, at)) = kind_at {
        assert!(taken_over.is_some() || world.writes(ONE) < at, "the other one ended it");
    }
    let late = writes[taken_over.unwrap_or(writes.len())..].iter();
    let late: Vec<String> =
        late.filter(|write| write.part == ONE).map(ToString::to_string).collect();
    assert!(late.is_empty(), "it wrote although another one led:\n{}", late.join("\n"));
}

#[test]
fn leader_that_crashes_at_any_write_is_replaced() {
    assert!(explore::each_write(&options(), ONE, FaultKind::CrashAfter, &work) >= 5);
}

#[test]
fn leader_paused_at_any_write_writes_nothing_later() {
    assert!(explore::each_write(&options(), ONE, FaultKind::Pause, &work) >= 5);
}

#[test]
fn leader_partitioned_at_any_write_writes_nothing_later() {
    assert!(explore::each_write(&options(), ONE, FaultKind::Cut, &work) >= 5);
}

#[test]
fn leader_that_loses_its_lease_at_any_write_writes_nothing_later() {
    assert!(explore::each_write(&options(), ONE, FaultKind::LoseLease, &work) >= 5);
}

#[test]
fn leader_that_restarts_with_stale_reads_is_replaced() {
    assert!(explore::each_write(&options(), ONE, FaultKind::StaleRestart, &work) >= 5);
}
