//! Handles the beginning and the end of a controller's terms for shards.

use super::{
    barrier::Barrier,
    enqueue::{Enqueue, Filter, Handle},
    reconcile::Reconcile,
};
use crate::{
    cache::{CacheEvent, Reader},
    plan::Key,
    queue::{Priority, Queue},
    sharding::Shards,
    tasks::catch_call_panic,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Caches of a sharded controller with the handlers of their events, which a new term calls again.
pub(super) struct Replay {
    pub(super) shards: Shards,
    /// Subscriptions of the builder, and of watches that were added later.
    pub(super) subscriptions: Mutex<Vec<(Arc<Reader>, Arc<Handle>)>>,
    pub(super) batch_period: Duration,
}

impl Replay {
    pub(super) fn subscriptions(&self) -> MutexGuard<'_, Vec<(Arc<Reader>, Arc<Handle>)>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the terms of this process: handles all cached objects again for new terms, and forgets the keys of terms that
    /// have ended. Never returns.
    pub(super) async fn follow(
        &self,
        queue: &Queue<Key>,
        barrier: &Arc<Barrier>,
        reconcile: &dyn Reconcile,
    ) {
        let (mut changes, mut known) = (self.shards.changes(), BTreeMap::new());
        loop {
            let current = self.shards.current();
            let (begun, ended) = (without(&current, &known), without(&known, &current));
            known = current;
            if !ended.is_empty() {
                let keep = |key: &Key| !ended.contains(&self.shards.shard_of(key));
                barrier.retain(&keep);
                reconcile.retain(&keep);
            }
            if !begun.is_empty() && self.shards.replays() {
                let filter = Filter::InShards(self.shards.clone(), Arc::new(begun));
                let enqueue =
                    Enqueue::new(queue, barrier, Priority::LOW, self.batch_period, filter, None);
                let subscriptions = self.subscriptions().clone();
                for (informer, handle) in &subscriptions {
                    for object in informer.snapshot() {
                        let event = CacheEvent::Added { object, initial: true };
                        if let Err(panic) = catch_call_panic(|| handle(&event, &enqueue, barrier)) {
                            tracing::error!(panic, "a cache's event handler panicked");
                        }
                    }
                }
            }
            if changes.changed().await.is_err() {
                // The shards own the sender, and live as long as this future.
                return;
            }
        }
    }
}

/// Returns the shards with a term that `others` lack.
fn without(terms: &BTreeMap<u32, u64>, others: &BTreeMap<u32, u64>) -> BTreeSet<u32> {
    let missing = terms.iter().filter(|(shard, term)| others.get(shard) != Some(term));
    missing.map(|(shard, _)| *shard).collect()
}
