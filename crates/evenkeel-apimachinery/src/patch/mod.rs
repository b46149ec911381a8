//! Patches: JSON, merge, strategic merge and server-side apply, each with its managed fields.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

mod json_patch;
mod merge_patch;
mod ordering;
mod patched_text;
mod patcher;
#[cfg(test)]
mod recorded;
mod server_side_apply;
mod strategic;

use jiff::Timestamp;
use serde_json::Value;

use crate::decode::json::Json;
use crate::decode::{FieldValidation, decode_as, named, typed};
use crate::depth;
use crate::group_version::GroupVersionKind;
use crate::managedfields;
use crate::schema::Schema;
use crate::status::StatusError;

/// Types of patches, each with its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// List of operations (RFC 6902): `application/json-patch+json`.
    Json,
    /// Partial object (RFC 7386): `application/merge-patch+json`.
    Merge,
    /// Partial object whose lists merge by key: `application/strategic-merge-patch+json`.
    Strategic,
    /// Server-side apply: `application/apply-patch+yaml`.
    Apply,
}

/// A patched object with its warnings.
#[derive(Debug)]
pub struct Patched {
    /// Object after the patch, in the version of the request.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Field manager and time of a write, as `managedFields` records them.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Query parameter `fieldManager`, or a name from the user agent.
    pub manager: &'a str,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Time for new and changed entries of `managedFields`.
    pub now: Timestamp,
}

impl<'a> Writer<'a> {
    fn write(&self) -> managedfields::Write<'a> {
        managedfields::Write { manager: self.manager, subresource: self.subresource, now: self.now }
    }
}

/// Applies a JSON, merge or strategic merge patch to `current`, which is in the request's version.
pub fn patch(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    form: PatchType,
    current: &Value,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    patcher::patch(kind, schema, form, current, body, validation)
}

/// Refuses a body that is not JSON, or not YAML for an apply. Upstream does so before it looks for the object.
///
/// Upstream: `validateAndTranscodePatch`.
pub fn check_syntax(form: PatchType, body: &[u8]) -> Result<(), StatusError> {
    match form {
        PatchType::Apply => server_side_apply::read(body).map(drop),
        _ => patcher::parse(body).map(drop),
    }
}

/// Applies `body` to `current` (`None` creates the object) and returns the merged object with its `managedFields`.
pub fn apply(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    current: Option<&Value>,
    body: &[u8],
    writer: &Writer<'_>,
    force: bool,
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    let Some(schema) = schema else {
        return Err(StatusError::plain_internal(format!("no corresponding type for {kind}")));
    };
    server_side_apply::apply(schema, kind, current, body, &writer.write(), force, validation)
}

/// Applies the operations of a JSON patch to an object; `None` if an operation is not applicable.
///
/// # Errors
/// Fails if the object would become too large or too deep.
pub fn apply_json_patch(object: &Value, operations: &Value) -> Result<Option<Value>, String> {
    let mut object = object.clone();
    match json_patch::apply(&mut object, &Json::from(operations)) {
        Ok(()) => Ok(Some(object)),
        Err(json_patch::PatchError::NotApplicable) => Ok(None),
        Err(refused) => Err(format!("failed to apply patch: {refused}")),
    }
}

/// Decodes an object again as its kind, to drop unknown fields.
pub fn decode_again(schema: &Schema, kind: &GroupVersionKind, object: &Value) -> Value {
    let (read, errors) = decode_as(typed::DecoderKind::Unstructured, &Json::from(object), schema);
    if errors.error.is_some() { object.clone() } else { named(read, kind) }
}

/// Merges an apply configuration into an object. The schema determines how lists merge.
pub fn apply_configuration(
    schema: Option<&Schema>,
    object: &Value,
    configuration: Value,
) -> Result<Value, String> {
    // A merge does not nest deeper than both of its inputs.
    depth::check(&configuration).map_err(|error| format!("error applying patch: {error}"))?;
    let mut merged = object.clone();
    match (object, configuration, schema.filter(|schema| !schema.is_custom())) {
        (Value::Object(current), Value::Object(patch), Some(schema)) => {
            strategic::apply(current.clone(), patch, Some(schema.type_ref()))
                .map(Value::Object)
                .map_err(|_| "error applying patch".to_owned())
        }
        (_, patch, _) => {
            merge_patch::apply(&mut merged, patch);
            Ok(merged)
        }
    }
}

/// Sets the managed fields of an object's Scale to the managers of its replicas. `path` is the replicas' field in
/// the object.
pub fn set_scale_managers(object: &Value, path: &[&str], scale: &mut Value) {
    managedfields::to_subresource(
        object,
        &elements(path).iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .encode(scale);
}

/// After a write of a Scale, sets the managed fields of its object `new`, of kind `kind`, from the managed fields of
/// the Scale.
pub fn set_parent_managers(
    kind: &GroupVersionKind,
    old: &Value,
    path: &[&str],
    scale: &Value,
    new: &mut Value,
) {
    let path = elements(path);
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    managedfields::to_parent(old, scale, &kind.api_version(), &path).encode(new);
}

fn elements(path: &[&str]) -> Vec<String> {
    path.iter().map(|name| format!("f:{name}")).collect()
}

/// Converts an object to its storage form: empty lists and maps without `omitempty` become null.
pub fn null_empty(schema: Option<&Schema>, object: &mut Value) {
    if let Some(schema) = schema.filter(|schema| !schema.is_custom()) {
        typed::null_empty(object, schema.type_ref());
    }
}

/// Returns whether all values of an object have the types that its schema declares.
pub fn is_typed(schema: Option<&Schema>, object: &Value) -> bool {
    schema.is_none_or(|schema| managedfields::is_typed(object, schema.type_ref()))
}

/// Updates `managedFields` of `new` after a create or an update. `old` is the stored object, `None` on create.
///
/// Also converts the object to its storage form: empty lists and maps without `omitempty` become null. If only
/// timestamps of `managedFields` would change, `new` keeps the timestamps of `old`.
pub fn update_managed_fields(
    schema: Option<&Schema>,
    old: Option<&Value>,
    new: &mut Value,
    writer: &Writer<'_>,
) {
    update_managed_fields_if(schema, old, new, writer, true);
}

/// Updates `managedFields` like [`update_managed_fields`], but keeps the managers if `sent_typed` is false: the client
/// sent values of a wrong type, in fields that this request does not change.
pub fn update_managed_fields_if(
    schema: Option<&Schema>,
    old: Option<&Value>,
    new: &mut Value,
    writer: &Writer<'_>,
    sent_typed: bool,
) {
    let Some(schema) = schema else { return };
    managedfields::update_managed_fields(schema, old, new, &writer.write(), sent_typed);
    null_empty(Some(schema), new);
    if let Some(old) = old {
        managedfields::keep_timestamps(old, new);
    }
}
