//! Whole objects: a view of any `kube::Resource` type.

use super::whole::{TypeMeta, WholeObject, decode_body, decode_whole, to_meta};
use evenkeel_api::{DecodeError, Encoding, Kind, Meta, View};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::de::DeserializeOwned;
use std::{any::TypeId, ops::Deref, sync::Arc};

/// Whole object of a `k8s-openapi` or derived type, for kinds without a lean view. Dereferences to the object. Does not
/// contain `metadata.managedFields`, which are often larger than the rest and which controllers do not read.
///
/// ```
/// use evenkeel_api::{Encoding, View};
/// use evenkeel_runtime::cache::Full;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let json = br#"{"metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"v"}}"#;
/// let map = Full::<ConfigMap>::decode(json, Encoding::Json).unwrap();
/// assert_eq!(map.meta().version(), 7);
/// assert_eq!(map.data.as_ref().unwrap()["k"], "v");
/// assert_eq!(Full::<ConfigMap>::kind().plural, "configmaps");
/// ```
#[derive(Debug)]
pub struct Full<K> {
    meta: Meta,
    object: Arc<K>,
}

impl<K> Clone for Full<K> {
    fn clone(&self) -> Self {
        Self { meta: self.meta.clone(), object: Arc::clone(&self.object) }
    }
}

impl<K: Resource> Full<K> {
    /// Wraps an object that was not decoded from a response, and removes its `managedFields`.
    pub fn new(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        Self { meta: to_meta(object.meta()), object: Arc::new(object) }
    }

    /// Changes the object with `change`. Does nothing if the object is shared already.
    pub(super) fn map_object(mut self, change: impl FnOnce(&mut K)) -> Self {
        if let Some(object) = Arc::get_mut(&mut self.object) {
            change(object);
            self.meta = to_meta(object.meta());
        }
        self
    }

    /// Unwraps the object, and clones it if it is shared.
    pub fn into_inner(self) -> K
    where
        K: Clone,
    {
        Arc::unwrap_or_clone(self.object)
    }

    /// Returns the object.
    pub fn object(&self) -> &Arc<K> {
        &self.object
    }
}

impl<K> Deref for Full<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<K> View for Full<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    K::Scope: 'static,
{
    const PROTOBUF: bool = false;

    fn kind() -> Kind {
        Kind {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
            namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        decode_whole(&K::kind(&()), bytes, encoding).map(Self::new)
    }
}

impl<K> WholeObject for Full<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    K::Scope: 'static,
{
    fn type_meta() -> Option<TypeMeta> {
        Some(TypeMeta { api_version: K::api_version(&()), kind: K::kind(&()) })
    }

    fn from_body(body: &[u8], metadata: ObjectMeta, meta: Meta) -> Result<Self, DecodeError> {
        let mut object: K = decode_body(&K::kind(&()), body)?;
        *object.meta_mut() = metadata;
        Ok(Self { meta, object: Arc::new(object) })
    }
}
