//! ObjectMeta, the metadata of every kind.

use crate::decode::message;
use crate::map::sort_and_dedup;
use crate::shared::{Shared, intern_list, interned};
use crate::text::Text;
use crate::time::Timestamp;

/// A small map of strings (labels, annotations, node selectors), sorted by key. Equal maps of objects often share one
/// allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct StrMap(pub(crate) Shared<(Text, Text)>);

interned!((Text, Text));
interned!(OwnerReference);

impl StrMap {
    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[index].1)
    }

    /// Returns whether the map contains `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Iterates over the entries in the order of keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + '_ {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether both maps share one allocation, as equal labels do in objects that were decoded in succession.
    /// Maps with different allocations may still be equal.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// Returns a copy with `key` set to `value`.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        self.iter().filter(|(k, _)| *k != key).chain([(key, value)]).collect()
    }
}

impl<K: Into<Text>, V: Into<Text>> FromIterator<(K, V)> for StrMap {
    /// Builds a map from entries in any order. The last of several entries with the same key wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(
            sort_and_dedup(entries.into_iter().map(|(k, v)| (k.into(), v.into())).collect()).into(),
        )
    }
}

message! {
    /// Fields of `metadata` that controllers read. Decoding skips others, such as `managedFields`.
    pub struct Meta("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
        /// Name, unique within the namespace and resource.
        name: Text = 1 "name",
        /// Prefix of a name that the server generated; empty otherwise. A PUT of metadata keeps it.
        generate_name: Text = 2 "generateName",
        /// Namespace; empty for cluster-scoped objects.
        namespace: Text = 3 "namespace",
        /// Unique identifier that no other object has, past or present; set by the server.
        uid: Text = 5 "uid",
        /// Version of the object: opaque to clients, but ordered within a resource since v1.35 (KEP-5504). See
        /// [`Meta::version`].
        resource_version: Text = 6 "resourceVersion",
        /// Sequence number of the spec; the server increments it with each change of the spec.
        generation: i64 = 7 "generation",
        /// Time of creation; set by the server.
        creation: Option<Timestamp> = 8 "creationTimestamp",
        /// End of the grace period of a deletion; absent unless the object is terminating.
        deletion: Option<Timestamp> = 9 "deletionTimestamp",
        /// Grace period of the deletion in seconds; set together with the deletion timestamp.
        deletion_grace_seconds: Option<i64> = 10 "deletionGracePeriodSeconds",
        /// Labels, which selectors match.
        labels: StrMap = 11 "labels",
        /// Annotations: arbitrary values of users and controllers, which selectors do not match.
        annotations: StrMap = 12 "annotations",
        /// Owners; the garbage collector deletes the object once all of them are deleted.
        owners: Shared<OwnerReference> = 13 "ownerReferences",
        /// Finalizers: a deleted object stays until controllers have removed all of them.
        finalizers: Box<[Text]> = 14 "finalizers",
    }
}

impl Meta {
    /// Returns the resourceVersion as a number; 0 if it is not a number.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    /// Returns the metadata with labels, annotations and owners that share their memory with equal ones of objects which
    /// this thread decoded recently. Decoded metadata do already.
    #[must_use]
    pub fn interned(self) -> Self {
        Self {
            labels: StrMap(intern_list(self.labels.0)),
            annotations: StrMap(intern_list(self.annotations.0)),
            owners: intern_list(self.owners),
            ..self
        }
    }

    /// Returns whether the object is terminating.
    pub fn deleting(&self) -> bool {
        self.deletion.is_some()
    }

    /// Returns the owner that controls the object, if any.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Returns whether the owner with this uid controls the object.
    ///
    /// Upstream: `IsControlledBy`.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| &*owner.uid == uid)
    }
}

message! {
    /// One entry of `metadata.ownerReferences`.
    #[derive(Hash)]
    pub struct OwnerReference("k8s.io.apimachinery.pkg.apis.meta.v1.OwnerReference") {
        /// apiVersion of the owner: `group/version`, or `v1`.
        api_version: Text = 5 "apiVersion",
        /// Kind of the owner, such as `ReplicaSet`.
        kind: Text = 1 "kind",
        /// Name of the owner, which is cluster-scoped or in the object's namespace.
        name: Text = 3 "name",
        /// Uid of the owner. An owner of this name with another uid counts as deleted.
        uid: Text = 4 "uid",
        /// Whether this owner controls the object; at most one owner does.
        controller: bool = 6 "controller",
        /// Whether a foreground deletion of the owner waits for the object.
        block_owner_deletion: bool = 7 "blockOwnerDeletion",
    }
}
