//! Cursor of a watch in the events of a collection. It has no buffer: it reads events from the ring, and expires if the
//! ring has dropped the next event.

use std::sync::Arc;

use tokio::sync::watch;

use super::event::{Event, Expired};
use super::handle::Store;
use super::ring::Ring;
use super::watchers::{Scope, Subscription};
use crate::resource::ResourcePrefix;

/// Maximum number of events per call, so that one watch does not hold the lock for long.
const MAX_EVENTS: usize = 256;
/// Maximum total bytes of events per call, so that a watch whose client does not read holds little memory. A single
/// event may be larger.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// Position in the events of a collection or of a part of it.
pub(crate) struct Cursor {
    store: Store,
    resource_prefix: ResourcePrefix,
    at: u64,
    signal: watch::Receiver<u64>,
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
    /// Returns the next events after the last call, in order, without waiting. They may include events outside the
    /// cursor's scope.
    pub(crate) fn take(&mut self) -> Result<Vec<Arc<Event>>, Expired> {
        let shared = &self.store.shared;
        // One lock covers the events and the revision up to which they are complete. Otherwise the cursor would skip a
        // commit between the two reads.
        let state = shared.read();
        let Some(collection) = state.collections.get(&self.resource_prefix) else {
            return Err(Expired);
        };
        let ring = &collection.ring;
        let (events, all) = match &self.subscription {
            Some(subscription) if self.at >= subscription.since => {
                let revisions = shared.watchers.after(subscription, self.at, MAX_EVENTS)?;
                recorded_events(ring, &revisions, state.revision)?
            }
            _ => events_since(ring, self.at)?,
        };
        let last = events.last().map_or(self.at, |e| e.entry.revision);
        self.at = if all { last.max(state.revision) } else { last };
        Ok(events)
    }

    /// Waits until there may be new events.
    pub(crate) async fn changed(&mut self) {
        let at = self.at;
        // The sender outlives this cursor, which holds the store of a collection's sender or the subscription of a
        // scope's.
        let _ = self.signal.wait_for(|revision| *revision > at).await;
    }

    /// Returns the revision up to which events were returned.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

/// Returns the next events after a revision, and whether no further events follow.
fn events_since(ring: &Ring, at: u64) -> Result<(Vec<Arc<Event>>, bool), Expired> {
    let mut budget = Budget::default();
    let mut since = ring.since(at)?.peekable();
    let mut events = Vec::new();
    while let Some(event) = since.next_if(|event| budget.takes(event)) {
        events.push(event.clone());
    }
    Ok((events, since.peek().is_none()))
}

/// Returns the next events of a scope, and whether no further events follow. `revisions` may include a commit that is
/// not visible yet.
fn recorded_events(
    ring: &Ring,
    revisions: &[u64],
    committed: u64,
) -> Result<(Vec<Arc<Event>>, bool), Expired> {
    let mut budget = Budget::default();
    let mut events = Vec::with_capacity(revisions.len());
    for revision in revisions.iter().filter(|revision| **revision <= committed) {
        let event = ring.get(*revision)?;
        if !budget.takes(event) {
            return Ok((events, false));
        }
        events.push(event.clone());
    }
    Ok((events, revisions.len() < MAX_EVENTS))
}

/// Events and bytes that one call has returned so far.
#[derive(Default)]
struct Budget {
    events: usize,
    bytes: usize,
}

impl Budget {
    /// Returns whether the event fits in the call's limits, and counts it.
    fn takes(&mut self, event: &Event) -> bool {
        let size = event.entry.size();
        let fits = self.events == 0
            || self.events < MAX_EVENTS && self.bytes.saturating_add(size) <= MAX_BYTES;
        self.events += 1;
        self.bytes = self.bytes.saturating_add(size);
        fits
    }
}

impl Store {
    /// Starts to follow a part of a collection after a revision.
    pub(crate) fn follow(
        &self,
        resource_prefix: &ResourcePrefix,
        scope: &Scope,
        revision: u64,
    ) -> Result<Cursor, Expired> {
        let signal = self.shared.read_collection(resource_prefix, |kept| {
            kept.ring.holds(revision).map(|()| kept.signal.subscribe())
        })?;
        let scoped = self.shared.watchers.subscribe(resource_prefix, scope);
        let (subscription, signal) = match scoped {
            Some((subscription, signal)) => (Some(subscription), signal),
            None => (None, signal),
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
