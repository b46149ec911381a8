//! Size of a collection, to estimate the cost of reading it.

use super::handle::Store;

/// Number of objects in the sample for the average size.
const SAMPLE: usize = 16;

impl Store {
    /// Returns the number of objects of a collection, and the average size in bytes of the first [`SAMPLE`] ones.
    pub(crate) fn size(&self, resource_prefix: &str) -> (usize, usize) {
        let state = self.shared.read();
        let Some(collection) = state.collections.get(resource_prefix) else { return (0, 0) };
        let sizes = collection.objects.values().take(SAMPLE).map(|entry| entry.size());
        let (bytes, sampled) = sizes.fold((0, 0), |(bytes, n), size| (bytes + size, n + 1));
        (collection.objects.len(), bytes / sampled.max(1))
    }
}
