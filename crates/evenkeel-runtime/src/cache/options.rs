//! Selects the objects of a kind that a program caches, and the parts of these objects.

use super::{Dynamic, Full, object::Decode};
use crate::client::Metadata;
use evenkeel_api::{Kind, Meta, View};
use kube::{Resource, api::DynamicObject};
use std::{any::TypeId, collections::HashMap, marker::PhantomData, sync::Arc};

/// Selection and transformation of the cached objects of a type. The default caches all objects whole, except for their
/// `managedFields`.
///
/// ```
/// use evenkeel_runtime::cache::CacheOptions;
/// use k8s_openapi::api::core::v1::Secret;
///
/// let options = CacheOptions::<Secret>::in_namespace("web")
///     .labels("app=web")
///     .transform(|secret| secret.data = None);
/// ```
///
/// Use `CacheOptions<DynamicObject>` for a kind that is known only at run time, and `CacheOptions<Metadata>` to cache only
/// metadata. [`ManagerBuilder::cache_dynamic`](crate::manager::ManagerBuilder::cache_dynamic) and
/// [`ManagerBuilder::cache_metadata`](crate::manager::ManagerBuilder::cache_metadata) take these options with the kind.
///
/// Upstream: `cache.ByObject` of controller-runtime.
#[doc(alias = "ByObject")]
#[must_use = "options do nothing until a manager takes them"]
pub struct CacheOptions<K> {
    selection: CacheSelection,
    object: PhantomData<fn(K)>,
}

/// Options of a cache, independent of its type.
#[derive(Clone, Default)]
pub(super) struct CacheSelection {
    /// Namespaces of the objects; empty for the namespaces of all caches.
    pub(super) namespaces: Vec<Box<str>>,
    pub(super) labels: String,
    pub(super) fields: String,
    /// Decodes an object and transforms it.
    pub(super) decode: Option<Decode>,
}

impl<K> Default for CacheOptions<K> {
    fn default() -> Self {
        Self { selection: CacheSelection::default(), object: PhantomData }
    }
}

impl<K> CacheOptions<K> {
    /// Caches only the objects of one namespace.
    pub fn in_namespace(namespace: &str) -> Self {
        Self::in_namespaces([namespace])
    }

    /// Caches only the objects of these namespaces, with a watch for each. The operator then needs no permission for the whole
    /// cluster. Without namespaces, all objects are cached.
    ///
    /// ```
    /// use evenkeel_runtime::cache::CacheOptions;
    /// use k8s_openapi::api::core::v1::Secret;
    ///
    /// let options = CacheOptions::<Secret>::in_namespaces(["web", "shop"]);
    /// ```
    #[doc(alias = "DefaultNamespaces")]
    pub fn in_namespaces<'n>(namespaces: impl IntoIterator<Item = &'n str>) -> Self {
        let mut options = Self::default();
        options.selection.namespaces = distinct(namespaces);
        options
    }

    /// Caches only the objects that this label selector selects, such as `app=web,tier!=test`.
    pub fn labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.selection.labels);
        self
    }

    /// Caches only the objects that this field selector selects, such as `metadata.name=web`.
    ///
    /// A reconcile waits until the cache shows its updates of cached objects. It does not wait for objects that it creates,
    /// because only the server knows whether the field selector selects them. The next reconcile may not see them yet.
    pub fn fields(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.selection.fields);
        self
    }

    /// Changes each object before it is cached, usually to drop fields that no reconciler reads.
    pub fn transform(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: Resource,
        Full<K>: View,
    {
        self.selection.decode = Some(Arc::new(move |bytes, encoding| {
            Ok(Arc::new(Full::<K>::decode(bytes, encoding)?.map_object(&change)))
        }));
        self
    }
}

impl CacheOptions<DynamicObject> {
    /// Changes each object before it is cached, usually to drop fields that no reconciler reads. A cache with such a transform
    /// holds its objects decoded.
    ///
    /// ```
    /// use evenkeel_runtime::prelude::*;
    /// use kube::api::DynamicObject;
    ///
    /// let options = CacheOptions::<DynamicObject>::in_namespace("web")
    ///     .transform_dynamic(|gadget| drop(gadget.data["status"].take()));
    /// ```
    pub fn transform_dynamic(
        mut self,
        change: impl Fn(&mut DynamicObject) + Send + Sync + 'static,
    ) -> Self {
        self.selection.decode = Some(Arc::new(move |bytes, encoding| {
            Ok(Arc::new(Dynamic::decode(bytes, encoding)?.map_object(&change)))
        }));
        self
    }
}

impl CacheOptions<Metadata> {
    /// Changes the metadata of each object before it is cached, usually to drop annotations.
    ///
    /// ```
    /// use evenkeel_runtime::{client::Metadata, prelude::*};
    ///
    /// let options = CacheOptions::<Metadata>::default()
    ///     .labels("app")
    ///     .transform_metadata(|meta| meta.annotations = Default::default());
    /// ```
    pub fn transform_metadata(
        mut self,
        change: impl Fn(&mut Meta) + Send + Sync + 'static,
    ) -> Self {
        self.selection.decode = Some(Arc::new(move |bytes, encoding| {
            let mut object = Metadata::decode(bytes, encoding)?;
            change(&mut object.meta);
            Ok(Arc::new(object))
        }));
        self
    }
}

/// Returns these namespaces sorted and without duplicates. An empty string stands for all namespaces, so it replaces all
/// others.
pub(super) fn distinct<'n>(namespaces: impl IntoIterator<Item = &'n str>) -> Vec<Box<str>> {
    let mut namespaces: Vec<Box<str>> = namespaces.into_iter().map(Box::from).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    if namespaces.first().is_some_and(|first| first.is_empty()) {
        namespaces.truncate(1);
    }
    namespaces
}

/// Options by view and kind.
#[derive(Default)]
pub(super) struct Selections(HashMap<(TypeId, Kind), CacheSelection>);

impl Selections {
    /// Sets the options of the cache of a kind's objects in the view `V`.
    pub(super) fn set<V: View, K>(&mut self, kind: Kind, options: CacheOptions<K>) {
        self.0.insert((TypeId::of::<V>(), kind), options.selection);
    }

    /// Returns the options of a kind's objects in the view `V`, or the default.
    pub(super) fn of<V: View>(&self, kind: &Kind) -> CacheSelection {
        self.0.get(&(TypeId::of::<V>(), kind.clone())).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_sorted_and_all_of_them_includes_each() {
        let table: [(&[&str], &[&str]); 4] =
            [(&["b", "a", "b"], &["a", "b"]), (&["a", ""], &[""]), (&[""], &[""]), (&[], &[])];
        for (given, expected) in table {
            let expected: Vec<Box<str>> = expected.iter().map(|name| Box::from(*name)).collect();
            assert_eq!(distinct(given.iter().copied()), expected, "{given:?}");
        }
    }
}
