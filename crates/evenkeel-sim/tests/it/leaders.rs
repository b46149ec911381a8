//! Two controller managers with one leader: faults of the leader must never lead to two leaders.

use crate::fixtures::{DEPLOYMENTS, MINUTE, REST, check_deployment, deployment};
use evenkeel_sim::{FaultKind, Faults, Options, Outcome, Part, World, Write, explore, part};

const ONE: Part = part::REPLICA.replica(1);
const TWO: Part = part::REPLICA.replica(2);

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

/// A fault hits the leader during its work. The other process takes over and completes the work, and from then on the first
/// process writes nothing.
async fn work(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.start(TWO);
    world.settle(REST).await;
    assert!(seen(world).iter().all(|write| write.part == ONE), "the first one leads");
    world.arm(faults);
    world.create(DEPLOYMENTS, &deployment(2, "a")).await;
    world.settle(REST).await;
    // The absent process returns, and finds nothing left to do.
    world.pass(MINUTE).await;
    world.settle(REST).await;
    check_deployment(world, 2, "a", 1).await;
    let writes = seen(world);
    let taken_over = writes.iter().position(|write| write.part == TWO).unwrap_or(writes.len());
    let late = writes[taken_over..].iter().filter(|write| write.part == ONE);
    let late: Vec<String> = late.map(ToString::to_string).collect();
    assert!(late.is_empty(), "it wrote although another one led:\n{}", late.join("\n"));
}

#[test]
fn leader_that_crashes_at_any_write_is_replaced() {
    assert!(explore::each_write(&options(), ONE, FaultKind::CrashAfter, &work) > 5);
}

#[test]
fn leader_paused_at_any_write_writes_nothing_later() {
    assert!(explore::each_write(&options(), ONE, FaultKind::Pause, &work) > 5);
}

#[test]
fn leader_partitioned_at_any_write_writes_nothing_later() {
    assert!(explore::each_write(&options(), ONE, FaultKind::Cut, &work) > 5);
}
