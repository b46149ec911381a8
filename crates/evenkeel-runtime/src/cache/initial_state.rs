//! Initial state of a cache while the reflector reads it.

use super::{part::Feed, store::Table};
use evenkeel_api::{DecodeError, Encoding};

/// Objects of a list that is not complete. Readers of the cache do not see them until the list is complete.
pub(super) struct InitialState {
    feed: Feed,
    objects: Table,
}

impl InitialState {
    pub(super) fn new(feed: Feed) -> Self {
        Self { feed, objects: Table::new() }
    }

    /// Adds an object. If the cache already has it in the same version, both share that object.
    pub(super) fn add(&mut self, object: &[u8], encoding: Encoding) -> Result<(), DecodeError> {
        let object = self.feed.object_type().decode(object, encoding)?;
        self.objects.insert(self.feed.stored_version(&*object).unwrap_or(object));
        Ok(())
    }

    /// Removes an object that was deleted while the state was read.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        self.objects.remove(namespace, name);
    }

    /// Counts the objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Replaces the content of the cache's part by this state, which is current at `version`.
    pub(super) fn apply(self, version: u64) {
        self.feed.replace(self.objects, version);
    }
}
