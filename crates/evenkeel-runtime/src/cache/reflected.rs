//! The interface between a cache and its reflector, independent of the objects' type.

use super::{shared::Shared, store::Table};
use crate::{client::negotiation, introspect::CacheState, latch::Latch};
use evenkeel_api::{DecodeError, Encoding, Text, View, views::Identity};
use std::sync::Arc;

/// Cache that a reflector fills. The reflector passes encoded objects, and the cache decodes them.
///
/// Upstream: `ReflectorStore`.
pub(super) trait Reflected: Send + Sync {
    /// Returns the `Accept` header for one object, or for a watch.
    fn accept(&self) -> &'static str;
    /// Returns the `Accept` header for a list.
    fn accept_list(&self) -> &'static str;
    /// Begins to read the initial state.
    fn initial_state(self: Arc<Self>) -> Box<dyn InitialState>;
    /// Stores an object's current state and returns its resourceVersion.
    fn upsert(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError>;
    /// Removes an object, given its last state, and returns its resourceVersion.
    fn delete(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError>;
    /// Removes an object when only its name could be decoded.
    fn delete_named(&self, namespace: &str, name: &str, version: u64);
    /// Records a bookmark: the cache is current up to this version.
    fn set_resource_version(&self, version: u64);
    /// Sets or clears the error of the last list or watch.
    fn set_watch_error(&self, error: Option<&str>);
    /// Sets the number of objects that were read but are not yet in the cache.
    fn queued(&self, n: usize);
    /// Sends every object to the handlers again.
    fn resync(&self);
    /// Returns the newest resourceVersion of the cache, bookmarks included, or 0 before the first list.
    fn version(&self) -> u64;
    /// Returns the counters and state of the cache, for introspection.
    fn state(&self, scope: &super::caches::Scope) -> CacheState;
    /// Returns the latch that is set once the initial state is complete.
    fn synced(&self) -> Latch;
}

/// Initial state of a cache while the reflector reads it. Readers do not see it until it is complete.
pub(super) trait InitialState: Send {
    /// Adds an object. If the cache already has it in the same version, both share that object.
    fn add(&mut self, object: &[u8], encoding: Encoding) -> Result<(), DecodeError>;
    /// Removes an object that was deleted while the state was read.
    fn remove(&mut self, namespace: &str, name: &str);
    /// Counts the objects.
    fn len(&self) -> usize;
    /// Replaces the cache's content by this state, which is that of `version`.
    fn apply(self: Box<Self>, version: u64);
}

/// The objects read so far, and their cache.
struct Reading<V> {
    cache: Arc<Shared<V>>,
    objects: Table<V>,
}

impl<V: View> InitialState for Reading<V> {
    fn add(&mut self, object: &[u8], encoding: Encoding) -> Result<(), DecodeError> {
        let object = decode::<V>(object, encoding)?;
        let object = self.cache.stored_version(&object).unwrap_or_else(|| Arc::new(object));
        self.objects.insert(object);
        Ok(())
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        self.objects.remove(namespace, name);
    }

    fn len(&self) -> usize {
        self.objects.len()
    }

    fn apply(self: Box<Self>, version: u64) {
        self.cache.replace(self.objects, version);
    }
}

impl<V: View> Reflected for Shared<V> {
    fn accept(&self) -> &'static str {
        negotiation::accept::<V>()
    }

    fn accept_list(&self) -> &'static str {
        negotiation::accept_list::<V>()
    }

    fn initial_state(self: Arc<Self>) -> Box<dyn InitialState> {
        Box::new(Reading { cache: self, objects: Table::new() })
    }

    fn upsert(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError> {
        let object = decode::<V>(object, encoding)?;
        let version = object.meta().resource_version.clone();
        self.upsert(Arc::new(object));
        Ok(version)
    }

    /// Only decodes the object's identity where it can: the cached object is its last state, since the watch
    /// sent every change before the deletion.
    fn delete(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError> {
        let last = Identity::decode(object, encoding).ok().and_then(|Identity { meta }| {
            self.stored_identity(&meta)?.at_version(&meta.resource_version)
        });
        let object = match last {
            Some(last) => last,
            None => decode::<V>(object, encoding)?,
        };
        let version = object.meta().resource_version.clone();
        self.delete(&Arc::new(object));
        Ok(version)
    }

    fn delete_named(&self, namespace: &str, name: &str, version: u64) {
        self.delete_named(namespace, name, version);
    }

    fn set_resource_version(&self, version: u64) {
        self.set_resource_version(version);
    }

    fn set_watch_error(&self, error: Option<&str>) {
        self.set_watch_error(error);
    }

    fn queued(&self, n: usize) {
        self.queued(n);
    }

    fn resync(&self) {
        self.resync();
    }

    fn version(&self) -> u64 {
        self.version()
    }

    fn state(&self, scope: &super::caches::Scope) -> CacheState {
        self.state(scope)
    }

    fn synced(&self) -> Latch {
        Self::synced(self).clone()
    }
}

/// Decodes an object. The error names the object.
fn decode<V: View>(object: &[u8], encoding: Encoding) -> Result<V, DecodeError> {
    V::decode(object, encoding).map_err(|error| error.naming(object, encoding))
}
