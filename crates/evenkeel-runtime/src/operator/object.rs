//! Types that an operator reads and writes.

use crate::{
    cache::{Dynamic, Full},
    client::Metadata,
    plan::{Key, Target},
};
use evenkeel_api::{Kind, View};
use kube::{Resource, api::DynamicObject};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// Type of API objects, from `k8s-openapi` or derived with kube's `CustomResource`. Implemented for all such types.
///
/// Upstream: `client.Object` of controller-runtime.
#[doc(alias = "client.Object")]
pub trait ApiObject:
    Resource<DynamicType = (), Scope: 'static> + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> ApiObject for K where
    K: Resource<DynamicType = (), Scope: 'static>
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// View of objects that a reconcile function gets: `Full<K>`, `Dynamic` or `Metadata`.
pub(super) trait Whole: View {
    /// Type of the object in the view.
    type Object: Send + Sync + 'static;
    /// Returns the object.
    fn whole(&self) -> Arc<Self::Object>;
}

impl<K: ApiObject> Whole for Full<K> {
    type Object = K;

    fn whole(&self) -> Arc<K> {
        Arc::clone(self.object())
    }
}

impl Whole for Dynamic {
    type Object = DynamicObject;

    fn whole(&self) -> Arc<DynamicObject> {
        Arc::clone(self.object())
    }
}

impl Whole for Metadata {
    type Object = Self;

    fn whole(&self) -> Arc<Self> {
        Arc::new(self.clone())
    }
}

/// Object with a name, but whose Rust type does not determine its kind. [`DynamicObjects`](super::DynamicObjects) provides the
/// kind. Implemented for kube's `DynamicObject`, and for [`Metadata`].
pub trait Identified {
    /// Returns the object of this kind as the target of a write or an event.
    fn target(&self, kind: &Kind) -> Target;
}

impl Identified for DynamicObject {
    fn target(&self, kind: &Kind) -> Target {
        target_of(kind.clone(), self)
    }
}

impl Identified for Metadata {
    fn target(&self, kind: &Kind) -> Target {
        Target::of(kind.clone(), &self.meta)
    }
}

/// Returns the kind of a type.
pub(super) fn kind_of<K: ApiObject>() -> Kind {
    Full::<K>::kind()
}

/// Returns an object as the target of a write. Its uid is a precondition, if it has one.
pub(super) fn target_of(kind: Kind, object: &impl Resource) -> Target {
    let meta = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let namespace = if kind.namespaced { text(&meta.namespace) } else { String::new() };
    Target::new(kind, &namespace, &text(&meta.name), &text(&meta.uid))
}

impl Target {
    /// Returns an object as a target. Its uid is a precondition, if it has one.
    pub fn of_object<K: ApiObject>(object: &K) -> Self {
        target_of(kind_of::<K>(), object)
    }
}

impl Key {
    /// Returns the key of an object of `k8s-openapi` or a derived type.
    #[doc(alias = "client.ObjectKeyFromObject")]
    pub fn of_object(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}
