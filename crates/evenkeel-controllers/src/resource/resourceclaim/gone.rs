//! Cache of deleted pods, which need no live read. Upstream: `deletedObjects`.

use evenkeel_api::Text;
use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

/// Capacity of the cache, in pods. Upstream: `maxUIDCacheEntries`.
const MOST: usize = 500;

/// Uids of the last deleted pods.
#[derive(Default)]
pub(super) struct Gone(Mutex<Last>);

#[derive(Default)]
struct Last {
    known: HashSet<Text>,
    order: VecDeque<Text>,
}

impl Gone {
    /// Records a deleted pod.
    pub(super) fn add(&self, uid: &str) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Last { known, order } = &mut *guard;
        if !known.insert(uid.into()) {
            return;
        }
        order.push_back(uid.into());
        if order.len() > MOST
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    /// Whether the pod is known to be deleted.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered() {
        let gone = Gone::default();
        for number in 0..=MOST {
            gone.add(&number.to_string());
            gone.add(&number.to_string());
        }
        assert!(!gone.has("0") && gone.has("1") && gone.has(&MOST.to_string()));
    }
}
