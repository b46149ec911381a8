//! Which events.k8s.io/v1 Events are written, and how: repeats become a series on one Event. Plain data, told the time.

use super::correlate::event_name;
use crate::plan::{Note, Target};
use evenkeel_api::time::{SignedDuration, Timestamp};
use std::collections::HashMap;

/// A series without a repeat for so long has ended (client-go's `finishTime`).
const FINISH: SignedDuration = SignedDuration::from_mins(6);

/// An event as it is to stand in the API.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) note: Note,
    pub(super) action: &'static str,
    pub(super) related: Option<Target>,
    pub(super) at: Timestamp,
    /// How often it was seen, and when last; `None` for a single event.
    pub(super) series: Option<(u32, Timestamp)>,
}

impl Series {
    /// An event that was seen once.
    pub(super) fn first(
        note: Note,
        action: &'static str,
        related: Option<Target>,
        at: Timestamp,
    ) -> Self {
        let name = event_name(&note.regarding.name, at);
        Self { name, note, action, related, at, series: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Same {
    warning: bool,
    action: &'static str,
    reason: &'static str,
    regarding: Target,
    related: Option<Target>,
}

/// Events of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Book {
    events: HashMap<Same, Series>,
}

impl Book {
    /// What is to be written for this note: a new event, the start of a series, or nothing, for a later repeat of a series
    /// is only counted until the series is refreshed or ends. Two notes that differ by their message alone are the same.
    pub(super) fn record(
        &mut self,
        note: Note,
        action: &'static str,
        related: Option<Target>,
        at: Timestamp,
    ) -> Option<Series> {
        let same = Same {
            warning: note.warning,
            action,
            reason: note.reason,
            regarding: note.regarding.clone(),
            related: related.clone(),
        };
        if let Some(present) = self.events.get_mut(&same) {
            if let Some((count, last)) = &mut present.series {
                (*count, *last) = (*count + 1, at);
                return None;
            }
            present.series = Some((2, at));
            return Some(present.clone());
        }
        let event = Series::first(note, action, related, at);
        self.events.insert(same, event.clone());
        Some(event)
    }

    /// The series in progress, to be written again so that they do not expire.
    pub(super) fn refresh(&self) -> Vec<Series> {
        let mut series: Vec<Series> =
            self.events.values().filter(|event| event.series.is_some()).cloned().collect();
        series.sort_by(|a, b| a.name.cmp(&b.name));
        series
    }

    /// Forgets what was not repeated for six minutes; returns the series among it, to be written a last time.
    pub(super) fn finish(&mut self, now: Timestamp) -> Vec<Series> {
        let mut ended = Vec::new();
        self.events.retain(|_, event| {
            let last = event.series.map_or(event.at, |(_, last)| last);
            let over = now.duration_since(last) > FINISH;
            if over && event.series.is_some() {
                ended.push(event.clone());
            }
            !over
        });
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Kind;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn failed(message: &str) -> Note {
        Note::warning(Target::new(PODS, "ns", "web", "u"), "FailedScheduling", message)
    }

    #[test]
    fn repeats_become_a_series_that_is_written_when_it_starts_and_ends() {
        let mut book = Book::default();
        let first = book.record(failed("0/1 nodes"), "Scheduling", None, at(0)).unwrap();
        assert_eq!((first.series, first.name.as_str()), (None, "web.0"));
        let second = book.record(failed("0/2 nodes"), "Scheduling", None, at(10)).unwrap();
        assert_eq!((second.series, second.name.as_str()), (Some((2, at(10))), "web.0"));
        assert_eq!(book.record(failed("0/3 nodes"), "Scheduling", None, at(20)), None);
        assert!(
            book.record(failed("x"), "Binding", None, at(20)).is_some(),
            "another action is another event"
        );
        assert_eq!(book.refresh().len(), 1);
        assert_eq!(book.finish(at(20 + 360)), []);
        let ended = book.finish(at(20 + 361));
        assert_eq!(ended.iter().map(|event| event.series).collect::<Vec<_>>(), [Some((3, at(20)))]);
        assert!(book.events.is_empty());
    }
}
