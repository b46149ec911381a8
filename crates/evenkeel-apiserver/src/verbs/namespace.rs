//! Admission of creations in namespaces, and deletion of namespaces.

use serde_json::Value;

use super::delete_options::Preconditions;
use super::meta;
use crate::admission::plugins::Plugin;
use crate::request::RequestContext;
use crate::resource::{GroupResource, ResourceType};
use crate::store::Entry;
use evenkeel_apimachinery::status::StatusError;

/// Namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses to create an object in a namespace that does not exist or is being deleted.
pub(super) fn admit_create(request: &RequestContext<'_>, name: &str) -> Result<(), StatusError> {
    let namespace = request.target.namespace;
    let is_enabled = request.api.plugins.has(Plugin::NamespaceLifecycle);
    if !is_enabled || namespace.is_empty() || !request.resource().namespaced {
        return Ok(());
    }
    let Some(entry) = request.api.store.get("/namespaces", namespace) else {
        let namespaces = GroupResource { group: "".into(), resource: "namespaces".into() };
        return Err(StatusError::not_found(&namespaces, namespace));
    };
    // Search the bytes before decoding, because few namespaces have a deletion timestamp.
    const DELETION_TIMESTAMP: &[u8] = b"\"deletionTimestamp\"";
    if !entry.json().windows(DELETION_TIMESTAMP.len()).any(|bytes| bytes == DELETION_TIMESTAMP) {
        return Ok(());
    }
    let object = entry.decode().map_err(StatusError::internal)?;
    if !meta::is_being_deleted(&object) {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    Err(StatusError::forbidden(&request.resource().name, name, why).cause(
        "NamespaceTerminating",
        format!("namespace {namespace} is being terminated"),
        "metadata.namespace",
    ))
}

/// Refuses to delete the protected namespaces.
pub(super) fn admit_delete(request: &RequestContext<'_>) -> Result<(), StatusError> {
    let is_enabled = request.api.plugins.has(Plugin::NamespaceLifecycle);
    if !is_enabled
        || &*request.resource().resource_prefix != "/namespaces"
        || !PROTECTED_NAMESPACES.contains(&request.target.name)
    {
        return Ok(());
    }
    Err(StatusError::forbidden(
        &request.resource().name,
        request.target.name,
        "this namespace may not be deleted",
    ))
}

/// Refuses a deletion whose preconditions the stored namespace does not satisfy.
///
/// Upstream: `REST.Delete` of `pkg/registry/core/namespace/storage`.
pub(super) fn check_preconditions(
    stored: &ResourceType,
    entry: &Entry,
    object: &Value,
    name: &str,
    preconditions: &Preconditions,
) -> Result<(), StatusError> {
    let version = entry.revision.to_string();
    for (field, expected, found) in [
        ("UID", &preconditions.uid, meta::text(object, "uid")),
        ("ResourceVersion", &preconditions.resource_version, &*version),
    ] {
        if let Some(expected) = expected.as_deref().filter(|expected| *expected != found) {
            let why = format!(
                "Precondition failed: {field} in precondition: {expected}, {field} in object meta: {found}"
            );
            return Err(StatusError::conflict(&stored.name, name, why));
        }
    }
    Ok(())
}

/// Returns whether no finalizers remain in the namespace's `spec`.
pub(super) fn is_finalized(object: &Value) -> bool {
    object.pointer("/spec/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty)
}

/// Marks a namespace as terminating. Returns false if it already is.
pub(super) fn mark_terminating(object: &mut Value, now: &str) -> bool {
    if meta::is_being_deleted(object) {
        return false;
    }
    meta::set(object, "deletionTimestamp", now);
    if let Some(map) = object.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| serde_json::json!({}));
        status["phase"] = Value::from("Terminating");
    }
    true
}
