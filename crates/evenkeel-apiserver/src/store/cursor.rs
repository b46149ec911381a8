//! Cursor of a watch in the events of a collection. It has no buffer: it reads events from the collection's ring, and
//! expires if the ring has evicted the next event.

use std::sync::Arc;

use evenkeel_tasks::watch;

use super::event::{Event, Expired};
use super::handle::Store;
use super::ring::Ring;
use super::watchers::{Scope, Subscription};
use crate::resource::ResourcePrefix;

/// Maximum number of events per call, so that one watch does not hold the lock for long.
const MAX_EVENTS: usize = 256;
/// Maximum total size of events per call in bytes, so that a watch holds little memory while its client does not read.
/// A single event may be larger.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// Position of a watch in the events of a collection or of a scope of it.
///
/// Upstream: `cacheWatcher`.
#[doc(alias = "cacheWatcher")]
pub(crate) struct Cursor {
    store: Store,
    resource_prefix: ResourcePrefix,
    /// Revision of the cursor: all events up to this revision were returned.
    at: u64,
    /// Revision of the last commit that wrote to the collection or to the scope.
    signal: watch::Receiver<u64>,
    /// Subscription to a scope; `None` for the whole collection.
    subscription: Option<Subscription>,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(subscription) = &self.subscription {
            self.store.shared.watchers.unsubscribe(subscription);
        }
    }
}

impl Cursor {
    /// Returns the next events after the last call, ordered by revision, without waiting. The result may include events
    /// outside the cursor's scope.
    pub(crate) fn take(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        let shared = &self.store.shared;
        // Read the events and the committed revision under one lock. Otherwise the cursor would skip the events of a
        // commit between the two reads.
        let state = shared.read();
        let Some(collection) = state.collections.get(&self.resource_prefix) else {
            return Err(Expired);
        };
        let ring = &collection.ring;
        let Batch { events, is_last } = match &self.subscription {
            Some(subscription) if self.at >= subscription.since => {
                let revisions = shared.watchers.after(subscription, self.at, MAX_EVENTS)?;
                recorded_events(ring, &revisions, state.revision)?
            }
            _ => events_since(ring, self.at)?,
        };
        let last = events.last().map_or(self.at, |e| e.entry.revision);
        self.at = if is_last { last.max(state.revision) } else { last };
        Ok(events)
    }

    /// Waits until the collection or the scope may have new events.
    pub(crate) async fn changed(&mut self) {
        let at = self.at;
        // The sender outlives this cursor: the cursor holds the store, which has the sender of a collection, or the
        // subscription, which keeps the sender of a scope.
        let _ = self.signal.wait_for(|revision| *revision > at).await;
    }

    /// Returns the cursor's revision: all events up to this revision were returned.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

/// Events that one call of [`Cursor::take`] returns.
struct Batch {
    events: Vec<Arc<Event>>,
    /// Whether the ring has no further events for the cursor.
    is_last: bool,
}

/// Returns the next events of a collection after a revision.
fn events_since(ring: &Ring, at: u64) -> Result<Batch, Expired> {
    let mut budget = Budget::default();
    let mut later_events = ring.since(at)?.peekable();
    let mut events = Vec::new();
    let mut last = at;
    // Do not split the events of one revision, because the position is a revision.
    while let Some(event) =
        later_events.next_if(|event| event.entry.revision == last || budget.admits(event))
    {
        last = event.entry.revision;
        events.push(event.clone());
    }
    Ok(Batch { events, is_last: later_events.peek().is_none() })
}

/// Returns the next events of a scope. `revisions` are the scope's recorded revisions, and may include a commit that is
/// not visible yet. `committed` is the last visible revision.
fn recorded_events(ring: &Ring, revisions: &[u64], committed: u64) -> Result<Batch, Expired> {
    let mut budget = Budget::default();
    let mut events = Vec::with_capacity(revisions.len());
    for revision in revisions.iter().filter(|revision| **revision <= committed) {
        for (index, event) in ring.at(*revision)?.enumerate() {
            // Do not split the events of one revision, because the position is a revision.
            if index == 0 && !budget.admits(event) {
                return Ok(Batch { events, is_last: false });
            }
            events.push(event.clone());
        }
    }
    Ok(Batch { events, is_last: revisions.len() < MAX_EVENTS })
}

/// Number and size in bytes of the events that one call has returned so far.
#[derive(Default)]
struct Budget {
    events: usize,
    bytes: usize,
}

impl Budget {
    /// Returns whether the event fits in the limits of the call, and counts the event. The first event always fits.
    fn admits(&mut self, event: &Event) -> bool {
        let size = event.entry.size();
        let fits = self.events == 0
            || self.events < MAX_EVENTS && self.bytes.saturating_add(size) <= MAX_BYTES;
        self.events += 1;
        self.bytes = self.bytes.saturating_add(size);
        fits
    }
}

impl Store {
    /// Returns a cursor that starts after `revision` in the events of a scope of a collection.
    pub(crate) fn follow(
        &self,
        resource_prefix: &ResourcePrefix,
        scope: &Scope,
        revision: u64,
    ) -> Result<Cursor, Expired> {
        let collection_signal = self.shared.read_collection(resource_prefix, |collection| {
            collection.ring.check_history_after(revision)?;
            Ok(collection.signal.subscribe())
        })?;
        let (subscription, signal) = match self.shared.watchers.subscribe(resource_prefix, scope) {
            Some((subscription, scope_signal)) => (Some(subscription), scope_signal),
            None => (None, collection_signal),
        };
        Ok(Cursor {
            store: self.clone(),
            resource_prefix: resource_prefix.clone(),
            at: revision,
            signal,
            subscription,
        })
    }
}

#[cfg(test)]
mod tests;
