//! Index of objects by their controller, shared by all controllers. Upstream: `PodControllerIndex`.

use evenkeel_api::{OwnerReference, View};
use evenkeel_runtime::cache::{Cache, Index};
use std::sync::Arc;

/// Objects by the uid of their controller, and orphans by namespace.
#[derive(Debug)]
pub(crate) struct ByController<V>(Index<V>);

impl<V> Clone for ByController<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: View> ByController<V> {
    /// Declares the index on the cache. Repeated calls return the same index.
    pub(crate) fn of(cache: &Cache<V>) -> Self {
        Self(cache.index("controller", |object, key| match object.meta().controller() {
            Some(controller) => key(&controller.uid),
            None => key(&orphans_key(&object.meta().namespace)),
        }))
    }

    /// Returns the objects that the owner with this uid controls.
    pub(crate) fn owned(&self, uid: &str) -> Vec<Arc<V>> {
        self.0.get(uid)
    }

    /// Returns the objects that the owner controls, and the orphans of the namespace.
    pub(crate) fn owned_and_orphans(&self, uid: &str, namespace: &str) -> Vec<Arc<V>> {
        let mut objects = self.0.get(uid);
        objects.append(&mut self.0.get(&orphans_key(namespace)));
        objects
    }
}

/// Returns the key of a namespace's orphans in the index. Uids contain no slash, so the key differs from every uid.
fn orphans_key(namespace: &str) -> String {
    format!("/{namespace}")
}

/// Returns the owner that a controller reference names, if kind, name and uid agree. Upstream: `resolveControllerRef`.
pub(crate) fn resolve_controller_ref<V: View>(
    cache: &Cache<V>,
    namespace: &str,
    reference: &OwnerReference,
) -> Option<Arc<V>> {
    if *reference.kind != *cache.kind().kind {
        return None;
    }
    cache.get(namespace, &reference.name).filter(|owner| owner.meta().uid == reference.uid)
}
