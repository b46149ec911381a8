//! LRU cache of the event correlator.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Map of at most `capacity` entries that evicts the least recently used entry.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    capacity: usize,
    /// Values with the tick of their last use.
    entries: HashMap<K, (V, u64)>,
    /// Keys by the tick of their last use.
    by_use: BTreeMap<u64, K>,
    /// Number of uses so far.
    tick: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), by_use: BTreeMap::new(), tick: 0 }
    }

    /// Returns the entry of `key`, which `make` creates if it is missing, and marks it as the most recently
    /// used.
    pub(super) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.tick += 1;
        let tick = self.tick;
        if !self.entries.contains_key(&key)
            && self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        let (value, last_use) = self.entries.entry(key.clone()).or_insert_with(|| (make(), tick));
        self.by_use.remove(last_use);
        *last_use = tick;
        self.by_use.insert(tick, key);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut lru = Lru::new(2);
        for (key, value) in [("a", 1), ("b", 2)] {
            lru.get_or_insert_with(key, || value);
        }
        lru.get_or_insert_with("a", || 0);
        lru.get_or_insert_with("c", || 3);
        assert_eq!(*lru.get_or_insert_with("a", || 0), 1);
        assert_eq!(*lru.get_or_insert_with("b", || 0), 0, "b was forgotten");
        assert_eq!(lru.entries.len(), 2);
        assert_eq!(lru.by_use.len(), 2);
    }
}
