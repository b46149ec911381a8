//! Kinds and resources with their group and version. Upstream: `runtime/schema/group_version.go`.

use std::fmt;
use std::sync::Arc;

/// A resource without its version, as messages print it: `deployments.apps`, `pods`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Plural name of the resource in lower case, such as `pods`.
    pub resource: Arc<str>,
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// A kind without its version, as messages print it: `Deployment.apps`, `Pod`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Kind in CamelCase, such as `Pod`.
    pub kind: Arc<str>,
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// A kind with its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Version, such as `v1beta1`.
    pub version: Arc<str>,
    /// Kind in CamelCase, such as `Pod`.
    pub kind: Arc<str>,
}

impl GroupVersionKind {
    /// Returns the apiVersion: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for GroupVersionKind {
    /// Formats the kind as Go does in messages: `apps/v1, Kind=Deployment`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}
