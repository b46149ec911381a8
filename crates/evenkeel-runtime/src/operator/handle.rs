//! Watches that are added to a controller after its declaration, also while it runs.

use super::{ApiObject, builder::mapping};
use crate::{
    cache::{Cache, Caches, Dynamic, Full},
    client::Metadata,
    controller::LateWatches,
    plan::Key,
};
use evenkeel_api::{Kind, Meta, View};
use kube::api::DynamicObject;

/// Controller of a manager. Clones are the same controller.
///
/// ```no_run
/// use evenkeel_runtime::prelude::*;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// # fn run(manager: &Manager) {
/// let controller = manager
///     .controller::<ConfigMap>()
///     .reconcile(async |_map: Arc<ConfigMap>, _cx: Context| Ok(Outcome::Settled));
/// // Later, for example when a ConfigMap names a kind:
/// let kind = Kind::new("example.com", "v1", "Gadget", "gadgets", true);
/// controller.watches_dynamic(kind, |gadget| vec![Key::new("default", &gadget.data["map"].to_string())]);
/// # }
/// ```
#[derive(Clone)]
pub struct ControllerHandle {
    watches: LateWatches,
    caches: Caches,
}

impl ControllerHandle {
    pub(super) fn new(watches: LateWatches, caches: Caches) -> Self {
        Self { watches, caches }
    }

    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        self.watches.name()
    }

    /// Enqueues a key.
    pub fn enqueue(&self, key: Key) {
        self.watches.enqueue(key);
    }

    /// Enqueues the keys that `map` returns for each `W` on the `W`'s events, beginning with those that exist. A pass does
    /// not wait until the cache shows its writes of `W`.
    #[doc(alias = "Controller.Watch")]
    pub fn watches<W: ApiObject>(&self, map: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static) {
        self.add(&self.caches.of::<Full<W>>(), move |object: &Full<W>| map(object));
    }

    /// Like [`Self::watches`], for a kind of which only the metadata is cached.
    pub fn watches_metadata(
        &self,
        kind: Kind,
        map: impl Fn(&Meta) -> Vec<Key> + Send + Sync + 'static,
    ) {
        self.add(&self.caches.metadata(kind), move |object: &Metadata| map(&object.meta));
    }

    /// Like [`Self::watches`], for a kind that is known only at run time.
    pub fn watches_dynamic(
        &self,
        kind: Kind,
        map: impl Fn(&DynamicObject) -> Vec<Key> + Send + Sync + 'static,
    ) {
        self.add(&self.caches.dynamic(kind), move |object: &Dynamic| map(object));
    }

    fn add<V: View>(&self, cache: &Cache<V>, map: impl Fn(&V) -> Vec<Key> + Send + Sync + 'static) {
        self.watches.add(cache, mapping(map));
    }
}

impl std::fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerHandle").field("name", &self.name()).finish_non_exhaustive()
    }
}
