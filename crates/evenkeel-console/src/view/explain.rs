//! Reports of controllers on an object: observations, next actions and waits; and the causes of its state.

use super::{
    Link,
    ago::Ago,
    controller::{PassRow, pass_row},
};
use crate::route::controller_href;
use evenkeel_api::time::Timestamp;
use evenkeel_explain::{Cause, Sections, facts, sections};
use evenkeel_runtime::introspect::{Fact, ObjectReport, Subject};

/// Maximum number of causes on a page.
const MAX_CAUSES: usize = 20;

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

/// Reason why the object is not in its desired state, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CauseRow {
    /// Dependent object with the cause. Empty for the object of the page.
    pub(crate) object: Link,
    /// Number of further objects of the same kind with the same cause.
    pub(crate) others: usize,
    /// Sentence about the object, without its name.
    pub(crate) text: String,
}

/// A controller that has nothing to do, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuietLine {
    /// Name of the controller, with its page.
    pub(crate) controller: Link,
    /// Facts that it observes. Empty if there are none.
    pub(crate) sees: String,
}

/// Reports on an object, those that need attention first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reports {
    /// Reports that need attention, and all reports of controllers that manage dependents.
    pub(crate) cards: Vec<ReportCard>,
    /// Whether a card needs attention.
    pub(crate) attention: bool,
    /// Controllers with nothing to do: those that observe something first.
    pub(crate) quiet: Vec<QuietLine>,
}

impl Reports {
    /// Returns whether no controller reconciles the object.
    pub(crate) fn is_empty(&self) -> bool {
        self.cards.is_empty() && self.quiet.is_empty()
    }
}

/// Returns the reports on an object in the order of `evenkeel explain`.
pub(crate) fn reports(now: Timestamp, reports: &[ObjectReport]) -> Reports {
    let Sections { attention, managing, observing, silent } = sections(reports);
    let line = |report: &ObjectReport| QuietLine {
        controller: Link::new(&*report.controller, controller_href(&report.controller)),
        sees: facts(report),
    };
    Reports {
        attention: !attention.is_empty(),
        cards: attention.into_iter().chain(managing).map(|r| card(now, r.clone())).collect(),
        quiet: observing.into_iter().chain(silent).map(line).collect(),
    }
}

/// Returns the causes why an object and its dependents are not in their desired state. `href` returns the page of an object.
pub(crate) fn causes(
    root: &Subject,
    causes: Vec<Cause>,
    href: impl Fn(&Subject) -> String,
) -> (Vec<CauseRow>, usize) {
    let more = causes.len().saturating_sub(MAX_CAUSES);
    let row = |Cause { object, others, text }: Cause| CauseRow {
        object: match object == *root {
            true => Link::default(),
            false => Link::new(object.to_string(), href(&object)),
        },
        others,
        text,
    };
    (causes.into_iter().take(MAX_CAUSES).map(row).collect(), more)
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
        let observing = ObjectReport {
            sees: vec![Fact { what: "zone".to_owned(), value: "Normal".to_owned() }],
            ..report("d")
        };
        let shown = reports(now, &[report("a"), waiting, absent, observing]);
        let names: Vec<_> = shown.cards.iter().map(|card| &*card.controller.text).collect();
        assert_eq!((names, shown.attention), (vec!["b", "c"], true));
        assert_eq!(shown.cards[0].queue, "due in 2m, 2 failures in a row");
        let quiet: Vec<_> =
            shown.quiet.iter().map(|line| (&*line.controller.text, &*line.sees)).collect();
        assert_eq!(quiet, [("d", "zone Normal"), ("a", "")]);
        assert!(reports(now, &[]).is_empty() && !reports(now, &[report("a")]).attention);
    }

    #[test]
    fn causes_of_dependents_are_links() {
        let root = Subject::new("apps", "Deployment", "ns", "web");
        let pod = Subject::new("", "Pod", "ns", "p");
        let cause = |object: &Subject, others| Cause {
            object: object.clone(),
            others,
            text: "it is paused".to_owned(),
        };
        let all = vec![cause(&root, 0), cause(&pod, 2)];
        let (rows, more) = causes(&root, all, |subject| format!("/{}", subject.name));
        let shown: Vec<_> =
            rows.iter().map(|r| (&*r.object.text, &*r.object.href, r.others)).collect();
        assert_eq!((shown, more), (vec![("", "", 0), ("Pod ns/p", "/p", 2)], 0));
        let (rows, more) = causes(&root, vec![cause(&pod, 0); 25], |_| String::new());
        assert_eq!((rows.len(), more), (MAX_CAUSES, 5));
    }
}
