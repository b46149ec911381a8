//! Which of many events are written, and how: client-go's `EventCorrelator`, as plain data that is told the time.

use super::lru::Lru;
use crate::plan::{Note, Target};
use evenkeel_api::time::{SignedDuration, Timestamp};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

const LRU: usize = 4096;
/// So many different messages of one reason …
const SIMILAR: usize = 10;
/// … without a pause of this length are combined.
const SIMILAR_PAUSE: SignedDuration = SignedDuration::from_secs(600);
/// Events that a source may send about one object at once …
const BURST: u32 = 25;
/// … and the time after which it may send one more.
const REFILL: Duration = Duration::from_secs(300);

const COMBINED: &str = "(combined from similar events): ";

/// An event as it is to stand in the API.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Name of the Event object.
    pub(super) name: String,
    pub(super) regarding: Target,
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
    /// Stands for several messages; upstream leaves the reporting fields of such an event empty.
    pub(super) combined: bool,
}

/// Remembers what was said, for one source.
pub(super) struct Correlator {
    similar: Lru<u64, Similar>,
    seen: Lru<u64, Option<Seen>>,
    buckets: Lru<u64, Bucket>,
}

struct Similar {
    messages: Vec<u64>,
    last: Timestamp,
}

#[derive(Clone)]
struct Seen {
    name: String,
    first: Timestamp,
    count: u32,
}

struct Bucket {
    full_at: Instant,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self { similar: Lru::new(LRU), seen: Lru::new(LRU), buckets: Lru::new(LRU) }
    }

    /// What is to be written for a note of this time; `None` when its source says too much about its object.
    /// A count above 1 means that the Event is there already and is to be patched.
    pub(super) fn correlate(&mut self, note: &Note, at: Timestamp, now: Instant) -> Option<Entry> {
        let (entry, key) = self.combine(note, at);
        let entry = self.count(entry, key);
        self.within_budget(&entry, now).then_some(entry)
    }

    /// A tenth different message of the same reason stands for all that follow.
    fn combine(&mut self, note: &Note, at: Timestamp) -> (Entry, u64) {
        let group = hash(&(&note.regarding, note.warning, note.reason));
        let message = hash(&note.message);
        let similar =
            self.similar.get_or_insert_with(group, || Similar { messages: Vec::new(), last: at });
        if at.duration_since(similar.last) > SIMILAR_PAUSE {
            similar.messages.clear();
        }
        similar.last = at;
        if !similar.messages.contains(&message) {
            similar.messages.push(message);
        }
        let combined = similar.messages.len() >= SIMILAR;
        if combined {
            similar.messages.pop();
        }
        let text =
            if combined { format!("{COMBINED}{}", note.message) } else { note.message.clone() };
        let entry = Entry {
            name: event_name(&note.regarding.name, at),
            regarding: note.regarding.clone(),
            warning: note.warning,
            reason: note.reason,
            message: text,
            first: at,
            last: at,
            count: 1,
            combined,
        };
        // A combined event is counted with its group, another one by its own text.
        (entry, if combined { group } else { hash(&(group, message)) })
    }

    /// A repeat is counted on the Event that is there.
    fn count(&mut self, mut entry: Entry, key: u64) -> Entry {
        let seen = self.seen.get_or_insert_with(key, || None);
        if let Some(present) = seen {
            entry.name.clone_from(&present.name);
            entry.first = present.first;
            entry.count = present.count + 1;
        }
        *seen = Some(Seen { name: entry.name.clone(), first: entry.first, count: entry.count });
        entry
    }

    fn within_budget(&mut self, entry: &Entry, now: Instant) -> bool {
        let key = hash(&(&entry.regarding, entry.warning));
        let bucket = self.buckets.get_or_insert_with(key, || Bucket { full_at: now });
        let full_at = bucket.full_at.max(now) + REFILL;
        let accepted = full_at.saturating_duration_since(now) <= REFILL * BURST;
        if accepted {
            bucket.full_at = full_at;
        }
        accepted
    }
}

/// `<object>.<hex of the nanoseconds since 1970>`.
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

    struct World {
        correlator: Correlator,
        at: Timestamp,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            Self { correlator: Correlator::new(), at: Timestamp::UNIX_EPOCH, now: Instant::now() }
        }

        fn wait(&mut self, seconds: u64) {
            self.at += Duration::from_secs(seconds);
            self.now += Duration::from_secs(seconds);
        }

        fn say(
            &mut self,
            object: &str,
            reason: &'static str,
            message: &str,
        ) -> Option<(String, u32)> {
            let target = Target::new(PODS, "default", object, "uid");
            let note = Note::normal(target, reason, message);
            let entry = self.correlator.correlate(&note, self.at, self.now)?;
            Some((entry.message, entry.count))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeat_is_counted_under_the_first_name() {
        let mut world = World::new();
        let note = Note::normal(Target::new(PODS, "default", "web", "uid"), "Killing", "stopping");
        let first = world.correlator.correlate(&note, world.at, world.now).unwrap();
        world.wait(5);
        let second = world.correlator.correlate(&note, world.at, world.now).unwrap();
        assert_eq!((first.name.as_str(), first.count), ("web.0", 1));
        assert_eq!(
            (second.name, second.count, second.first, second.last),
            (first.name, 2, first.first, world.at)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_tenth_different_message_is_combined() {
        let mut world = World::new();
        for n in 1..=9 {
            assert_eq!(
                world.say("web", "Created", &format!("pod {n}")),
                Some((format!("pod {n}"), 1))
            );
        }
        assert_eq!(world.say("web", "Created", "pod 10"), Some((format!("{COMBINED}pod 10"), 1)));
        assert_eq!(world.say("web", "Created", "pod 11"), Some((format!("{COMBINED}pod 11"), 2)));
        assert_eq!(
            world.say("web", "Deleted", "pod 1"),
            Some(("pod 1".into(), 1)),
            "another reason is another group"
        );
        assert_eq!(
            world.say("api", "Created", "pod 1"),
            Some(("pod 1".into(), 1)),
            "another object is another group"
        );
        world.wait(601);
        assert_eq!(
            world.say("web", "Created", "pod 12"),
            Some(("pod 12".into(), 1)),
            "after a pause all is new"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_talkative_source_is_held_back_for_that_object_only() {
        let mut world = World::new();
        let said = (0..40).filter(|_| world.say("web", "Back", "off").is_some()).count();
        assert_eq!(said, 25);
        assert!(world.say("api", "Back", "off").is_some());
        world.wait(299);
        assert!(world.say("web", "Back", "off").is_none());
        world.wait(1);
        assert_eq!(
            world.say("web", "Back", "off"),
            Some(("off".into(), 42)),
            "what was held back is counted"
        );
        assert!(world.say("web", "Back", "off").is_none());
    }

    #[test]
    fn names_carry_the_time() {
        let at = Timestamp::new(1_700_000_000, 123).unwrap();
        assert_eq!(event_name("web-1", at), "web-1.17979cfe362a007b");
    }
}
