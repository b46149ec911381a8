//! A watch's place among the events of a collection. Nothing is buffered for it: it reads the ring, and who falls behind the
//! ring is cut off.

use std::sync::Arc;

use tokio::sync::watch;

use super::event::{Event, Expired};
use super::handle::Store;
use crate::resource::ResourcePrefix;

/// Events at a time, so that one watch does not hold the lock for long.
const AT_ONCE: usize = 256;

/// A place among the events of a collection.
pub(crate) struct Cursor {
    store: Store,
    resource_prefix: ResourcePrefix,
    at: u64,
    signal: watch::Receiver<u64>,
}

impl Cursor {
    fn new(
        store: Store,
        resource_prefix: ResourcePrefix,
        at: u64,
        signal: watch::Receiver<u64>,
    ) -> Self {
        Self { store, resource_prefix, at, signal }
    }

    /// What happened since the last call, in order, without waiting.
    pub(crate) fn take(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        let settled = *self.store.shared.settled.borrow();
        let state = self.store.shared.read();
        let Some(collection) = state.collections.get(&self.resource_prefix) else {
            return Err(Expired);
        };
        let mut since =
            collection.ring.since(self.at)?.take_while(|event| event.entry.revision <= settled);
        let events: Vec<Arc<Event>> = since.by_ref().take(AT_ONCE).cloned().collect();
        let all = since.next().is_none();
        let upto = events.last().map_or(self.at, |e| e.entry.revision);
        self.at = if all { upto.max(settled) } else { upto };
        Ok(events)
    }

    /// Waits until there may be something to take.
    pub(crate) async fn changed(&mut self) {
        let at = self.at;
        // The sender lives in the collection, which lives as long as the store that this cursor holds.
        let _ = self.signal.wait_for(|revision| *revision > at).await;
    }

    /// Seen up to here.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

impl Store {
    /// Follows a collection from a revision on.
    pub(crate) fn follow(
        &self,
        resource_prefix: &ResourcePrefix,
        revision: u64,
    ) -> Result<Cursor, Expired> {
        let signal = {
            let mut state = self.shared.write();
            let kept = state.collection(resource_prefix);
            kept.ring.holds(revision)?;
            kept.signal.subscribe()
        };
        Ok(Cursor::new(self.clone(), resource_prefix.clone(), revision, signal))
    }
}
