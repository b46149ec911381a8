//! Ring of a collection's recent events, from which watches and lists at earlier revisions are served. Each ring has a
//! maximum number of events, and all rings together have a maximum number of bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::{Event, Expired};
use super::event_bytes::{HistoryBytes, RingBytes};

/// Maximum number of events in a ring.
const MAX_EVENTS: usize = 16_384;

/// Recent events of a collection, ordered by revision. The oldest events are evicted first.
///
/// Upstream: `watchCache`.
#[doc(alias = "watchCache")]
pub(super) struct Ring {
    events: VecDeque<Arc<Event>>,
    ring_bytes: Arc<RingBytes>,
    /// Revision of the last evicted event. The ring has all events after this revision.
    floor: u64,
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.events.iter().for_each(|event| event.leave_ring());
    }
}

impl Ring {
    pub(super) fn new(floor: u64, all: &HistoryBytes) -> Self {
        let ring_bytes = Arc::new(RingBytes::new(all));
        Self { events: VecDeque::new(), ring_bytes, floor }
    }

    /// Appends an event, which must not be older than the last one. A full ring evicts its oldest event.
    pub(super) fn push(&mut self, event: Arc<Event>) {
        event.enter_ring(&self.ring_bytes);
        self.events.push_back(event);
        while self.events.len() > MAX_EVENTS {
            self.evict_oldest();
        }
    }

    /// Evicts the oldest event. The ring's history then begins after this event's revision.
    fn evict_oldest(&mut self) {
        if let Some(old) = self.events.pop_front() {
            old.leave_ring();
            self.floor = old.entry.revision;
        }
    }

    /// Evicts the oldest events until the ring is smaller by `bytes`, or only one event is left. Returns whether it
    /// evicted any event.
    pub(super) fn evict(&mut self, bytes: usize) -> bool {
        let (before, goal) = (self.events.len(), self.bytes().saturating_sub(bytes));
        while self.events.len() > 1 && self.bytes() > goal {
            self.evict_oldest();
        }
        self.events.len() < before
    }

    /// Returns the total size in bytes of the ring's events.
    pub(super) fn bytes(&self) -> usize {
        self.ring_bytes.own()
    }

    /// Returns the number of events.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the revision of the last evicted event. The ring has all later events.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns all events, ordered by revision.
    pub(super) fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter()
    }

    /// Returns an error unless the ring has all events after `revision`.
    pub(super) fn check_history_after(&self, revision: u64) -> Result<(), Expired> {
        if revision < self.floor { Err(Expired) } else { Ok(()) }
    }

    /// Returns all events of `revision`. A revision has several events if one etcd transaction wrote several objects.
    pub(super) fn at(
        &self,
        revision: u64,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<Event>>, Expired> {
        let start = self.events.partition_point(|event| event.entry.revision < revision);
        let later = self.events.range(start..);
        let events = later.take_while(|event| event.entry.revision == revision).count();
        // The first events of the ring's oldest revision may be evicted already.
        let is_complete = events > 0 && revision > self.floor;
        if is_complete { Ok(self.events.range(start..start + events)) } else { Err(Expired) }
    }

    /// Returns all events after `revision`.
    pub(super) fn since(
        &self,
        revision: u64,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<Event>>, Expired> {
        self.check_history_after(revision)?;
        let start = self.events.partition_point(|event| event.entry.revision <= revision);
        Ok(self.events.range(start..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::entry::{Change, Encoded, SelectionAttributes};

    #[test]
    fn revisions_before_the_dropped_events_are_expired() {
        let mut ring = Ring::new(0, &HistoryBytes::default());
        let encoded = || {
            Encoded::new(
                &serde_json::json!({"metadata": {"name": "a"}}),
                SelectionAttributes::default(),
            )
        };
        for revision in 1..=(MAX_EVENTS as u64 + 10) {
            let entry = Arc::new(encoded().into_entry("a".into(), revision, Change::Added));
            ring.push(Arc::new(Event::new(entry, None)));
        }
        assert!(ring.since(9).is_err());
        assert_eq!(ring.since(10).map(|e| e.len()), Ok(MAX_EVENTS));
        assert_eq!(ring.since(MAX_EVENTS as u64 + 9).map(|e| e.len()), Ok(1));
        assert_eq!(ring.since(MAX_EVENTS as u64 + 99).map(|e| e.len()), Ok(0));
    }

    #[test]
    fn several_events_of_a_revision_are_read_together_or_not_at_all() {
        let mut ring = Ring::new(1, &HistoryBytes::default());
        let object = serde_json::json!({"metadata": {}});
        let push = |ring: &mut Ring, key: &str, revision| {
            let encoded = Encoded::new(&object, SelectionAttributes::default());
            let entry = Arc::new(encoded.into_entry(key.into(), revision, Change::Added));
            ring.push(Arc::new(Event::new(entry, None)));
        };
        for (key, revision) in [("a", 2), ("b", 2), ("c", 4), ("d", 4), ("e", 5)] {
            push(&mut ring, key, revision);
        }
        let keys = |events: Result<Vec<String>, Expired>| events.map(|keys| keys.concat());
        let at = |ring: &Ring, revision| {
            keys(ring.at(revision).map(|events| events.map(|e| e.entry.key.to_string()).collect()))
        };
        let since = |ring: &Ring, revision| {
            let events = ring.since(revision);
            keys(events.map(|events| events.map(|e| e.entry.key.to_string()).collect()))
        };
        assert_eq!(at(&ring, 2), Ok("ab".to_owned()));
        assert_eq!(at(&ring, 3), Err(Expired));
        assert_eq!(since(&ring, 1), Ok("abcde".to_owned()));
        assert_eq!(since(&ring, 2), Ok("cde".to_owned()));
        ring.evict_oldest();
        assert_eq!(at(&ring, 2), Err(Expired), "one of its events is dropped");
        assert_eq!(since(&ring, 1), Err(Expired));
        assert_eq!(since(&ring, 2), Ok("cde".to_owned()));
    }
}
