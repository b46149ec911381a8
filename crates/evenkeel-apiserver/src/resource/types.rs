//! Resource in one version: its discovery entry, resource prefix and strategy.

use std::fmt;
use std::sync::Arc;

use evenkeel_apimachinery::group_version::{GroupKind, GroupResource, GroupVersionKind};
use evenkeel_apimachinery::schema::Schema;

use super::custom::Version;
use super::source::Source;
use crate::strategy::Strategy;

/// Verb of a resource request in RBAC rules and discovery documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// All verbs, in the order of discovery documents.
    pub(crate) const ALL: [Self; 8] = [
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// Returns the verb in lower case, as in RBAC rules.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

/// Set of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verbs(u8);

impl Verbs {
    /// Returns whether the set contains `verb`.
    pub(crate) fn has(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u8) != 0
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(verbs.into_iter().fold(0, |set, verb| set | 1 << verb as u8))
    }
}

/// Subresource, such as `status` or `scale`.
#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    /// Last element of the path.
    pub(crate) name: Arc<str>,
    /// Kind of requests and responses. The version is set here even if the recorded table leaves it empty, because it
    /// equals the parent's.
    pub(crate) kind: GroupVersionKind,
    /// Whether discovery states the group and version of the kind, because they differ from the parent's.
    pub(crate) foreign_kind: bool,
    /// Verbs that the subresource supports.
    pub(crate) verbs: Verbs,
}

/// Column of a Table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// Title of the column.
    pub(crate) name: Arc<str>,
    /// `string`, `integer`, `date`, …
    pub(crate) kind: Arc<str>,
    /// OpenAPI format, such as `name` for the column of names.
    pub(crate) format: Arc<str>,
    /// Priority. kubectl always prints columns of priority 0, and columns of a higher priority only with `-o wide`.
    pub(crate) priority: i64,
    /// Description; `None` for the description that all resources share.
    pub(crate) description: Option<Arc<str>>,
}

/// Resource in one version.
pub(crate) struct ResourceType {
    /// Group, version and kind of objects.
    pub(crate) gvk: GroupVersionKind,
    /// Plural name with its group, for messages.
    pub(crate) name: GroupResource,
    /// Group and version, such as `apps/v1`.
    pub(crate) api_version: Box<str>,
    /// Kind of a list, such as `PodList`.
    pub(crate) list_kind: Box<str>,
    /// Singular name for kubectl.
    pub(crate) singular: Box<str>,
    /// Short names for kubectl.
    pub(crate) short_names: Box<[Box<str>]>,
    /// Categories, such as `all`.
    pub(crate) categories: Box<[Box<str>]>,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Verbs that discovery lists.
    pub(crate) verbs: Verbs,
    /// Subresources, ordered by name.
    pub(crate) subresources: Box<[Subresource]>,
    /// Columns of its Table.
    pub(crate) columns: Box<[Column]>,
    /// Prefix of the objects' keys in the store. All versions of a resource share it, and so do `events` of both
    /// groups.
    pub(crate) resource_prefix: ResourcePrefix,
    /// Whether this is the storage version. `Strategy::convert_out` converts objects to the other versions.
    pub(crate) stored: bool,
    /// Strategy of the kind.
    pub(crate) strategy: Arc<dyn Strategy>,
    /// Source of objects that are computed rather than stored, such as metrics.
    pub(crate) source: Option<Arc<dyn Source>>,
    /// Version of a custom resource; `None` for a built-in one. Each object is stored in the version that was the
    /// storage version when it was written. So no version is `stored`, and each read converts.
    pub(crate) custom: Option<Arc<Version>>,
}

/// Group and plural name of a resource, the prefix of its objects' keys in the store, such as `apps/deployments` or
/// `/pods`. All versions of a resource have the same prefix.
pub(crate) type ResourcePrefix = Arc<str>;

impl ResourceType {
    /// Returns the group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        &self.gvk.group
    }

    /// Returns the version within the group.
    pub(crate) fn version(&self) -> &str {
        &self.gvk.version
    }

    /// Returns the kind of the objects.
    pub(crate) fn kind(&self) -> &str {
        &self.gvk.kind
    }

    /// Returns the plural name.
    pub(crate) fn plural(&self) -> &str {
        &self.name.resource
    }

    /// Returns group and kind without the version, for messages.
    pub(crate) fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.gvk.group.clone(), kind: self.gvk.kind.clone() }
    }

    /// Returns the schema of the resource's kind or of a subresource's kind.
    pub(crate) fn schema(&self, kind: &GroupVersionKind) -> Option<Schema> {
        match &self.custom {
            Some(custom) if *kind == self.gvk => Some(custom.schema.clone()),
            _ => Schema::of(kind),
        }
    }

    /// Returns whether [`Strategy::convert_out`] must convert objects from the storage version. For custom resources,
    /// this is never the case: their decoding converts them.
    pub(crate) fn converts(&self) -> bool {
        !self.stored && self.custom.is_none()
    }

    /// Returns the message of the `Warning` header if this version is deprecated.
    pub(crate) fn deprecation(&self) -> Option<Box<str>> {
        match &self.custom {
            Some(custom) => custom.deprecation.clone(),
            None => evenkeel_kinds::warnings::deprecation_warning(self.group(), self.kind())
                .map(Into::into),
        }
    }

    /// Returns the subresource with this name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| &*s.name == name)
    }
}

impl fmt::Debug for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version, self.name.resource)
    }
}

/// Returns the key of an object in its collection.
pub(crate) fn key(resource: &ResourceType, namespace: &str, name: &str) -> String {
    if resource.namespaced {
        let mut key = String::with_capacity(namespace.len() + 1 + name.len());
        key.push_str(namespace);
        key.push('/');
        key.push_str(name);
        key
    } else {
        name.to_owned()
    }
}
