//! Failed preconditions of writes, with the messages of upstream's storage.

use crate::etcd_layout::path_of;
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
        let (path, key) = (path_of(self.resource), key(self.resource, self.namespace, self.name));
        let mismatch = mismatch(field, expected, found);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {root}{path}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
             {mismatch}"
        );
        StatusError::conflict(self.requested, self.name, why)
    }
}

/// Returns the error message for a field, `UID` or `ResourceVersion`, with another value than the expected one.
///
/// Upstream: `Preconditions.Check` in `storage/interfaces.go`.
pub(super) fn mismatch(field: &str, expected: &str, found: &str) -> String {
    format!(
        "Precondition failed: {field} in precondition: {expected}, {field} in object meta: {found}"
    )
}
