//! Size of a collection, for estimates of the cost of lists.

use super::handle::Store;

/// Number of objects in the sample for the average size.
const SAMPLE_SIZE: usize = 16;

impl Store {
    /// Returns the number of objects of a collection, and the average size in bytes of the first [`SAMPLE_SIZE`] ones.
    pub(crate) fn size(&self, resource_prefix: &str) -> (usize, usize) {
        let state = self.shared.read();
        let Some(collection) = state.collections.get(resource_prefix) else { return (0, 0) };
        let sizes = collection.objects.values().take(SAMPLE_SIZE).map(|entry| entry.size());
        let (bytes, sampled) = sizes.fold((0, 0), |(bytes, count), size| (bytes + size, count + 1));
        (collection.objects.len(), bytes / sampled.max(1))
    }
}
