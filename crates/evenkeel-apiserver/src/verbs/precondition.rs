//! Failed preconditions of writes, with the text of upstream's storage.

use crate::etcd_layout::special_path;
use crate::resource::{GroupResource, ResourceType, key};
use evenkeel_apimachinery::status::StatusError;

/// Object with a failed precondition.
pub(super) struct Precondition<'a> {
    /// Resource in the storage version.
    pub(super) resource: &'a ResourceType,
    /// Name of the resource in the request's version.
    pub(super) requested: &'a GroupResource,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Whether the request was a dry run. Its error contains the key without the prefix `/registry` of etcd.
    pub(super) dry_run: bool,
}

impl Precondition<'_> {
    /// Returns the 409 for a field, `UID` or `ResourceVersion`, with another value than the expected one.
    ///
    /// Upstream: `Preconditions.Check` in `storage/interfaces.go`, `NewInvalidObjError`, `InterpretUpdateError`.
    pub(super) fn failed(&self, field: &str, expected: &str, found: &str) -> StatusError {
        let root = if self.dry_run { "" } else { "/registry" };
        let (prefix, key) =
            (etcd_prefix(self.resource), key(self.resource, self.namespace, self.name));
        let mismatch = mismatch(field, expected, found);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {root}/{prefix}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
             {mismatch}"
        );
        StatusError::conflict(self.requested, self.name, why)
    }
}

/// Returns the text of the error for a field, `UID` or `ResourceVersion`, with another value than the expected one.
///
/// Upstream: `Preconditions.Check` in `storage/interfaces.go`.
pub(super) fn mismatch(field: &str, expected: &str, found: &str) -> String {
    format!(
        "Precondition failed: {field} in precondition: {expected}, {field} in object meta: {found}"
    )
}

/// Returns the prefix under which upstream stores the objects of a resource in etcd, for error messages.
///
/// Upstream: `DefaultStorageFactory.ResourcePrefix`, `SpecialDefaultResourcePrefixes`.
fn etcd_prefix(resource: &ResourceType) -> String {
    let (group, plural) = (&*resource.name.group, &*resource.name.resource);
    if let Some(path) = special_path(&resource.resource_prefix) {
        return path.trim_start_matches('/').to_owned();
    }
    match group {
        "apiextensions.k8s.io" | "apiregistration.k8s.io" => format!("{group}/{plural}"),
        _ if resource.custom.is_some() => format!("{group}/{plural}"),
        _ => plural.to_owned(),
    }
}
