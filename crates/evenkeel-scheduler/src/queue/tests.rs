//! Whose turn it is, by table.

use serde_json::json;
use std::time::Duration;

use super::{Counts, SchedulingQueue, Waits};
use crate::{
    fixtures::{at, info},
    framework::Hint,
    pod::PodInfo,
};

fn queue() -> SchedulingQueue {
    SchedulingQueue::new(Waits {
        initial_backoff: Duration::from_secs(1),
        max_backoff: Duration::from_secs(10),
        max_unschedulable: Duration::from_secs(300),
    })
}

fn with_priority(name: &str, priority: i32) -> PodInfo {
    info(name, &json!({ "spec": { "priority": priority } }))
}

fn pop(queue: &mut SchedulingQueue, seconds: i64) -> Option<String> {
    queue.pop(at(seconds)).map(|popped| popped.uid.to_string())
}

#[test]
fn by_priority_then_by_time() {
    let mut queue = queue();
    for (n, (name, priority)) in
        [("old", 0), ("new", 0), ("urgent", 9), ("idle", -1)].into_iter().enumerate()
    {
        queue.add(with_priority(name, priority), 0, None, at(n as i64));
    }
    let order: Vec<String> = std::iter::from_fn(|| pop(&mut queue, 10)).collect();
    assert_eq!(order, ["urgent", "old", "new", "idle"]);
}

#[test]
fn backoff_doubles_from_one_second_to_ten() {
    let mut queue = queue();
    queue.add(info("p", &json!({})), 0, None, at(0));
    let mut now = 0;
    for wait in [1, 2, 4, 8, 10, 10] {
        assert_eq!(pop(&mut queue, now).as_deref(), Some("p"));
        queue.failed("p", at(now));
        assert_eq!(queue.next_due(), Some(at(now + wait)));
        assert_eq!(pop(&mut queue, now + wait - 1), None, "an error is never tried early");
        now += wait;
    }
}

#[test]
fn an_unschedulable_pod_waits_for_a_change_that_its_rejectors_care_for() {
    let mut queue = queue();
    queue.add(info("p", &json!({})), 0, None, at(0));
    pop(&mut queue, 0);
    queue.unschedulable("p", vec![3], at(0));
    assert_eq!(pop(&mut queue, 20), None);
    queue.moved(at(20), |_, _, plugin| Hint::when(plugin != 3));
    assert_eq!(pop(&mut queue, 20), None);
    queue.moved(at(20), |_, _, plugin| Hint::when(plugin == 3));
    assert_eq!(pop(&mut queue, 20).as_deref(), Some("p"));
}

#[test]
fn a_pod_that_backs_off_is_tried_early_when_nothing_else_waits() {
    let mut queue = queue();
    for name in ["p", "q"] {
        queue.add(info(name, &json!({})), 0, None, at(0));
    }
    pop(&mut queue, 0);
    queue.unschedulable("p", vec![], at(0));
    queue.moved(at(0), |_, _, _| Hint::Queue);
    assert_eq!(queue.counts(), Counts { active: 1, backoff: 1, ..Counts::default() });
    assert_eq!(pop(&mut queue, 0).as_deref(), Some("q"));
    assert_eq!(pop(&mut queue, 0).as_deref(), Some("p"));
}

#[test]
fn what_nothing_helps_is_tried_again_after_five_minutes() {
    let mut queue = queue();
    queue.add(info("p", &json!({})), 0, None, at(0));
    pop(&mut queue, 0);
    queue.unschedulable("p", vec![1], at(0));
    assert_eq!(pop(&mut queue, 299), None);
    assert_eq!(pop(&mut queue, 330).as_deref(), Some("p"));
}

#[test]
fn gates_hold_back_until_they_are_gone() {
    let mut queue = queue();
    queue.add(info("p", &json!({})), 0, Some(0), at(0));
    queue.moved(at(1), |_, _, _| Hint::Queue);
    assert_eq!((pop(&mut queue, 400), queue.counts().gated), (None, 1));
    queue.changed_itself("p", None, at(2), |_, _, _| Hint::Skip);
    assert_eq!(pop(&mut queue, 2).as_deref(), Some("p"));
}

#[test]
fn a_removed_pod_leaves_nothing_behind() {
    let mut queue = queue();
    for (n, name) in ["active", "backoff", "unschedulable", "gated"].into_iter().enumerate() {
        queue.add(info(name, &json!({})), 0, (n == 3).then_some(0), at(0));
        if n == 1 || n == 2 {
            let uid = name;
            while pop(&mut queue, 0).is_some_and(|popped| popped != uid) {}
            if n == 1 { queue.failed(uid, at(0)) } else { queue.unschedulable(uid, vec![1], at(0)) }
        }
    }
    for name in ["active", "backoff", "unschedulable", "gated"] {
        queue.remove(name);
    }
    assert_eq!(queue.counts(), Counts::default());
    assert_eq!(pop(&mut queue, 1000), None);
}
