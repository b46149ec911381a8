//! Who controls what, as an index that all controllers share.

use evenkeel_api::{OwnerReference, View};
use evenkeel_runtime::cache::{Cache, Index};
use std::sync::Arc;

/// Objects by the uid of their controller, or by their namespace while nobody controls them.
#[derive(Debug)]
pub(crate) struct ByController<V>(Index<V>);

impl<V> Clone for ByController<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: View> ByController<V> {
    /// Declares the index, once for each cache.
    pub(crate) fn of(cache: &Cache<V>) -> Self {
        Self(cache.index("controller", |object, key| match object.meta().controller() {
            Some(controller) => key(&controller.uid),
            None => key(&orphans(&object.meta().namespace)),
        }))
    }

    /// Objects that the owner of this uid controls.
    pub(crate) fn owned(&self, uid: &str) -> Vec<Arc<V>> {
        self.0.get(uid)
    }

    /// Those, and the objects of the namespace that nobody controls.
    pub(crate) fn owned_and_orphans(&self, uid: &str, namespace: &str) -> Vec<Arc<V>> {
        let mut objects = self.0.get(uid);
        objects.append(&mut self.0.get(&orphans(namespace)));
        objects
    }
}

/// No uid has a slash in it.
fn orphans(namespace: &str) -> String {
    format!("/{namespace}")
}

/// The object that a controller reference means: of that kind and name, and still the one of that uid.
pub(crate) fn resolve<V: View>(
    cache: &Cache<V>,
    namespace: &str,
    reference: &OwnerReference,
) -> Option<Arc<V>> {
    if *reference.kind != *cache.kind().kind {
        return None;
    }
    cache.get(namespace, &reference.name).filter(|owner| owner.meta().uid == reference.uid)
}
