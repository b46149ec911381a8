//! Object metadata: the part that every kind has.

use crate::time::Timestamp;

/// A small map of strings (labels, annotations, node selectors): one allocation, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct StrMap(Box<[(Box<str>, Box<str>)]>);

impl StrMap {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether `key` is there.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This map with `key` set to `value`.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        self.iter().filter(|(k, _)| *k != key).chain([(key, value)]).collect()
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for StrMap {
    /// A later entry of the same key wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let map: std::collections::BTreeMap<Box<str>, Box<str>> =
            entries.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        Self(map.into_iter().collect())
    }
}

/// What controllers read of `metadata`. `managedFields` and the like are skipped when decoding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Name, unique in namespace and resource.
    pub name: Box<str>,
    /// What the name was generated from; kept so that a PUT of metadata loses nothing. Empty when it was not, and for Pods.
    pub generate_name: Box<str>,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Unique in time and space.
    pub uid: Box<str>,
    /// Opaque to clients but ordered within a resource since v1.35 (KEP-5504); see [`Meta::version`].
    pub resource_version: Box<str>,
    /// Counts changes of the spec.
    pub generation: i64,
    /// When the server made it.
    pub creation: Option<Timestamp>,
    /// When deletion was asked for, plus the grace period.
    pub deletion: Option<Timestamp>,
    /// Seconds of grace once deletion was asked for.
    pub deletion_grace_seconds: Option<i64>,
    /// Labels.
    pub labels: StrMap,
    /// Annotations.
    pub annotations: StrMap,
    /// Owners.
    pub owners: Box<[OwnerReference]>,
    /// Finalizers.
    pub finalizers: Box<[Box<str>]>,
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

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// `group/version`, or `v1`.
    pub api_version: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// Uid.
    pub uid: Box<str>,
    /// Whether this owner manages the object; at most one does.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for the object.
    pub block_owner_deletion: bool,
}
