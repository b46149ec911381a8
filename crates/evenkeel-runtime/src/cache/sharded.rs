//! Shards whose objects a reflector reads, for a cache that holds only this process's shards
//! ([`Sharding::sharded_watch`](crate::sharding::Sharding::sharded_watch)).

use crate::{
    sharding::{HeldTerms, ShardedCache},
    tasks::watch,
};
use evenkeel_api::{
    Encoding, Text,
    views::{Identity, IdentityMeta},
};
use std::{future::pending, sync::Arc};

/// Terms whose objects a reflector reads. Without sharding, it reads all objects.
pub(super) struct ReadTerms {
    /// Handle of the cache; `None` without sharding.
    sharding: Option<Arc<ShardedCache>>,
    /// Terms whose objects the cache holds, or those of the list that is in progress.
    terms: HeldTerms,
    /// Changes with the terms of this process; `None` without sharding.
    changes: Option<watch::Receiver<()>>,
}

/// Changes that result when a reflector adopts the current terms.
#[derive(Default)]
pub(super) struct Followed {
    /// Whether a list is necessary: the cache lacks the objects of a term, or there are no terms.
    pub(super) needs_list: bool,
    /// Whether the cache holds objects of shards without a term.
    pub(super) has_lost: bool,
}

/// Object of a shard that is not read.
pub(super) struct Skipped {
    /// The object's resourceVersion.
    pub(super) resource_version: Text,
    /// The resourceVersion as a number; 0 if it is not a number.
    pub(super) version: u64,
}

impl ReadTerms {
    pub(super) fn new(sharding: Option<Arc<ShardedCache>>) -> Self {
        let changes = sharding.as_deref().map(ShardedCache::changes);
        Self { sharding, terms: HeldTerms::new(), changes }
    }

    /// Begins a list of the objects of all shards of this process. Returns whether there is anything to list.
    pub(super) fn begin_list(&mut self) -> bool {
        let Some(sharding) = &self.sharding else { return true };
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
        self.terms = sharding.held_terms();
        !self.terms.is_empty()
    }

    /// Calls `apply`, which stores the listed objects in the cache, and records that the cache holds them.
    pub(super) fn store(&self, apply: impl FnOnce()) {
        // The readers of this cache begin at the end of its first list. They must not begin with a term that the cache lacks.
        if self.sharding.as_ref().is_some_and(|sharding| !sharding.has_listed()) {
            self.listed();
        }
        apply();
        self.listed();
    }

    /// Records that the cache holds the listed objects.
    pub(super) fn listed(&self) {
        if let Some(sharding) = &self.sharding {
            sharding.cover(&self.terms);
        }
    }

    /// Follows the terms of this process.
    pub(super) fn follow(&mut self) -> Followed {
        let Some(sharding) = &self.sharding else { return Followed::default() };
        if let Some(changes) = &mut self.changes {
            changes.mark_unchanged();
        }
        let held = sharding.held_terms();
        let begins = held.keys().any(|shard| !self.terms.contains_key(shard));
        let n_before = self.terms.len();
        // If a shard got a new term meanwhile, the cache has followed its objects without a gap.
        self.terms = held.into_iter().filter(|(shard, _)| self.terms.contains_key(shard)).collect();
        // Record this first, so that no reconcile of a later term sees the objects as deleted.
        sharding.cover(&self.terms);
        Followed {
            needs_list: begins || self.terms.is_empty(),
            has_lost: self.terms.len() < n_before,
        }
    }

    /// Returns whether an object is in a shard that is read.
    pub(super) fn selects(&self, namespace: &str, name: &str) -> bool {
        let sharding = self.sharding.as_ref();
        sharding.is_none_or(|sharding| sharding.selects(&self.terms, namespace, name))
    }

    /// Waits for a change of the terms. Without sharding, this never completes.
    pub(super) async fn changed(&mut self) {
        let Some(changes) = &mut self.changes else { return pending().await };
        if changes.changed().await.is_err() {
            // The sender is dropped with the handle.
            pending::<()>().await;
        }
    }

    /// Returns the `shardSelector` of lists and watches, empty for none.
    pub(super) fn selector(&self) -> String {
        let sharding = self.sharding.as_ref();
        sharding.map_or_else(String::new, |sharding| sharding.selector(&self.terms))
    }

    /// Returns whether only the objects of some shards are read.
    pub(super) fn are_split(&self) -> bool {
        self.sharding.is_some()
    }

    /// Returns an object whose shard is not read. Decodes only its identity. An object that cannot be decoded is not skipped
    /// here.
    pub(super) fn skipped(&self, object: &[u8], encoding: Encoding) -> Option<Skipped> {
        self.sharding.as_ref()?;
        let Identity { meta } = Identity::decode(object, encoding).ok()?;
        let IdentityMeta { namespace, name, resource_version, .. } = meta;
        let is_skipped = !self.selects(&namespace, &name);
        let version = resource_version.parse().unwrap_or(0);
        is_skipped.then_some(Skipped { resource_version, version })
    }
}
