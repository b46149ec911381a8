//! Bounded cache of absent owners: one live read of an absent owner serves all its dependents. Upstream:
//! `uid_cache.go`.

use super::graph::{Coordinates, Uid};
use std::collections::{HashSet, VecDeque};

/// Capacity of the cache, in owners; upstream's number.
const CAPACITY: usize = 500;

/// Set of uids with their coordinates. Inserting into a full set evicts the oldest. Upstream: `ReferenceCache`.
#[derive(Debug, Default)]
pub(crate) struct AbsentOwnerCache {
    entries: HashSet<(Uid, Coordinates)>,
    insertion_order: VecDeque<(Uid, Coordinates)>,
}

impl AbsentOwnerCache {
    /// Records that no object of this uid has these coordinates.
    pub(crate) fn insert(&mut self, uid: &str, coordinates: &Coordinates) {
        let key = (Uid::from(uid), coordinates.clone());
        if !self.entries.insert(key.clone()) {
            return;
        }
        self.insertion_order.push_back(key);
        if self.insertion_order.len() > CAPACITY
            && let Some(oldest) = self.insertion_order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    /// Returns whether the cache records that no object of this uid has these coordinates.
    pub(crate) fn contains(&self, uid: &str, coordinates: &Coordinates) -> bool {
        self.entries.contains(&(Uid::from(uid), coordinates.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entry_is_evicted() {
        let coordinates = Coordinates {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "n".into(),
            name: "p".into(),
        };
        let mut absent_owner_cache = AbsentOwnerCache::default();
        for uid in 0..=CAPACITY {
            absent_owner_cache.insert(&uid.to_string(), &coordinates);
        }
        assert!(!absent_owner_cache.contains("0", &coordinates));
        assert!(
            absent_owner_cache.contains("1", &coordinates)
                && absent_owner_cache.contains(&CAPACITY.to_string(), &coordinates)
        );
    }
}
