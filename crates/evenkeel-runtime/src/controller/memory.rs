//! Memories of planners, by key.

use crate::{fast_map::FastMap, plan::Key};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memories of one planner, by key. All keys without another memory share the default memory, so that planners without
/// a memory use no space.
#[derive(Debug, Default)]
pub(super) struct Memories<M> {
    default: Arc<M>,
    by_key: Mutex<FastMap<Key, Arc<M>>>,
}

impl<M: PartialEq> Memories<M> {
    /// Returns the memory of a key, or the default memory if none is stored.
    pub(super) fn get(&self, key: &Key) -> Arc<M> {
        self.lock().get(key).unwrap_or(&self.default).clone()
    }

    /// Replaces the memory of a key and returns it.
    pub(super) fn set(&self, key: &Key, memory: M) -> Arc<M> {
        if memory == *self.default {
            self.forget(key);
            return self.default.clone();
        }
        let memory = Arc::new(memory);
        self.lock().insert(key.clone(), memory.clone());
        memory
    }

    /// Drops the memory of a key.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Drops the memories of the keys for which `keep` returns false.
    pub(super) fn retain(&self, keep: &dyn Fn(&Key) -> bool) {
        self.lock().retain(|key, _| keep(key));
    }

    fn lock(&self) -> MutexGuard<'_, FastMap<Key, Arc<M>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_lasts_until_its_key_is_gone_or_it_is_the_default() {
        let (memories, key, other) =
            (Memories::<u32>::default(), Key::new("ns", "a"), Key::new("ns", "b"));
        memories.set(&key, 3);
        assert_eq!((*memories.get(&key), *memories.get(&other)), (3, 0));
        memories.set(&key, 0);
        assert!(memories.lock().is_empty());
        memories.set(&key, 4);
        memories.forget(&key);
        assert_eq!(*memories.get(&key), 0);
        assert!(memories.lock().is_empty());
    }
}
