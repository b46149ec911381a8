//! Cache of deleted pods. A pod in this cache needs no live read. Upstream: `deletedObjects`.

use evenkeel_api::Text;
use std::collections::{HashSet, VecDeque};

/// Capacity of the cache, in pods. Upstream: `maxUIDCacheEntries`.
const MAX_UIDS: usize = 500;

/// Uids of the last deleted pods.
#[derive(Default)]
pub(super) struct DeletedUidCache {
    uids: HashSet<Text>,
    /// The same uids, in the order of their deletion.
    order: VecDeque<Text>,
}

impl DeletedUidCache {
    /// Records a deleted pod.
    pub(super) fn add(&mut self, uid: &str) {
        let Self { uids, order } = self;
        if !uids.insert(uid.into()) {
            return;
        }
        order.push_back(uid.into());
        if order.len() > MAX_UIDS
            && let Some(oldest) = order.pop_front()
        {
            uids.remove(&oldest);
        }
    }

    /// Returns whether the pod is known to be deleted.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_uid_is_evicted() {
        let mut cache = DeletedUidCache::default();
        for number in 0..=MAX_UIDS {
            cache.add(&number.to_string());
            cache.add(&number.to_string());
        }
        assert!(!cache.has("0") && cache.has("1") && cache.has(&MAX_UIDS.to_string()));
    }
}
