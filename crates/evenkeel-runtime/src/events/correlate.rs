//! Event correlation: aggregation, counting and the spam filter. Contains no I/O; callers provide the time.
//!
//! Upstream: `EventCorrelator`.

use super::lru::Lru;
use crate::plan::{EventRecord, Target};
use evenkeel_api::time::{SignedDuration, Timestamp};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

const MAX_LRU_CACHE_ENTRIES: usize = 4096;
/// Number of different messages of one reason from which similar events are aggregated (`defaultAggregateMaxEvents`).
const AGGREGATE_MAX_EVENTS: usize = 10;
/// Time without similar events after which aggregation starts again (`defaultAggregateIntervalInSeconds`).
const AGGREGATE_INTERVAL: SignedDuration = SignedDuration::from_secs(600);
/// Maximum number of events about one object that a source may record in a burst (`defaultSpamBurst`).
const SPAM_BURST: u32 = 25;
/// Time after which a source may record one more event about an object (`defaultSpamQPS`).
const SPAM_REFILL_INTERVAL: Duration = Duration::from_secs(300);

const AGGREGATED_PREFIX: &str = "(combined from similar events): ";

/// Event after correlation, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CorrelatedEvent {
    /// Name of the Event object.
    pub(super) name: String,
    pub(super) regarding: Target,
    pub(super) warning: bool,
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
    /// Whether the event combines several messages. Upstream leaves the reporting fields of such an event
    /// empty.
    pub(super) aggregated: bool,
}

/// Correlates the events of one source.
pub(super) struct EventCorrelator {
    aggregates: Lru<u64, AggregateRecord>,
    logs: Lru<u64, Option<EventLog>>,
    spam_records: Lru<u64, SpamRecord>,
}

/// Recent similar events, which are aggregated. Upstream: `aggregateRecord`.
struct AggregateRecord {
    /// Hashes of the different messages.
    messages: Vec<u64>,
    last: Timestamp,
}

/// Recorded event whose count is increased. Upstream: `eventLog`.
#[derive(Clone)]
struct EventLog {
    name: String,
    first: Timestamp,
    count: u32,
}

/// Rate limit of the events about one object. Upstream: `spamRecord`.
struct SpamRecord {
    /// Time at which the token bucket would be full again.
    full_at: Instant,
}

impl EventCorrelator {
    pub(super) fn new() -> Self {
        Self {
            aggregates: Lru::new(MAX_LRU_CACHE_ENTRIES),
            logs: Lru::new(MAX_LRU_CACHE_ENTRIES),
            spam_records: Lru::new(MAX_LRU_CACHE_ENTRIES),
        }
    }

    /// Correlates an event that was recorded at the time `at`. Returns the event to write, or `None` if the spam filter
    /// drops it. A count above 1 means that the Event should already exist and be patched.
    ///
    /// Upstream: `EventCorrelate`.
    pub(super) fn correlate(
        &mut self,
        event: &EventRecord,
        at: Timestamp,
        now: Instant,
    ) -> Option<CorrelatedEvent> {
        let (entry, key) = self.aggregate(event, at);
        let entry = self.observe(entry, key);
        self.passes_spam_filter(&entry, now).then_some(entry)
    }

    /// Aggregates similar events: from the tenth different message of a reason, one event represents all further ones.
    ///
    /// Upstream: `EventAggregate`.
    fn aggregate(&mut self, event: &EventRecord, at: Timestamp) -> (CorrelatedEvent, u64) {
        let group = hash(&(&event.regarding, event.warning, &event.reason));
        let message = hash(&event.message);
        let similar = self
            .aggregates
            .get_or_insert_with(group, || AggregateRecord { messages: Vec::new(), last: at });
        if at.duration_since(similar.last) > AGGREGATE_INTERVAL {
            similar.messages.clear();
        }
        similar.last = at;
        if !similar.messages.contains(&message) {
            similar.messages.push(message);
        }
        let aggregated = similar.messages.len() >= AGGREGATE_MAX_EVENTS;
        if aggregated {
            similar.messages.pop();
        }
        let text = if aggregated {
            format!("{AGGREGATED_PREFIX}{}", event.message)
        } else {
            event.message.clone()
        };
        let entry = CorrelatedEvent {
            name: event_name(&event.regarding.name, at),
            regarding: event.regarding.clone(),
            warning: event.warning,
            reason: event.reason.clone(),
            message: text,
            first: at,
            last: at,
            count: 1,
            aggregated,
        };
        // An aggregated event has the count of its group. Any other event has the count of its message.
        (entry, if aggregated { group } else { hash(&(group, message)) })
    }

    /// Counts a repeated event on the existing Event.
    ///
    /// Upstream: `eventObserve`.
    fn observe(&mut self, mut entry: CorrelatedEvent, key: u64) -> CorrelatedEvent {
        let log = self.logs.get_or_insert_with(key, || None);
        if let Some(known) = log {
            entry.name.clone_from(&known.name);
            entry.first = known.first;
            entry.count = known.count + 1;
        }
        *log = Some(EventLog { name: entry.name.clone(), first: entry.first, count: entry.count });
        entry
    }

    /// Returns whether the spam filter accepts an event. All events about an object share one limit, regardless of
    /// type.
    ///
    /// Upstream: `EventSourceObjectSpamFilter`, `getSpamKey`.
    fn passes_spam_filter(&mut self, entry: &CorrelatedEvent, now: Instant) -> bool {
        let key = hash(&entry.regarding);
        let bucket = self.spam_records.get_or_insert_with(key, || SpamRecord { full_at: now });
        let full_at = bucket.full_at.max(now) + SPAM_REFILL_INTERVAL;
        let accepted = full_at.saturating_duration_since(now) <= SPAM_REFILL_INTERVAL * SPAM_BURST;
        if accepted {
            bucket.full_at = full_at;
        }
        accepted
    }
}

/// Returns `<object>.<hex of the nanoseconds since 1970>`.
pub(super) fn event_name(object: &str, at: Timestamp) -> String {
    format!("{object}.{:x}", at.as_nanosecond())
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::Kind;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    /// Event correlator with its wall clock (`at`) and monotonic clock (`now`).
    struct Fixture {
        correlator: EventCorrelator,
        at: Timestamp,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                correlator: EventCorrelator::new(),
                at: Timestamp::UNIX_EPOCH,
                now: crate::clock::Clock::system().instant(),
            }
        }

        fn wait(&mut self, seconds: u64) {
            self.at += Duration::from_secs(seconds);
            self.now += Duration::from_secs(seconds);
        }

        fn record(
            &mut self,
            object: &str,
            reason: &'static str,
            message: &str,
        ) -> Option<(String, u32)> {
            let target = Target::new(PODS, "default", object, "uid");
            let event = EventRecord::normal(target, reason, message);
            let entry = self.correlator.correlate(&event, self.at, self.now)?;
            Some((entry.message, entry.count))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_increase_the_count_of_the_first_event() {
        let mut fixture = Fixture::new();
        let event =
            EventRecord::normal(Target::new(PODS, "default", "web", "uid"), "Killing", "stopping");
        let first = fixture.correlator.correlate(&event, fixture.at, fixture.now).unwrap();
        fixture.wait(5);
        let second = fixture.correlator.correlate(&event, fixture.at, fixture.now).unwrap();
        assert_eq!((first.name.as_str(), first.count), ("web.0", 1));
        assert_eq!(
            (second.name, second.count, second.first, second.last),
            (first.name, 2, first.first, fixture.at)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_tenth_different_message_is_aggregated() {
        let mut fixture = Fixture::new();
        for n in 1..=9 {
            assert_eq!(
                fixture.record("web", "Created", &format!("pod {n}")),
                Some((format!("pod {n}"), 1))
            );
        }
        assert_eq!(
            fixture.record("web", "Created", "pod 10"),
            Some((format!("{AGGREGATED_PREFIX}pod 10"), 1))
        );
        assert_eq!(
            fixture.record("web", "Created", "pod 11"),
            Some((format!("{AGGREGATED_PREFIX}pod 11"), 2))
        );
        assert_eq!(
            fixture.record("web", "Deleted", "pod 1"),
            Some(("pod 1".into(), 1)),
            "another reason is another group"
        );
        assert_eq!(
            fixture.record("api", "Created", "pod 1"),
            Some(("pod 1".into(), 1)),
            "another object is another group"
        );
        fixture.wait(601);
        assert_eq!(
            fixture.record("web", "Created", "pod 12"),
            Some(("pod 12".into(), 1)),
            "after a pause all is new"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_spam_filter_limits_events_of_each_object() {
        let mut fixture = Fixture::new();
        let written = (0..40).filter(|_| fixture.record("web", "Back", "off").is_some()).count();
        assert_eq!(written, 25);
        let target = Target::new(PODS, "default", "web", "uid");
        let warning = EventRecord::warning(target, "Back", "off");
        assert!(fixture.correlator.correlate(&warning, fixture.at, fixture.now).is_none());
        assert!(fixture.record("api", "Back", "off").is_some());
        fixture.wait(299);
        assert!(fixture.record("web", "Back", "off").is_none());
        fixture.wait(1);
        assert_eq!(
            fixture.record("web", "Back", "off"),
            Some(("off".into(), 42)),
            "the filtered events are counted"
        );
        assert!(fixture.record("web", "Back", "off").is_none());
    }

    #[test]
    fn event_names_contain_the_time() {
        let at = Timestamp::new(1_700_000_000, 123).unwrap();
        assert_eq!(event_name("web-1", at), "web-1.17979cfe362a007b");
    }
}
