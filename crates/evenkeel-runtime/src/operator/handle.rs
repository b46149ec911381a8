//! A controller after its declaration: watches that are added and stopped while it runs, and its removal.

use super::{ApiObject, builder::mapping};
use crate::{
    cache::{Cache, Caches, Dynamic, Full},
    client::Metadata,
    controller::{LateWatch, LateWatches},
    manager::Removal,
    plan::Key,
    queue::Priority,
};
use evenkeel_api::{Kind, Meta, View};
use kube::api::DynamicObject;
use std::time::Duration;

/// Controller of a manager. Clones are the same controller.
///
/// ```no_run
/// use evenkeel_runtime::prelude::*;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// # async fn run(manager: &Manager) {
/// let controller = manager
///     .controller::<ConfigMap>()
///     .reconcile(async |_map: Arc<ConfigMap>, _cx: Context| Ok(Outcome::Settled));
/// // Later, for example when a ConfigMap names a kind:
/// let kind = Kind::new("example.com", "v1", "Gadget", "gadgets", true);
/// let watch = controller
///     .watches_dynamic(kind, |gadget| vec![Key::new("default", &gadget.data["map"].to_string())]);
/// // When no ConfigMap names it any more:
/// watch.stop();
/// // When the whole controller is of no use any more:
/// controller.remove().await;
/// # }
/// ```
#[derive(Clone)]
pub struct ControllerHandle {
    watches: LateWatches,
    caches: Caches,
    removal: Removal,
}

impl ControllerHandle {
    pub(super) fn new(watches: LateWatches, caches: Caches, removal: Removal) -> Self {
        Self { watches, caches, removal }
    }

    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        self.watches.name()
    }

    /// Enqueues a key.
    pub fn enqueue(&self, key: Key) {
        self.watches.enqueue(key);
    }

    /// Enqueues the keys that `map` returns for each `W` on the `W`'s events, beginning with those that exist. From now on
    /// [`Context`](super::Context) reads the cache of `W`, and a pass waits until it shows the key's writes of `W`.
    #[doc(alias = "Controller.Watch")]
    pub fn watches<W: ApiObject>(
        &self,
        map: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        self.add(&self.caches.packed::<Full<W>>(), move |object: &Full<W>| map(object))
    }

    /// Like [`Self::watches`], for a kind of which only the metadata is cached.
    pub fn watches_metadata(
        &self,
        kind: Kind,
        map: impl Fn(&Meta) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        self.add(&self.caches.metadata(kind), move |object: &Metadata| map(&object.meta))
    }

    /// Like [`Self::watches`], for a kind that is known only at run time.
    pub fn watches_dynamic(
        &self,
        kind: Kind,
        map: impl Fn(&DynamicObject) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        self.add(&self.caches.dynamic(kind), move |object: &Dynamic| map(object))
    }

    fn add<V: View>(
        &self,
        cache: &Cache<V>,
        map: impl Fn(&V) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        WatchHandle { watch: self.watches.add(cache, mapping(map)), caches: self.caches.clone() }
    }

    /// Removes the controller: its watches end, passes that run are finished, and keys that wait are dropped. Caches that
    /// nobody else reads stop. Completes when the last pass has ended, so a pass of the controller must not wait for it.
    /// Another controller may have the name afterwards.
    pub async fn remove(self) {
        self.removal.remove().await;
    }
}

/// Options of a key that [`ControllerHandle::enqueue_with`] adds.
///
/// Upstream: `priorityqueue.AddOpts`.
#[doc(alias = "priorityqueue.AddOpts")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnqueueOptions {
    /// Priority of the key. Default: that of a change.
    pub priority: Priority,
    /// Delay until the key is ready. Default: none.
    pub after: Duration,
}

impl ControllerHandle {
    /// Like [`Self::enqueue`], with a priority and after a delay.
    pub fn enqueue_with(&self, key: Key, options: EnqueueOptions) {
        let EnqueueOptions { priority, after } = options;
        self.watches.enqueue_with(key, priority, after);
    }
}

impl std::fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerHandle").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Watch that was added to a controller by its [`ControllerHandle`]. It lasts as long as the controller, unless it is
/// [stopped](WatchHandle::stop); to drop it changes nothing.
pub struct WatchHandle {
    /// `None` if the controller had ended before.
    watch: Option<LateWatch>,
    caches: Caches,
}

impl WatchHandle {
    /// Ends the watch: its events enqueue no key any more. Keys in the queue are still reconciled. The cache of the kind stops
    /// unless something else reads it: a controller, a [`Cache`], an index or a handler. It must not be called within a
    /// function that maps events to keys.
    pub fn stop(self) {
        if let Some(watch) = self.watch {
            watch.stop(&self.caches);
        }
    }
}

impl std::fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchHandle").finish_non_exhaustive()
    }
}
