//! Cache that holds only the objects of this process's shards, from the view of its reflector.

use super::{coverage::HeldTerms, shards::Shards};
use crate::{plan::Key, tasks::watch};
use evenkeel_api::Kind;

/// Handle of such a cache, or of one of its parts.
pub(crate) struct ShardedCache {
    shards: Shards,
    id: u64,
    /// Whether the objects have namespaces.
    namespaced: bool,
}

impl ShardedCache {
    /// Creates the handle of a cache of this kind. `None` if the kind's cache holds the objects of all shards.
    pub(crate) fn of(shards: &Shards, kind: &Kind) -> Option<Self> {
        if !shards.sharding().sharded_kinds.contains(kind) {
            return None;
        }
        let id = shards.coverage().next_id();
        Some(Self { shards: shards.clone(), id, namespaced: kind.namespaced })
    }

    /// Returns a receiver that changes with the terms.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shards.changes()
    }

    /// Returns the terms of this process. Includes the terms of shards that are being released, because their passes still read
    /// the cache.
    pub(crate) fn held_terms(&self) -> HeldTerms {
        self.shards.held_terms()
    }

    /// Returns whether an object is in one of these shards.
    pub(crate) fn selects(&self, terms: &HeldTerms, namespace: &str, name: &str) -> bool {
        terms.contains_key(&self.shards.shard_of(&Key::new(namespace, name)))
    }

    /// Returns the `shardSelector` of lists and watches, empty for none. It may select more than these shards.
    pub(crate) fn selector(&self, terms: &HeldTerms) -> String {
        // The name of a cluster-scoped object determines its shard, and selectors cannot compare names.
        if !self.namespaced {
            return String::new();
        }
        let layout = self.shards.sharding().layout;
        layout.selector(terms.keys().copied()).map_or_else(String::new, |it| it.to_string())
    }

    /// Returns whether the cache has been recorded to hold the objects of some terms.
    pub(crate) fn has_listed(&self) -> bool {
        self.shards.coverage().has_listed(self.id)
    }

    /// Records that the cache holds the objects of these terms and of no others.
    pub(crate) fn cover(&self, terms: &HeldTerms) {
        let is_change = self.shards.coverage().record(self.id, terms);
        if is_change {
            self.shards.announce();
        }
    }
}

impl Drop for ShardedCache {
    fn drop(&mut self) {
        let is_change = self.shards.coverage().forget(self.id);
        if is_change {
            self.shards.announce();
        }
    }
}
