//! ObjectMeta, which every kind has.

use crate::decode::message;
use crate::map::settle;
use crate::shared::{Shared, recalled};
use crate::text::Text;
use crate::time::Timestamp;

/// A small map of strings (labels, annotations, node selectors), sorted by key and shared by objects that have equal ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct StrMap(pub(crate) Shared<(Text, Text)>);

recalled!((Text, Text));
recalled!(OwnerReference);

impl StrMap {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether the map contains `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Entries in order of key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + '_ {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether both are one map, held once: objects that were read one after the other hold equal labels once. What is not the
    /// same may be equal all the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// This map with `key` set to `value`.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        self.iter().filter(|(k, _)| *k != key).chain([(key, value)]).collect()
    }
}

impl<K: Into<Text>, V: Into<Text>> FromIterator<(K, V)> for StrMap {
    /// A later entry of the same key wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(settle(entries.into_iter().map(|(k, v)| (k.into(), v.into())).collect()).into())
    }
}

message! {
    /// What controllers read of `metadata`. `managedFields` and the like are skipped when decoding.
    pub struct Meta("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
        /// Name, unique in namespace and resource.
        name: Text = 1 "name",
        /// What the name was generated from, empty when it was not; kept so that a PUT of metadata loses nothing.
        generate_name: Text = 2 "generateName",
        /// Namespace, empty for cluster-scoped objects.
        namespace: Text = 3 "namespace",
        /// Identifier that no other object has, past or present; set by the server.
        uid: Text = 5 "uid",
        /// Opaque to clients but ordered within a resource since v1.35 (KEP-5504); see [`Meta::version`].
        resource_version: Text = 6 "resourceVersion",
        /// Number of the spec's current version; the server increments it with each change.
        generation: i64 = 7 "generation",
        /// Time of creation; set by the server.
        creation: Option<Timestamp> = 8 "creationTimestamp",
        /// Time at which the grace period of a deletion ends; absent while nobody has deleted the object.
        deletion: Option<Timestamp> = 9 "deletionTimestamp",
        /// Grace period of the deletion in seconds; set together with the deletion timestamp.
        deletion_grace_seconds: Option<i64> = 10 "deletionGracePeriodSeconds",
        /// Labels, which selectors match.
        labels: StrMap = 11 "labels",
        /// Annotations: values that are not selected by, set by users and controllers.
        annotations: StrMap = 12 "annotations",
        /// Owners; the garbage collector deletes the object once all of them are gone.
        owners: Shared<OwnerReference> = 13 "ownerReferences",
        /// Finalizers; a deleted object stays until their controllers have removed all of them.
        finalizers: Box<[Text]> = 14 "finalizers",
    }
}

impl Meta {
    /// The resource version as a number, 0 where it is none.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    /// Whether deletion was asked for.
    pub fn deleting(&self) -> bool {
        self.deletion.is_some()
    }

    /// The owner that controls it, if any.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Whether the owner with this uid controls it.
    pub fn controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| &*owner.uid == uid)
    }
}

message! {
    /// One entry of `metadata.ownerReferences`.
    #[derive(Hash)]
    pub struct OwnerReference("k8s.io.apimachinery.pkg.apis.meta.v1.OwnerReference") {
        /// `group/version`, or `v1`.
        api_version: Text = 5 "apiVersion",
        /// Kind of the owner, such as `ReplicaSet`.
        kind: Text = 1 "kind",
        /// Name of the owner, which is in the object's namespace or cluster-scoped.
        name: Text = 3 "name",
        /// Uid of the owner; an owner of this name with another uid counts as deleted.
        uid: Text = 4 "uid",
        /// Whether this owner manages the object; at most one does.
        controller: bool = 6 "controller",
        /// Whether a foreground deletion of the owner waits for the object.
        block_owner_deletion: bool = 7 "blockOwnerDeletion",
    }
}
