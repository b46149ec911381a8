//! Terms whose objects the caches hold.
//!
//! A cache of [`Sharding::sharded_watch`](super::Sharding::sharded_watch) lacks the objects of a shard for a while after the
//! shard's term has begun. Until the cache has listed them, the process does not serve the shard, because a reconcile would see
//! the objects as deleted.

use std::collections::BTreeMap;

/// Shards with the numbers of their terms.
pub(crate) type HeldTerms = BTreeMap<u32, u64>;

/// Terms whose objects each cache holds. A cache counts after its first complete list.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Caches by their ids.
    by_cache: BTreeMap<u64, HeldTerms>,
    last_id: u64,
}

impl Coverage {
    /// Returns the id of a new cache.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Records that a cache holds the objects of these terms and of no others. Returns whether that is a change.
    pub(super) fn record(&mut self, id: u64, terms: &HeldTerms) -> bool {
        self.by_cache.insert(id, terms.clone()).as_ref() != Some(terms)
    }

    /// Returns whether a cache has listed its objects.
    pub(super) fn has_listed(&self, id: u64) -> bool {
        self.by_cache.contains_key(&id)
    }

    /// Forgets a cache. Returns whether it was known.
    pub(super) fn forget(&mut self, id: u64) -> bool {
        self.by_cache.remove(&id).is_some()
    }

    /// Returns whether all caches hold the objects of a term.
    pub(super) fn covers(&self, shard: u32, term: u64) -> bool {
        self.by_cache.values().all(|terms| terms.get(&shard) == Some(&term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_covered_once_all_caches_hold_its_objects() {
        let mut coverage = Coverage::default();
        assert!(coverage.covers(0, 1), "without caches");
        let (maps, secrets) = (coverage.next_id(), coverage.next_id());
        assert!(coverage.covers(0, 1), "caches count from their first list on");
        assert!(!coverage.has_listed(maps));
        assert!(coverage.record(maps, &HeldTerms::new()) && coverage.has_listed(maps));
        assert!(!coverage.covers(0, 1));
        let terms = HeldTerms::from([(0, 1), (1, 2)]);
        assert!(coverage.record(maps, &terms) && !coverage.record(maps, &terms));
        assert!(coverage.covers(0, 1) && coverage.covers(1, 2));
        assert!(!coverage.covers(0, 3), "another term");
        coverage.record(secrets, &HeldTerms::from([(1, 2)]));
        assert!(!coverage.covers(0, 1) && coverage.covers(1, 2));
        assert!(coverage.forget(secrets) && !coverage.forget(secrets));
        assert!(coverage.covers(0, 1));
    }
}
