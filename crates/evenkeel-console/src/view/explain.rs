//! What controllers observe of an object, would do, and wait for.

use super::{
    Link,
    ago::Ago,
    controller::{PassRow, pass_row},
};
use crate::route::controller_href;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::{Fact, ObjectReport};

/// A controller's report on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportCard {
    /// Name of the controller, with its page.
    pub(crate) controller: Link,
    /// Whether the object is in the controller's cache.
    pub(crate) exists: bool,
    /// Facts that it observes.
    pub(crate) sees: Vec<Fact>,
    /// Its next actions.
    pub(crate) would: Vec<String>,
    /// Reasons why it waits.
    pub(crate) waits: Vec<String>,
    /// State of the key in its queue. Empty if it is not queued.
    pub(crate) queue: String,
    /// The last pass over the object, if it is kept.
    pub(crate) last: Option<PassRow>,
}

/// Returns whether a report needs attention: it has a next action or a wait, its last pass failed, or the object does
/// not exist.
pub(super) fn needs_attention(report: &ObjectReport) -> bool {
    let failed = report.last.as_ref().is_some_and(|last| last.error.is_some());
    !report.would.is_empty() || !report.waits.is_empty() || failed || !report.exists
}

/// Returns the reports that need attention, and the others.
pub(crate) fn cards(
    now: Timestamp,
    reports: Vec<ObjectReport>,
) -> (Vec<ReportCard>, Vec<ReportCard>) {
    let (loud, quiet): (Vec<_>, Vec<_>) = reports.into_iter().partition(needs_attention);
    let cards = |reports: Vec<ObjectReport>| {
        reports.into_iter().map(|report| card(now, report)).collect::<Vec<_>>()
    };
    (cards(loud), cards(quiet))
}

fn card(now: Timestamp, report: ObjectReport) -> ReportCard {
    let queue = report.queue.as_ref().map(|queue| {
        let ago = |time| Ago::new(now, time).text;
        let state = match (queue.in_flight_since, queue.ready_since, queue.delayed_until) {
            (Some(time), _, _) => format!("in flight since {}", ago(time)),
            (_, Some(time), _) => format!("ready since {}", ago(time)),
            (_, _, Some(time)) => format!("due {}", ago(time)),
            _ => String::new(),
        };
        match (queue.failures, state.is_empty()) {
            (0, _) => state,
            (failures, true) => format!("{failures} failures in a row"),
            (failures, false) => format!("{state}, {failures} failures in a row"),
        }
    });
    ReportCard {
        controller: Link::new(&*report.controller, controller_href(&report.controller)),
        exists: report.exists,
        sees: report.sees,
        would: report.would,
        waits: report.waits,
        queue: queue.unwrap_or_default(),
        last: report.last.as_ref().map(|pass| pass_row(now, pass)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::introspect::KeyState;

    #[test]
    fn quiet_reports_are_apart() {
        let now = Timestamp::from_second(1000).expect("a time");
        let report = |controller: &str| ObjectReport {
            controller: controller.to_owned(),
            exists: true,
            ..ObjectReport::default()
        };
        let waiting = ObjectReport {
            waits: vec!["its pods are not ready".to_owned()],
            queue: Some(KeyState {
                delayed_until: Timestamp::from_second(1120).ok(),
                failures: 2,
                ..KeyState::default()
            }),
            ..report("b")
        };
        let absent = ObjectReport { exists: false, ..report("c") };
        let (loud, quiet) = cards(now, vec![report("a"), waiting, absent]);
        let names = |cards: &[ReportCard]| {
            cards.iter().map(|c| c.controller.text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            (names(&loud), names(&quiet)),
            (vec!["b".to_owned(), "c".to_owned()], vec!["a".to_owned()])
        );
        assert_eq!(loud[0].queue, "due in 2m, 2 failures in a row");
    }
}
