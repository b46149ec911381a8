//! Request bodies into objects: JSON, YAML and protobuf, with field validation.

use serde_json::Value;

use crate::resource::{GroupVersionKind, ResourceType};
use crate::status::StatusError;

/// What to do about unknown and repeated fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn; the default.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// A body that was read.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The object; a `Value::Object` with `apiVersion`, `kind` and `metadata` (an object) set, unknown fields dropped.
    pub(crate) object: Value,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

/// Reads the body of a create or an update of `resource` (or one of its parts). `expected` is the kind that the path stands for;
/// a body without apiVersion and kind is taken to be of it, another kind is a 400.
pub(crate) fn object(
    _resource: &ResourceType,
    expected: &GroupVersionKind,
    _content_type: &str,
    body: &[u8],
    _validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let mut object: Value = serde_json::from_slice(body).map_err(|error| {
        StatusError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            expected.kind, expected.version, expected.kind
        ))
    })?;
    if let Some(map) = object.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| Value::from(expected.api_version()));
        map.entry("kind").or_insert_with(|| Value::from(&*expected.kind));
        map.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    Ok(Decoded { object, warnings: Vec::new() })
}
