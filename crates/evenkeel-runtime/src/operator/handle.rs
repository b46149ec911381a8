//! Handle of a declared controller: adds and stops watches while it runs, and removes it.

use super::{ApiObject, Predicate, builder::mapping};
use crate::{
    cache::{Cache, Caches, Dynamic, Full},
    client::Metadata,
    controller::{EventFilter, LateWatch, LateWatches},
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
/// // When no ConfigMap names the kind any longer:
/// watch.stop();
/// // When the whole controller is no longer needed:
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
    ///
    /// A pass that reads the cache before the cache has synced is requeued once it has; see [`NotSynced`](super::NotSynced).
    #[doc(alias = "Controller.Watch")]
    pub fn watches<W: ApiObject>(
        &self,
        map: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        self.new_watch().watches(map)
    }

    /// Like [`Self::watches`], for a kind that is cached as metadata only.
    pub fn watches_metadata(
        &self,
        kind: Kind,
        map: impl Fn(&Meta) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        self.new_watch().watches_metadata(kind, map)
    }

    /// Like [`Self::watches`], for a kind that is known only at run time.
    pub fn watches_dynamic(
        &self,
        kind: Kind,
        map: impl Fn(&DynamicObject) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        self.new_watch().watches_dynamic(kind, map)
    }

    /// Enqueues the owner (controller reference) of each `D` on the `D`'s events, as
    /// [`ControllerBuilder::owns`](super::ControllerBuilder::owns) does.
    pub fn owns<D: ApiObject>(&self) -> WatchHandle {
        self.new_watch().owns::<D>()
    }

    /// Like [`Self::owns`], for a kind that is known only at run time.
    pub fn owns_dynamic(&self, kind: Kind) -> WatchHandle {
        self.new_watch().owns_dynamic(kind)
    }

    /// Like [`Self::owns`], for a kind that is cached as metadata only.
    pub fn owns_metadata(&self, kind: Kind) -> WatchHandle {
        self.new_watch().owns_metadata(kind)
    }

    /// Returns the options of a new watch, such as a predicate, or that its kind may not be served yet.
    ///
    /// ```no_run
    /// use evenkeel_runtime::prelude::*;
    ///
    /// async fn follow(controller: &ControllerHandle, kind: Kind) {
    ///     let watch = controller.new_watch().when(generation_changed()).optional().owns_dynamic(kind);
    ///     watch.synced().await;
    /// }
    /// ```
    pub fn new_watch(&self) -> NewWatch<'_> {
        NewWatch { controller: self, predicate: None, optional: false, resync: None }
    }

    /// Removes the controller: its watches end, running passes are finished, and waiting keys are dropped. Caches without other
    /// readers stop. Completes when the last pass has ended, so a pass of the controller must not wait for it. Another
    /// controller may have the name afterwards.
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
    /// Priority of the key. Default: the priority of a change.
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

/// Watch that is added to a running controller, with its options. See [`ControllerHandle::new_watch`].
#[must_use = "a watch is added by `watches`, `owns` and their like"]
pub struct NewWatch<'c> {
    controller: &'c ControllerHandle,
    predicate: Option<Predicate>,
    optional: bool,
    resync: Option<Duration>,
}

/// Options of the watch. Set them before the call that adds it.
impl NewWatch<'_> {
    /// Limits the events that enqueue keys to those that pass the predicate.
    #[doc(alias = "WithPredicates")]
    pub fn when(self, predicate: Predicate) -> Self {
        Self { predicate: Some(predicate), ..self }
    }

    /// Keeps the manager ready before the server serves the kind. The kind's events follow once its CustomResourceDefinition is
    /// installed.
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Enqueues every object of the kind each `period`, as an update without a change. `owns` and its variants ignore such
    /// updates. The shortest requested period applies to the kind's cache, and so to all of its readers.
    #[doc(alias = "SyncPeriod")]
    pub fn resync_every(self, period: Duration) -> Self {
        Self { resync: Some(period), ..self }
    }
}

/// The last call, which adds the watch.
impl NewWatch<'_> {
    /// Adds a watch that enqueues the keys that `map` returns, as [`ControllerHandle::watches`].
    pub fn watches<W: ApiObject>(
        self,
        map: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        let cache = self.controller.caches.packed::<Full<W>>();
        self.add(&cache, move |object: &Full<W>| map(object))
    }

    /// Adds a watch of the metadata of a kind, as [`ControllerHandle::watches_metadata`].
    pub fn watches_metadata(
        self,
        kind: Kind,
        map: impl Fn(&Meta) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        let cache = self.controller.caches.metadata(kind);
        self.add(&cache, move |object: &Metadata| map(&object.meta))
    }

    /// Adds a watch of a kind that is known only at run time, as [`ControllerHandle::watches_dynamic`].
    pub fn watches_dynamic(
        self,
        kind: Kind,
        map: impl Fn(&DynamicObject) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        let cache = self.controller.caches.dynamic(kind);
        self.add(&cache, move |object: &Dynamic| map(object))
    }

    /// Adds a watch that enqueues the controllers of objects, as [`ControllerHandle::owns`].
    pub fn owns<D: ApiObject>(self) -> WatchHandle {
        let cache = self.controller.caches.packed::<Full<D>>();
        self.add_owned(&cache)
    }

    /// Like [`Self::owns`], for a kind that is known only at run time.
    pub fn owns_dynamic(self, kind: Kind) -> WatchHandle {
        let cache = self.controller.caches.dynamic(kind);
        self.add_owned(&cache)
    }

    /// Like [`Self::owns`], for a kind that is cached as metadata only.
    pub fn owns_metadata(self, kind: Kind) -> WatchHandle {
        let cache = self.controller.caches.metadata(kind);
        self.add_owned(&cache)
    }

    fn add<V: View>(
        self,
        cache: &Cache<V>,
        map: impl Fn(&V) -> Vec<Key> + Send + Sync + 'static,
    ) -> WatchHandle {
        self.configure(cache);
        let ControllerHandle { watches, caches, .. } = self.controller;
        let watch = watches.add(cache, self.predicate.map(filter), mapping(map));
        WatchHandle { watch, caches: caches.clone() }
    }

    fn add_owned<V: View>(self, cache: &Cache<V>) -> WatchHandle {
        self.configure(cache);
        let ControllerHandle { watches, caches, .. } = self.controller;
        let watch = watches.add_owned(cache, self.predicate.map(filter));
        WatchHandle { watch, caches: caches.clone() }
    }

    fn configure<V: View>(&self, cache: &Cache<V>) {
        if self.optional {
            cache.mark_optional();
        }
        self.resync.iter().for_each(|period| cache.resync_every(*period));
    }
}

/// Returns the filter of a predicate.
fn filter(predicate: Predicate) -> EventFilter {
    Box::new(move |event| predicate.passes(event))
}

/// Watch that was added to a controller by its [`ControllerHandle`]. It lasts as long as the controller, unless it is
/// [stopped](WatchHandle::stop). Dropping the handle has no effect.
pub struct WatchHandle {
    /// `None` if the controller had ended before.
    watch: Option<LateWatch>,
    caches: Caches,
}

impl WatchHandle {
    /// Returns whether the cache of the kind holds all objects. Returns false if the controller has ended.
    pub fn has_synced(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.synced().is_set())
    }

    /// Waits until the cache of the kind holds all objects. A pass need not wait: it reads the cache, and is requeued if
    /// the cache has not synced. Returns immediately if the controller has ended.
    #[doc(alias = "WaitForCacheSync")]
    pub async fn synced(&self) {
        if let Some(watch) = &self.watch {
            watch.synced().wait().await;
        }
    }

    /// Ends the watch: its events no longer enqueue keys. Keys in the queue are still reconciled. The cache of the kind stops
    /// unless it has another reader: a controller, a [`Cache`], an index or a handler. Do not call this in a function that maps
    /// events to keys.
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
