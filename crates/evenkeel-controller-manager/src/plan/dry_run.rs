//! Report of a dry run: the planned writes, and the controllers that have not finished planning.

use evenkeel_api::time::{SignedDuration, Timestamp};
use evenkeel_component::count::counted;
use evenkeel_runtime::{
    client::DryRunWrite,
    introspect::{ControllerReport, KeyState},
};
use serde::Serialize;
use std::process::ExitCode;

/// Exit code if there are planned writes.
const EXIT_WRITES_PLANNED: u8 = 2;
/// The dry run waits for keys whose delay ends within this time.
const MAX_DELAY: SignedDuration = SignedDuration::from_secs(10);
/// The dry run does not wait for a key with a longer delay that had a pass: such a key is reconciled periodically.
const MAX_REPEAT_DELAY: SignedDuration = SignedDuration::from_secs(2);
/// The dry run does not wait for a key that has failed this many times.
const MAX_FAILURES: u32 = 3;

/// Planned writes of all controllers.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// Planned writes, in the order of their first request.
    pub writes: Vec<DryRunWrite>,
    /// Number of events that would be recorded.
    pub events: usize,
    /// Names of the controllers that planned.
    pub controllers: Vec<String>,
    /// Descriptions of caches and controllers that did not become idle.
    pub unfinished: Vec<String>,
}

impl DryRun {
    /// Formats the writes for people: one line per write, grouped by controller.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: &str| {
            out.push_str(text);
            out.push('\n');
        };
        let mut controllers: Vec<&str> = self.writes.iter().map(|write| &*write.by).collect();
        controllers.sort_unstable();
        controllers.dedup();
        for controller in controllers {
            line(controller);
            for write in self.writes.iter().filter(|write| write.by == controller) {
                line(&format!("  {write}"));
            }
        }
        for description in &self.unfinished {
            line(&format!("note: {description}"));
        }
        let (writes, events) = (self.writes.len(), self.events);
        if writes == 0 {
            line(&format!(
                "{} would write nothing.",
                counted(self.controllers.len(), "controller")
            ));
        } else {
            let (writes, events) = (counted(writes, "write"), counted(events, "event"));
            line(&format!("{writes} and {events} would be made now; none was."));
            line("What would follow from them (the pods of a new ReplicaSet, say) is not shown.");
        }
        out
    }

    /// Returns exit code 0 if no writes are planned, otherwise 2.
    pub fn exit_code(&self) -> ExitCode {
        if self.writes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_WRITES_PLANNED) }
    }
}

/// Describes the caches that have not synced, and the controllers whose queues have keys that are ready, in work or due
/// within [`MAX_DELAY`]. The dry run does not wait for a
/// key that had a pass and is due later.
pub(super) fn describe_busy(reports: &[ControllerReport], now: Timestamp) -> Vec<String> {
    let mut busy = Vec::new();
    for report in reports {
        let ControllerReport { name, queue, caches, passes, .. } = report;
        for cache in caches.iter().filter(|cache| !cache.synced) {
            let why = cache.trouble.as_deref().unwrap_or("it takes long");
            busy.push(format!("{name} does not see {}: {why}", cache.resource));
        }
        let is_due_soon = |key: &&KeyState| {
            let had_pass = passes.iter().any(|pass| pass.key == key.key && pass.error.is_none());
            let max_delay = if had_pass { MAX_REPEAT_DELAY } else { MAX_DELAY };
            let is_due = |until: Timestamp| until <= now + max_delay;
            key.failures < MAX_FAILURES && key.delayed_until.is_some_and(is_due)
        };
        let due_soon = queue.keys.iter().filter(is_due_soon).count();
        if !queue.is_idle() || due_soon > 0 {
            let remaining = queue.ready + queue.in_flight + due_soon;
            let first =
                queue.keys.iter().find(|key| key.delayed_until.is_none() || is_due_soon(key));
            let first = first.map_or(String::new(), |key| format!(", such as {}", key.key));
            busy.push(format!("{name} still looks at {}{first}", counted(remaining, "object")));
        }
    }
    busy
}

/// Describes the controllers with keys in backoff, each with its latest error.
pub(super) fn describe_failing(reports: &[ControllerReport]) -> Vec<String> {
    let failed = reports.iter().filter(|report| report.queue.backing_off > 0);
    failed
        .map(|report| {
            let latest = report.errors.first();
            let last = latest.map(|error| format!(", last {}: {}", error.key, error.error));
            let last = last.unwrap_or_default();
            let objects = counted(report.queue.backing_off, "object");
            format!("{} failed at {objects}{last}", report.name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::introspect::{CacheState, KeyState, Pass, QueueState};

    /// Returns the report of a controller `c` with this queue.
    fn report(queue: QueueState) -> ControllerReport {
        ControllerReport { name: "c".to_owned(), queue, ..ControllerReport::default() }
    }

    /// Returns a queue with one key that is delayed until this time and has failed this many times.
    fn delayed(seconds: i64, failures: u32) -> QueueState {
        let until = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let key = KeyState {
            key: "k".to_owned(),
            delayed_until: Some(until),
            failures,
            ..KeyState::default()
        };
        QueueState { keys: vec![key], ..QueueState::default() }
    }

    #[test]
    fn a_controller_is_busy_while_keys_are_ready_in_work_or_due_soon() {
        let two_keys = QueueState { ready: 1, in_flight: 1, ..QueueState::default() };
        let one = "c still looks at 1 object, such as k";
        for (queue, want) in [
            (QueueState::default(), None),
            (two_keys, Some("c still looks at 2 objects")),
            (delayed(10, 0), Some(one)),
            (delayed(11, 0), None),
            (delayed(1, MAX_FAILURES), None),
        ] {
            let busy = describe_busy(&[report(queue)], Timestamp::UNIX_EPOCH);
            assert_eq!(busy, want.into_iter().collect::<Vec<_>>());
        }
        let pass = |key: &str, error: Option<&str>| Pass {
            key: key.to_owned(),
            at: Timestamp::UNIX_EPOCH,
            seconds: 0.0,
            because: None,
            did: Vec::new(),
            ended: "again".to_owned(),
            error: error.map(str::to_owned),
        };
        for (seconds, pass, is_awaited) in [
            (8, pass("k", None), false),
            (2, pass("k", None), true),
            (8, pass("k", Some("failed")), true),
            (8, pass("other", None), true),
        ] {
            let passed = ControllerReport { passes: vec![pass], ..report(delayed(seconds, 0)) };
            let busy = describe_busy(&[passed], Timestamp::UNIX_EPOCH);
            assert_eq!(!busy.is_empty(), is_awaited, "{seconds}");
        }
    }

    #[test]
    fn a_cache_that_has_not_synced_is_reported_with_its_error() {
        let cache = CacheState {
            resource: "pods".to_owned(),
            trouble: Some("forbidden".to_owned()),
            ..CacheState::default()
        };
        let unsynced = ControllerReport { caches: vec![cache], ..report(QueueState::default()) };
        let busy = describe_busy(&[unsynced], Timestamp::UNIX_EPOCH);
        assert_eq!(busy, ["c does not see pods: forbidden"]);
    }

    #[test]
    fn failures_are_reported_with_the_number_of_failing_objects() {
        let reports =
            [1, 0].map(|backing_off| report(QueueState { backing_off, ..QueueState::default() }));
        assert_eq!(describe_failing(&reports), ["c failed at 1 object"]);
    }
}
