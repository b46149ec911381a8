//! Patches: JSON, merge, strategic merge and server-side apply, and who manages which field.

mod applied;
mod go_text;
mod json_patch;
mod merge_patch;
mod ordering;
mod patched;
#[cfg(test)]
mod recorded;
mod strategic;

use jiff::Timestamp;
use serde_json::Value;

use crate::decode::json::Json;
use crate::decode::{FieldValidation, named, read_as, typed};
use crate::depth;
use crate::group_version::GroupVersionKind;
use crate::managed;
use crate::schema::Schema;
use crate::status::StatusError;

/// The media types of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`.
    Apply,
}

/// A patch that was made.
#[derive(Debug)]
pub struct Patched {
    /// The object after it, in the version of the request.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Who writes, as `managedFields` has it.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// `fieldManager`, or what the user agent gives.
    pub manager: &'a str,
    /// Sub-resource, empty for the object itself.
    pub subresource: &'a str,
    /// Time that a new or changed entry of `managedFields` gets.
    pub now: Timestamp,
}

impl<'a> Writer<'a> {
    fn write(&self) -> managed::Write<'a> {
        managed::Write { manager: self.manager, subresource: self.subresource, now: self.now }
    }
}

/// Applies a JSON, merge or strategic merge patch to `current` (in the version of the request).
pub fn patch(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    form: PatchType,
    current: &Value,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    patched::patch(kind, schema, form, current, body, validation)
}

/// Server-side apply of `body` to `current` (none: the object is made): the merged object with its `managedFields`.
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
    applied::apply(schema, kind, current, body, &writer.write(), force, validation)
}

/// An object after the operations of a JSON patch; `None` where one of them cannot be done.
///
/// # Errors
/// Why the object would become too large or too deep.
pub fn by_operations(object: &Value, operations: &Value) -> Result<Option<Value>, String> {
    let mut object = object.clone();
    match json_patch::apply(&mut object, &Json::from(operations)) {
        Ok(()) => Ok(Some(object)),
        Err(json_patch::Refused::NotApplicable) => Ok(None),
        Err(refused) => Err(format!("failed to apply patch: {refused}")),
    }
}

/// An object read again as its kind: without what that does not know.
pub fn reread(schema: &Schema, kind: &GroupVersionKind, object: &Value) -> Value {
    let (read, findings) = read_as(typed::Source::Tree, &Json::from(object), schema);
    if findings.error.is_some() { object.clone() } else { named(read, kind) }
}

/// An object merged with a configuration, list by list as their schema has it.
pub fn by_configuration(
    schema: Option<&Schema>,
    object: &Value,
    configuration: Value,
) -> Result<Value, String> {
    // What is merged is no deeper than what it is merged of.
    depth::check(&configuration).map_err(|error| format!("error applying patch: {error}"))?;
    let mut merged = object.clone();
    match (object, configuration, schema.filter(|schema| !schema.is_custom())) {
        (Value::Object(current), Value::Object(change), Some(schema)) => {
            strategic::apply(current.clone(), change, Some(schema.at()))
                .map(Value::Object)
                .map_err(|_| "error applying patch".to_owned())
        }
        (_, change, _) => {
            merge_patch::apply(&mut merged, change);
            Ok(merged)
        }
    }
}

/// The `scale` view of an object with the managers of its replicas. `path` is the field of the replicas in the object.
pub fn show_managers(object: &Value, path: &[&str], view: &mut Value) {
    managed::view(object, &elements(path).iter().map(String::as_str).collect::<Vec<_>>())
        .write(view);
}

/// Sets the managers of `new`, an object of `kind` that was written through its `scale` view, from those that the view then had.
pub fn settle_managers(
    kind: &GroupVersionKind,
    old: &Value,
    path: &[&str],
    view: &Value,
    new: &mut Value,
) {
    let path = elements(path);
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    managed::settle(old, view, &kind.api_version(), &path).write(new);
}

fn elements(path: &[&str]) -> Vec<String> {
    path.iter().map(|name| format!("f:{name}")).collect()
}

/// Brings `managedFields` of `new` up to date after a write that was no apply. `old` is the stored object, none on create.
/// From here on the object is as storage has it: empty lists and maps are null, where they are not left out.
/// When nothing but times of `managedFields` would change, `new` is left with those of `old`.
pub fn track(schema: Option<&Schema>, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let Some(schema) = schema else { return };
    managed::track(schema, old, new, &writer.write());
    if !schema.is_custom() {
        typed::forget_empty(new, schema.at());
    }
    if let Some(old) = old {
        managed::keep_times(old, new);
    }
}
