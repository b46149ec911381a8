//! A cache as its reflector sees it: whatever the type of its objects.

use super::{shared::Shared, store::Table};
use crate::{client::negotiation, introspect::CacheState, latch::Latch};
use evenkeel_api::{DecodeError, Encoding, Text, View, views::Identity};
use std::sync::Arc;

/// A cache that a reflector fills. Objects come as bytes, and are decoded here.
///
/// Upstream: `ReflectorStore`.
pub(super) trait Reflected: Send + Sync {
    /// `Accept` for one object, or for a watch of them.
    fn accept(&self) -> &'static str;
    /// `Accept` for a collection.
    fn accept_list(&self) -> &'static str;
    /// Begins to read the initial state.
    fn initial_state(self: Arc<Self>) -> Box<dyn InitialState>;
    /// Stores the present state of an object, and returns its resourceVersion.
    fn upsert(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError>;
    /// Removes an object whose last state this is, and returns its resourceVersion.
    fn delete(&self, object: &[u8], encoding: Encoding) -> Result<Text, DecodeError>;
    /// Removes an object of which only the name could be decoded.
    fn delete_named(&self, namespace: &str, name: &str, version: u64);
    /// Records a bookmark: nothing has changed up to this version.
    fn set_resource_version(&self, version: u64);
    /// Sets or clears the error of the last list or watch.
    fn set_watch_error(&self, error: Option<&str>);
    /// Sets the number of objects that were read and are not in the cache yet.
    fn queued(&self, n: usize);
    /// Sends every object to the handlers again.
    fn resync(&self);
    /// The newest resourceVersion in the cache, bookmarks included; 0 before the first.
    fn version(&self) -> u64;
    /// Counters and state of the cache, for introspection.
    fn state(&self, scope: &super::caches::Scope) -> CacheState;
    /// Set once the initial state is complete.
    fn synced(&self) -> Latch;
}

/// The initial state of a cache while it is read. Readers see nothing of it before it is complete.
pub(super) trait InitialState: Send {
    /// Adds an object. One that the cache has in this version already is not held twice.
    fn add(&mut self, object: &[u8], encoding: Encoding) -> Result<(), DecodeError>;
    /// Removes an object that was deleted meanwhile.
    fn remove(&mut self, namespace: &str, name: &str);
    /// Returns the number of objects.
    fn len(&self) -> usize;
    /// Replaces the content of the cache by this state, which was complete at `version`.
    fn apply(self: Box<Self>, version: u64);
}

/// Objects for a cache.
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

    /// The cached object is the last state, since the watch sent every change before the deletion: only its identity is
    /// decoded.
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

/// Decodes an object; the error names it.
fn decode<V: View>(object: &[u8], encoding: Encoding) -> Result<V, DecodeError> {
    V::decode(object, encoding).map_err(|error| error.naming(object, encoding))
}
