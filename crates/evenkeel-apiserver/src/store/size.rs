//! The size of a collection, for estimates of what reading it costs.

use super::handle::Store;

/// Objects that an average is taken of.
const SAMPLE: usize = 16;

impl Store {
    /// Returns the number of objects of a collection, and the average size of its first ones in bytes.
    pub(crate) fn size(&self, resource_prefix: &str) -> (usize, usize) {
        let state = self.shared.read();
        let Some(collection) = state.collections.get(resource_prefix) else { return (0, 0) };
        let sizes = collection.objects.values().take(SAMPLE).map(|entry| entry.size());
        let (bytes, sampled) = sizes.fold((0, 0), |(bytes, n), size| (bytes + size, n + 1));
        (collection.objects.len(), bytes / sampled.max(1))
    }
}
