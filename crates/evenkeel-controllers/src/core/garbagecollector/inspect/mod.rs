//! Reports of the garbage collector for `evenkeel explain`.

mod report;

use super::{DESCRIPTOR, GarbageCollector, graph::Uid};
use crate::words;
use evenkeel_runtime::{
    clock::Clock,
    introspect::{ControllerReport, Description, Inspect, ObjectReport, QueueState, Subject},
    queue::Queue,
};
pub(super) use report::{is_at, report};
use std::time::Duration;

impl Inspect for GarbageCollector {
    fn name(&self) -> &str {
        DESCRIPTOR.name
    }

    fn report(&self) -> ControllerReport {
        let (delete, orphan) =
            (self.0.attempt_to_delete.snapshot(0), self.0.attempt_to_orphan.snapshot(0));
        let mut description = Description::new();
        {
            let graph = self.graph();
            let (known, only_named) = graph.counts();
            description.fact("objects", known);
            description.fact("owners known from references only", only_named);
        }
        description.fact("to be orphaned", orphan.ready + orphan.running + orphan.delayed);
        ControllerReport {
            name: DESCRIPTOR.name.to_owned(),
            workers: self.0.workers,
            queue: QueueState {
                ready: delete.ready + orphan.ready,
                in_flight: delete.running + orphan.running,
                delayed: delete.delayed + orphan.delayed,
                backing_off: delete.failing + orphan.failing,
                ..QueueState::default()
            },
            errors: self.0.history.errors(),
            facts: description.facts,
            ..ControllerReport::default()
        }
    }

    fn object(&self, subject: &Subject) -> Option<ObjectReport> {
        let (uid, mut description) = report(&self.graph(), subject, self.0.env.clock.now())?;
        for (queue, what) in
            [(&self.0.attempt_to_delete, "deleted"), (&self.0.attempt_to_orphan, "orphaned")]
        {
            if let Some(why) = queued(queue, &uid, &self.0.env.clock) {
                description.waits.push(format!("{why} to see whether it has to be {what}"));
            }
        }
        description.last = self.0.history.last(&subject.key());
        Some(description)
    }
}

/// Describes the object's position in a queue, if it is queued.
fn queued(queue: &Queue<Uid>, uid: &Uid, clock: &Clock) -> Option<String> {
    let position = queue.key_status(uid);
    let failures = queue.num_requeues(uid);
    let now = clock.instant();
    if position.running.is_some() {
        Some("is being looked at".to_owned())
    } else if position.ready.is_some() {
        Some("is to be looked at".to_owned())
    } else {
        let remaining: Duration = position.due?.saturating_duration_since(now);
        let remaining = words::go_duration(remaining);
        Some(format!("back-off: is looked at again in {remaining}, after {failures} failures,"))
    }
}
