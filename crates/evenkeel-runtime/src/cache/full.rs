//! Whole objects: a view of any `kube::Resource` type.

use super::managed_fields::without_managed_fields;
use evenkeel_api::{DecodeError, Encoding, Kind, Meta, OwnerReference, StrMap, Text, View, json};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::de::DeserializeOwned;
use std::{any::TypeId, collections::BTreeMap, ops::Deref, sync::Arc};

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

    /// Changes the object. `change` does nothing if the object is shared already.
    pub(super) fn changed(mut self, change: impl FnOnce(&mut K)) -> Self {
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
            group: K::group(&()).into_owned().into(),
            version: K::version(&()).into_owned().into(),
            kind: K::kind(&()).into_owned().into(),
            plural: K::plural(&()).into_owned().into(),
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

/// Decodes a whole object, which is possible from JSON only. `kind` is its kind in errors.
pub(super) fn decode_whole<T: DeserializeOwned>(
    kind: &str,
    bytes: &[u8],
    encoding: Encoding,
) -> Result<T, DecodeError> {
    let failed = |reason: String| DecodeError {
        kind: kind.into(),
        field: ".".into(),
        reason: reason.into(),
    };
    match encoding {
        Encoding::Json => json::from_slice(&without_managed_fields(bytes))
            .map_err(|error| failed(error.to_string())),
        Encoding::Protobuf => Err(failed("whole objects are read from JSON only".into())),
    }
}

pub(super) fn to_meta(from: &ObjectMeta) -> Meta {
    let text = |text: &Option<String>| Text::from(text.as_deref().unwrap_or_default());
    Meta {
        name: text(&from.name),
        namespace: text(&from.namespace),
        uid: text(&from.uid),
        resource_version: text(&from.resource_version),
        generation: from.generation.unwrap_or_default(),
        creation: from.creation_timestamp.as_ref().map(|time| time.0),
        deletion: from.deletion_timestamp.as_ref().map(|time| time.0),
        deletion_grace_seconds: from.deletion_grace_period_seconds,
        labels: to_str_map(from.labels.as_ref()),
        annotations: to_str_map(from.annotations.as_ref()),
        owners: from.owner_references.iter().flatten().map(to_owner).collect(),
        finalizers: from.finalizers.iter().flatten().map(|name| name.as_str().into()).collect(),
        ..Meta::default()
    }
}

fn to_str_map(map: Option<&BTreeMap<String, String>>) -> StrMap {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn to_owner(
    from: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference,
) -> OwnerReference {
    OwnerReference {
        api_version: from.api_version.as_str().into(),
        kind: from.kind.as_str().into(),
        name: from.name.as_str().into(),
        uid: from.uid.as_str().into(),
        controller: from.controller.unwrap_or_default(),
        block_owner_deletion: from.block_owner_deletion.unwrap_or_default(),
    }
}
