//! Controllers of Endpoints, of EndpointSlices, and of slices that mirror Endpoints.
//!
//! [`pod`] decides which pods are endpoints. [`selected`] finds the pods of a Service and the Services of a pod.

pub mod endpoints;
pub mod endpointslice;
pub mod endpointslicemirroring;

mod address;
mod canonical;
mod metrics;
mod order;
mod pod;
mod selected;
mod slice;
mod slice_index;
mod trigger;

use evenkeel_runtime::plan::Key;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Hashes of the last writes for each Service, by which a controller recognizes the events of its own writes. Upstream
/// compares generations instead (`endpointslice_tracker.go`). The runtime ensures that the caches show a controller's
/// own writes before the next reconciliation.
#[derive(Debug, Default)]
struct OwnWrites(Mutex<HashMap<Key, Vec<u64>>>);

impl OwnWrites {
    /// Replaces the hashes of a Service with the hashes of new writes. Without new writes, the old hashes stay.
    fn record(&self, key: &Key, hashes: &[u64]) {
        if !hashes.is_empty() {
            self.lock().insert(key.clone(), hashes.into());
        }
    }

    /// Removes the hashes of a deleted Service.
    fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Returns whether the last writes for the Service include the one with this hash.
    fn contains(&self, key: Option<&Key>, hash: u64) -> bool {
        key.is_some_and(|key| self.lock().get(key).is_some_and(|hashes| hashes.contains(&hash)))
    }

    /// Does the same for the write that created a slice, and forgets it: where a repeated request has created another slice
    /// of the same content, that one is not expected.
    fn take(&self, key: Option<&Key>, hash: u64) -> bool {
        let mut writes = self.lock();
        let Some(hashes) = key.and_then(|key| writes.get_mut(key)) else { return false };
        let position = hashes.iter().position(|known| *known == hash);
        position.map(|position| hashes.swap_remove(position)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_is_recognized_once() {
        let (writes, key) = (OwnWrites::default(), Key::new("default", "web"));
        writes.record(&key, &[7, 8]);
        assert!(writes.contains(Some(&key), 7));
        assert!(writes.take(Some(&key), 7), "the slice that was created");
        assert!(!writes.take(Some(&key), 7), "another one of the same content");
        assert!(writes.contains(Some(&key), 8) && !writes.take(None, 8));
    }
}
