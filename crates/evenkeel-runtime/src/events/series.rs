//! Event cache for events.k8s.io/v1: repeated events become a series of one Event. Contains no I/O; callers provide the time.

use super::correlate::event_name;
use crate::plan::{EventRecord, Target};
use evenkeel_api::time::{SignedDuration, Timestamp};
use std::borrow::Cow;
use std::collections::HashMap;

/// Time without a repeat after which a series ends. Upstream: `finishTime`.
const FINISH_TIME: SignedDuration = SignedDuration::from_mins(6);

/// Event in the cache, with the series of its repeats if it has any.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CachedEvent {
    pub(super) name: String,
    pub(super) record: EventRecord,
    pub(super) action: &'static str,
    pub(super) related: Option<Target>,
    pub(super) at: Timestamp,
    /// `None` for an event that occurred once.
    pub(super) series: Option<Series>,
}

/// Repeats of an event. Upstream: `EventSeries`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Series {
    /// Number of occurrences, at least 2.
    pub(super) count: u32,
    pub(super) last_observed_time: Timestamp,
}

impl CachedEvent {
    /// Creates an event that occurred once.
    pub(super) fn first(
        record: EventRecord,
        action: &'static str,
        related: Option<Target>,
        at: Timestamp,
    ) -> Self {
        let name = event_name(&record.regarding.name, at);
        Self { name, record, action, related, at, series: None }
    }
}

/// Key of a series: equal events belong to one series. Upstream: `eventKey`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EventKey {
    warning: bool,
    action: &'static str,
    reason: Cow<'static, str>,
    regarding: Target,
    related: Option<Target>,
}

/// Cache of the recent events, by the key of their series.
///
/// Upstream: `eventCache`.
#[derive(Debug, Default)]
pub(super) struct EventCache {
    events: HashMap<EventKey, CachedEvent>,
}

impl EventCache {
    /// Records an event. Returns the Event to write if it is new or its series starts. Further repeats are only counted
    /// until the series is refreshed or ends. Events that differ only in their message belong to one series.
    ///
    /// Upstream: `getKey`, `recordToSink`.
    pub(super) fn record(
        &mut self,
        record: EventRecord,
        action: &'static str,
        related: Option<Target>,
        at: Timestamp,
    ) -> Option<CachedEvent> {
        let key = EventKey {
            warning: record.warning,
            action,
            reason: record.reason.clone(),
            regarding: record.regarding.clone(),
            related: related.clone(),
        };
        if let Some(known) = self.events.get_mut(&key) {
            if let Some(series) = &mut known.series {
                series.count += 1;
                series.last_observed_time = at;
                return None;
            }
            known.series = Some(Series { count: 2, last_observed_time: at });
            return Some(known.clone());
        }
        let event = CachedEvent::first(record, action, related, at);
        self.events.insert(key, event.clone());
        Some(event)
    }

    /// Returns the current series, which the caller writes again before their Events expire.
    ///
    /// Upstream: `refreshExistingEventSeries`.
    pub(super) fn refresh_existing_event_series(&self) -> Vec<CachedEvent> {
        let mut series: Vec<CachedEvent> =
            self.events.values().filter(|event| event.series.is_some()).cloned().collect();
        series.sort_by(|a, b| a.name.cmp(&b.name));
        series
    }

    /// Drops events without a repeat for longer than [`FINISH_TIME`]. Returns the series among them, which the caller writes a
    /// last time.
    ///
    /// Upstream: `finishSeries`.
    pub(super) fn finish_series(&mut self, now: Timestamp) -> Vec<CachedEvent> {
        let mut ended = Vec::new();
        self.events.retain(|_, event| {
            let last = event.series.map_or(event.at, |series| series.last_observed_time);
            let is_finished = now.duration_since(last) > FINISH_TIME;
            if is_finished && event.series.is_some() {
                ended.push(event.clone());
            }
            !is_finished
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

    fn series(count: u32, second: i64) -> Option<Series> {
        Some(Series { count, last_observed_time: at(second) })
    }

    fn failed(message: &str) -> EventRecord {
        EventRecord::warning(Target::new(PODS, "ns", "web", "u"), "FailedScheduling", message)
    }

    #[test]
    fn repeats_become_a_series_that_is_written_when_it_starts_and_ends() {
        let mut cache = EventCache::default();
        let first = cache.record(failed("0/1 nodes"), "Scheduling", None, at(0)).unwrap();
        assert_eq!((first.series, first.name.as_str()), (None, "web.0"));
        let second = cache.record(failed("0/2 nodes"), "Scheduling", None, at(10)).unwrap();
        assert_eq!((second.series, second.name.as_str()), (series(2, 10), "web.0"));
        assert_eq!(cache.record(failed("0/3 nodes"), "Scheduling", None, at(20)), None);
        assert!(
            cache.record(failed("x"), "Binding", None, at(20)).is_some(),
            "another action is another event"
        );
        assert_eq!(cache.refresh_existing_event_series().len(), 1);
        assert_eq!(cache.finish_series(at(20 + 360)), []);
        let ended = cache.finish_series(at(20 + 361));
        assert_eq!(ended.iter().map(|event| event.series).collect::<Vec<_>>(), [series(3, 20)]);
        assert!(cache.events.is_empty());
    }
}
