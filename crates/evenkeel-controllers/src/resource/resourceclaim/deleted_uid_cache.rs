//! Cache of deleted pods: a pod in it needs no live read. Upstream: `deletedObjects`.

use evenkeel_api::Text;
use std::collections::{HashSet, VecDeque};

/// Capacity of the cache, in pods. Upstream: `maxUIDCacheEntries`.
const MAX_UIDS: usize = 500;

/// Uids of the last deleted pods.
#[derive(Default)]
pub(super) struct DeletedUidCache {
    known: HashSet<Text>,
    order: VecDeque<Text>,
}

impl DeletedUidCache {
    /// Records a deleted pod.
    pub(super) fn add(&mut self, uid: &str) {
        let Self { known, order } = self;
        if !known.insert(uid.into()) {
            return;
        }
        order.push_back(uid.into());
        if order.len() > MAX_UIDS
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    /// Whether the pod is known to be deleted.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.known.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_uid_is_evicted() {
        let mut gone = DeletedUidCache::default();
        for number in 0..=MAX_UIDS {
            gone.add(&number.to_string());
            gone.add(&number.to_string());
        }
        assert!(!gone.has("0") && gone.has("1") && gone.has(&MAX_UIDS.to_string()));
    }
}
