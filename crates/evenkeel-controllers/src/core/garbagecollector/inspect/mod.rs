//! Reports of the garbage collector for `evenkeel explain`.

mod report;

use super::{DESCRIPTOR, GarbageCollector, graph::Uid};
use crate::words;
use evenkeel_runtime::{
    clock::Clock,
    introspect::{ControllerReport, Description, Inspect, ObjectReport, QueueState, Subject},
    queue::Queue,
};
pub(super) use report::{matches_subject, report};
use std::time::Duration;

impl Inspect for GarbageCollector {
    fn name(&self) -> &str {
        DESCRIPTOR.name
    }

    fn report(&self) -> ControllerReport {
        // The limit 0 omits the keys, because the report only needs the counts.
        let delete_queue = self.0.attempt_to_delete.snapshot(0);
        let orphan_queue = self.0.attempt_to_orphan.snapshot(0);
        let mut description = Description::new();
        {
            let graph = self.graph();
            description.fact("objects", graph.node_count());
            description.fact("owners known from references only", graph.virtual_node_count());
        }
        description.fact(
            "to be orphaned",
            orphan_queue.ready + orphan_queue.running + orphan_queue.delayed,
        );
        ControllerReport {
            name: DESCRIPTOR.name.to_owned(),
            workers: self.0.workers,
            queue: QueueState {
                ready: delete_queue.ready + orphan_queue.ready,
                in_flight: delete_queue.running + orphan_queue.running,
                delayed: delete_queue.delayed + orphan_queue.delayed,
                backing_off: delete_queue.failing + orphan_queue.failing,
                ..QueueState::default()
            },
            errors: self.0.history.errors(),
            facts: description.facts,
            ..ControllerReport::default()
        }
    }

    fn object(&self, subject: &Subject) -> Option<ObjectReport> {
        let (uid, mut description) = report(&self.graph(), subject, self.0.env.clock.now())?;
        for (queue, purpose) in
            [(&self.0.attempt_to_delete, "deleted"), (&self.0.attempt_to_orphan, "orphaned")]
        {
            if let Some(position) = queue_position(queue, &uid, &self.0.env.clock) {
                description.waits.push(format!("{position} to see whether it has to be {purpose}"));
            }
        }
        description.last = self.0.history.last(&subject.key());
        Some(description)
    }
}

/// Describes the object's position in a queue, if it is queued.
fn queue_position(queue: &Queue<Uid>, uid: &Uid, clock: &Clock) -> Option<String> {
    let status = queue.key_status(uid);
    let failures = queue.num_requeues(uid);
    if status.running.is_some() {
        Some("is being looked at".to_owned())
    } else if status.ready.is_some() {
        Some("is to be looked at".to_owned())
    } else {
        let remaining: Duration = status.due?.saturating_duration_since(clock.instant());
        let remaining = words::go_duration(remaining);
        let failures = words::count(i64::from(failures), "failure");
        Some(format!("back-off: is looked at again in {remaining}, after {failures},"))
    }
}
