//! Maps by the keys of objects. Each pass uses several of these maps.

use std::hash::Hash;

/// Map whose hash takes a fraction of the time of the standard library's. Its seed is random.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// Frees memory of a map with few entries for its capacity. At the start, the queue has the keys of all objects, later only a few.
/// Call it after each removal.
pub(crate) fn shrink_if_sparse<K: Eq + Hash, V>(map: &mut FastMap<K, V>) {
    // A map up to this capacity uses little memory, and often fills again.
    const KEPT_CAPACITY: usize = 256;
    const MIN_FILLED: usize = 8;
    if map.capacity() > KEPT_CAPACITY && map.len() < map.capacity() / MIN_FILLED {
        // Half of it stays free, so that neither the next entries nor the next removals change its size again.
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_shrinks_as_it_empties_and_keeps_its_entries() {
        let mut map: FastMap<u32, u32> = (0..20_000).map(|n| (n, n)).collect();
        let (full, mut changes, mut last) = (map.capacity(), 0, map.capacity());
        for n in 0..20_000 {
            assert_eq!(map.remove(&n), Some(n));
            shrink_if_sparse(&mut map);
            assert!(map.capacity() <= 256 || map.len() >= map.capacity() / 8, "{}", map.len());
            // A removal may leave a gap that takes one off the capacity.
            changes += u32::from(map.capacity() + 1 < last);
            last = map.capacity();
        }
        assert!(last <= 256 && full > 20_000, "{full} to {last}");
        assert!(changes <= 8, "{changes} times");
    }
}
