//! Counts and conditions in the status of a Deployment.

use super::*;
use crate::{
    apps::deployment::progress::{has_deadline, set_condition},
    conditions::Condition,
};
use evenkeel_api::views::{DeploymentCondition, ReplicaSetCondition};

impl World {
    /// Syncs at this time, and returns the new condition `Progressing`: status, reason, and the seconds of its update
    /// and transition.
    fn progressing_at(&mut self, seconds: i64) -> Option<(String, String, i64, i64)> {
        self.now = at(seconds);
        self.sync();
        let seconds = |time: Option<Timestamp>| time.unwrap().duration_since(T0).as_secs();
        let found =
            self.deployment.status.conditions.iter().find(|c| &*c.type_ == "Progressing")?;
        let DeploymentCondition { status, reason, .. } = found;
        let (updated, changed) =
            (seconds(found.last_update_time), seconds(found.last_transition_time));
        Some((status.to_string(), reason.to_string(), updated, changed))
    }

    /// Sets reason and status of the present condition `Progressing`, which then was set at the start.
    fn set_progressing(&mut self, status: &str, reason: &str) {
        let condition = DeploymentCondition {
            type_: "Progressing".into(),
            status: status.into(),
            reason: reason.into(),
            last_update_time: Some(T0),
            last_transition_time: Some(T0),
            ..DeploymentCondition::default()
        };
        self.deployment.status.conditions = Box::new([condition]);
    }

    /// Returns a cluster whose rollout from 4 old pods got stuck half way. The status reports it.
    pub(super) fn stuck() -> Self {
        let mut world = Self::rolling_out(deployment_of_4(), &[(3, 3), (2, 0)]);
        world.set_progressing("True", "ReplicaSetUpdated");
        world.sync();
        world.clear_log();
        world
    }
}

fn is(
    status: &str,
    reason: &str,
    updated: i64,
    changed: i64,
) -> Option<(String, String, i64, i64)> {
    Some((status.to_owned(), reason.to_owned(), updated, changed))
}

#[test]
fn deadline_is_any_number_but_the_greatest() {
    for (seconds, expected) in [(None, false), (Some(600), true), (Some(i32::MAX), false)] {
        let mut deployment = deployment_of_4();
        deployment.spec.progress_deadline_seconds = seconds;
        assert_eq!(has_deadline(&deployment), expected);
    }
}

#[test]
fn condition_keeps_its_transition_time_while_its_status_stays() {
    let condition = |status: &str, reason: &str, updated: i64, changed: Option<i64>| {
        let new = Condition::new("Progressing", status, reason, "");
        Condition {
            last_update_time: Some(at(updated)),
            last_transition_time: changed.map(at),
            ..new
        }
    };
    for (present, status, reason, expected) in [
        (condition("True", "A", 1, Some(2)), "True", "A", condition("True", "A", 1, Some(2))),
        (condition("True", "A", 1, Some(2)), "True", "B", condition("True", "B", 9, Some(2))),
        (condition("True", "A", 1, None), "True", "B", condition("True", "B", 9, Some(9))),
        (condition("True", "A", 1, Some(2)), "False", "A", condition("False", "A", 9, Some(9))),
        (condition("True", "A", 1, Some(2)), "False", "B", condition("False", "B", 9, Some(9))),
    ] {
        let other = Condition::new("Available", "True", "", "");
        let mut conditions = vec![present, other.clone()];
        set_condition(&mut conditions, Condition::new("Progressing", status, reason, ""), at(9));
        conditions.retain(|condition| *condition != other);
        assert_eq!(conditions, [expected], "{status} {reason}");
    }
}

#[test]
fn progress_renews_the_update_time() {
    type Change = fn(&mut World);
    let unchanged = is("True", "ReplicaSetUpdated", 0, 0);
    let renewed = is("True", "ReplicaSetUpdated", 50, 0);
    let table: [(&str, Change, _); 7] = [
        ("nothing changes", |_| {}, &unchanged),
        ("more pods are updated", |w| w.deployment.status.updated_replicas -= 1, &renewed),
        (
            "fewer old pods exist",
            |w| {
                w.deployment.status.replicas += 1;
            },
            &renewed,
        ),
        ("more pods are ready", |w| w.deployment.status.ready_replicas -= 1, &renewed),
        ("more pods are available", |w| w.deployment.status.available_replicas -= 1, &renewed),
        ("fewer pods are ready", |w| w.deployment.status.ready_replicas += 1, &unchanged),
        ("fewer pods are available", |w| w.deployment.status.available_replicas += 1, &unchanged),
    ];
    for (rule, change, expected) in table {
        let mut world = World::stuck();
        change(&mut world);
        assert_eq!(world.progressing_at(50), *expected, "{rule}");
    }
}

#[test]
fn progressing_follows_rollout_pause_and_deadline() {
    type Change = fn(&mut World);
    let table: [(&str, Change, _); 13] = [
        ("the deadline has not passed", |w| w.now = at(600), is("True", "ReplicaSetUpdated", 0, 0)),
        (
            "the deadline has passed",
            |w| w.now = at(601),
            is("False", "ProgressDeadlineExceeded", 601, 601),
        ),
        (
            "it stays after the deadline",
            |w| {
                w.now = at(9999);
                w.set_progressing("False", "ProgressDeadlineExceeded");
            },
            is("False", "ProgressDeadlineExceeded", 0, 0),
        ),
        (
            "progress after the deadline",
            |w| {
                w.set_progressing("False", "ProgressDeadlineExceeded");
                w.deployment.status.available_replicas -= 1;
            },
            is("True", "ReplicaSetUpdated", 5, 5),
        ),
        (
            "a rollout that was complete is not late",
            |w| {
                w.now = at(9999);
                w.set_progressing("True", "NewReplicaSetAvailable");
            },
            is("True", "NewReplicaSetAvailable", 0, 0),
        ),
        (
            "a new rollout progresses",
            |w| {
                w.set_progressing("True", "NewReplicaSetAvailable");
                w.deployment.status.available_replicas -= 1;
            },
            is("True", "ReplicaSetUpdated", 5, 0),
        ),
        (
            "after a complete rollout, lost pods do not count",
            |w| {
                w.sets.remove(0);
                w.sets[0].spec.replicas = Some(4);
                w.set_progressing("True", "NewReplicaSetAvailable");
                w.deployment.status.updated_replicas = 1;
            },
            is("True", "NewReplicaSetAvailable", 0, 0),
        ),
        ("without a deadline", |w| w.deployment.spec.progress_deadline_seconds = None, None),
        (
            "it is paused",
            |w| w.deployment.spec.paused = true,
            is("Unknown", "DeploymentPaused", 5, 5),
        ),
        (
            "while paused, progress does not count",
            |w| {
                w.set_progressing("Unknown", "DeploymentPaused");
                w.deployment.spec.paused = true;
                w.deployment.status.available_replicas -= 1;
            },
            is("Unknown", "DeploymentPaused", 0, 0),
        ),
        (
            "it is resumed",
            |w| w.set_progressing("Unknown", "DeploymentPaused"),
            is("Unknown", "DeploymentResumed", 5, 0),
        ),
        (
            "a pause after the deadline",
            |w| {
                w.set_progressing("False", "ProgressDeadlineExceeded");
                w.deployment.spec.paused = true;
            },
            is("False", "ProgressDeadlineExceeded", 0, 0),
        ),
        (
            "the new set is found",
            |w| w.deployment.status.conditions = Box::default(),
            is("True", "FoundNewReplicaSet", 5, 5),
        ),
    ];
    for (rule, change, expected) in table {
        let mut world = World::stuck();
        world.now = at(5);
        change(&mut world);
        let now = world.now.duration_since(T0).as_secs();
        assert_eq!(world.progressing_at(now), expected, "{rule}");
    }
}

#[test]
fn pause_without_deadline_sets_no_condition() {
    let mut world = World::stuck();
    world.deployment.spec.paused = true;
    world.deployment.spec.progress_deadline_seconds = None;
    world.deployment.status.conditions = Box::default();
    assert_eq!(world.progressing_at(5), None);
}

#[test]
fn scaling_leaves_progressing_as_it_is() {
    let mut world = World::stuck();
    world.deployment.status.available_replicas -= 1;
    world.scale(8);
    assert_eq!(world.progressing_at(5), is("True", "ReplicaSetUpdated", 0, 0));
    assert_ne!(world.sizes(), [3, 2]);
}

#[test]
fn complete_rollout_is_not_checked_again() {
    let world = World::rolled_out(deployment_of_4());
    let incomplete = World::stuck();
    assert_eq!(status(&world.observed(), &Outcomes::default(), at(100)), Plan::nothing());
    let wait = |world: &World| {
        let plan = status(&world.observed(), &Outcomes::default(), at(100));
        plan.requeue.map(|after| after.as_secs())
    };
    assert_eq!(wait(&incomplete), Some(501));
}

#[test]
fn available_needs_all_but_max_unavailable_pods() {
    // Of 4 pods, 1 may be unavailable.
    for (available, expected, unavailable) in
        [(2, "False", 2), (3, "True", 1), (4, "True", 0), (5, "True", 0)]
    {
        let mut world = World::rolling_out(deployment_of_4(), &[(4, available)]);
        world.sync();
        assert!(world.condition("Available").starts_with(expected), "{available}");
        assert_eq!(world.deployment.status.unavailable_replicas, unavailable);
    }
}

#[test]
fn terminating_pods_are_counted_once_each_set_reports_them() {
    // `terminatingReplicas` and whether the ReplicaSet controller has observed the set.
    for (sets, expected) in [
        ([(Some(2), true), (Some(1), true)], Some(3)),
        ([(Some(2), true), (None, false)], Some(2)),
        ([(Some(2), true), (None, true)], None),
        ([(None, false), (None, false)], Some(0)),
    ] {
        let mut world = World::rolling_out(deployment_of_4(), &[(3, 3), (2, 2)]);
        for (set, (terminating, is_observed)) in world.sets.iter_mut().zip(sets) {
            set.status.terminating_replicas = terminating;
            if !is_observed {
                set.status.observed_generation = 0;
            }
        }
        world.sync();
        assert_eq!(world.deployment.status.terminating_replicas, expected, "{sets:?}");
    }
}

#[test]
fn replica_failure_of_the_new_set_comes_first() {
    let failure = |message: &str| {
        Box::new([ReplicaSetCondition {
            type_: "ReplicaFailure".into(),
            status: "True".into(),
            reason: "FailedCreate".into(),
            message: message.into(),
            last_transition_time: Some(at(3)),
        }])
    };
    let mut world = World::stuck();
    world.sets[0].status.conditions = failure("old");
    for (new, expected) in
        [(false, "True FailedCreate: old"), (true, "True FailedCreate: new"), (false, "")]
    {
        if new {
            world.sets[1].status.conditions = failure("new");
            // A condition with the same status and reason stays as it is.
            world.deployment.status.conditions = Box::default();
        } else if expected.is_empty() {
            world.sets.iter_mut().for_each(|set| set.status.conditions = Box::default());
        }
        world.sync();
        assert_eq!(world.condition("ReplicaFailure"), expected);
        let found = world.deployment.status.conditions.iter();
        for condition in found.filter(|condition| &*condition.type_ == "ReplicaFailure") {
            assert_eq!(condition.last_update_time, Some(at(3)));
            assert_eq!(condition.last_transition_time, Some(at(3)));
        }
    }
}
