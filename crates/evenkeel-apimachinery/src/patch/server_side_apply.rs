//! Server-side apply of a request body.

use serde_json::{Map, Value};

use super::Patched;
use crate::decode::json::{self, Json};
use crate::decode::typed::{self, DecoderKind};
use crate::decode::{FieldValidation, decode_as, named, yaml};
use crate::group_version::GroupVersionKind;
use crate::managedfields::{self, Write};
use crate::schema::Schema;
use crate::status::StatusError;
use crate::value;

/// Implements [`super::apply`]: merges the applied fields and records their manager.
pub(super) fn apply(
    schema: &Schema,
    kind: &GroupVersionKind,
    current: Option<&Value>,
    body: &[u8],
    write: &Write<'_>,
    force: bool,
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    let (patch, duplicate_keys) = read(body)?;
    let object = managedfields::apply(schema, kind, current, &patch, write, force)?;
    // Upstream decodes managed fields of the patch before it replaces them.
    let given = patch.pointer("/metadata/managedFields").map(|given| {
        let mut object = object.clone();
        value::set(&mut object, "metadata.managedFields", given.clone());
        decode_as(DecoderKind::Unstructured, &Json::from(&object), schema).1
    });
    let (object, errors) = decode_as(DecoderKind::Unstructured, &Json::from(&object), schema);
    if let Some(error) = errors.error.or(given.and_then(|given| given.error)) {
        let text = |pointer| patch.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        return Err(StatusError::plain_internal(format!(
            "failed to convert new object ({namespace}/{name}; {kind}) to proper version: unable to convert unstructured object to {kind}: {error}"
        )));
    }
    let mut object = named(object, kind);
    if !schema.is_custom() {
        typed::null_empty(&mut object, schema.type_ref());
    }
    if let Some(current) = current {
        managedfields::keep_timestamps(current, &mut object);
    }
    Ok(Patched { object, warnings: apply_field_validation(validation, duplicate_keys)? })
}

/// Parses the applied object and finds its duplicate keys. Tries the JSON parser first, because it is faster and has
/// the same result for JSON.
pub(super) fn read(body: &[u8]) -> Result<(Value, Vec<String>), StatusError> {
    let refuse = |e: String| StatusError::bad_request(format!("error decoding patch: {e}"));
    let (value, duplicate_keys) = match json::parse(body) {
        Ok(json) => {
            let duplicate_keys = json::duplicate_keys(&json);
            (json.to_value(), duplicate_keys)
        }
        Err(_) => {
            // What begins as JSON is not converted for the audit log, and fails later.
            let stage = if body.trim_ascii_start().starts_with(b"{") {
                "decoding patch: error converting YAML to JSON"
            } else {
                "encoding patch"
            };
            let document = yaml::parse(body)
                .map_err(|e| StatusError::bad_request(format!("error {stage}: {e}")))?;
            (document.json.to_value(), document.duplicate_keys)
        }
    };
    match value {
        Value::Object(_) => Ok((value, duplicate_keys)),
        Value::Null => Ok((Value::Object(Map::new()), duplicate_keys)),
        _ => {
            let form = Json::from(&value).json_type();
            Err(refuse(format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {form} into Go value of type map[string]interface {{}}"
            )))
        }
    }
}

fn apply_field_validation(
    validation: FieldValidation,
    duplicate_keys: Vec<String>,
) -> Result<Vec<String>, StatusError> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !duplicate_keys.is_empty() => {
            Err(StatusError::bad_request(format!(
                "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                duplicate_keys.join("\n  ")
            )))
        }
        FieldValidation::Warn | FieldValidation::Strict => Ok(duplicate_keys),
    }
}
