//! The recent events of a collection, bounded in number and in the bytes of states that only it still holds.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::{Event, Expired};

/// Never more events than this.
const MOST: usize = 16_384;
/// Never fewer than this, however large.
const LEAST: usize = 256;
/// Bytes of superseded states.
const BYTES: usize = 32 << 20;

/// Events in order of revision.
pub(super) struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Everything after this revision is here.
    floor: u64,
}

impl Ring {
    pub(super) fn new(floor: u64) -> Self {
        Self { events: VecDeque::new(), bytes: 0, floor }
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.bytes += cost(&event);
        self.events.push_back(event);
        while self.events.len() > MOST || self.bytes > BYTES && self.events.len() > LEAST {
            let Some(old) = self.events.pop_front() else { break };
            self.bytes -= cost(&old);
            self.floor = old.entry.revision;
        }
    }

    /// Everything after this revision is here.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// All events, in order.
    pub(super) fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter()
    }

    /// Whether everything after `revision` is here.
    pub(super) fn holds(&self, revision: u64) -> Result<(), Expired> {
        if revision < self.floor { Err(Expired) } else { Ok(()) }
    }

    /// The event of `revision`.
    pub(super) fn get(&self, revision: u64) -> Result<&Arc<Event>, Expired> {
        let at = self.events.partition_point(|event| event.entry.revision < revision);
        self.events.get(at).filter(|event| event.entry.revision == revision).ok_or(Expired)
    }

    /// The events after `revision`.
    pub(super) fn since(
        &self,
        revision: u64,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<Event>>, Expired> {
        self.holds(revision)?;
        let at = self.events.partition_point(|event| event.entry.revision <= revision);
        Ok(self.events.range(at..))
    }
}

/// What an event keeps from being freed.
fn cost(event: &Event) -> usize {
    event.previous.as_ref().map_or(0, |previous| previous.size())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::entry::{Change, Encoded, SelectionAttributes};

    #[test]
    fn old_events_go_and_are_missed() {
        let mut ring = Ring::new(0);
        let encoded = || {
            Encoded::new(
                &serde_json::json!({"metadata": {"name": "a"}}),
                SelectionAttributes::default(),
            )
        };
        for revision in 1..=(MOST as u64 + 10) {
            let entry = Arc::new(encoded().into_entry("a".into(), revision, Change::Added));
            ring.push(Arc::new(Event::new(entry, None)));
        }
        assert!(ring.since(9).is_err());
        assert_eq!(ring.since(10).map(|e| e.len()), Ok(MOST));
        assert_eq!(ring.since(MOST as u64 + 9).map(|e| e.len()), Ok(1));
        assert_eq!(ring.since(MOST as u64 + 99).map(|e| e.len()), Ok(0));
    }
}
