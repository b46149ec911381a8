//! Decoding of custom resources: unknown fields are pruned, other fields are kept unchanged, and metadata is typed.

use serde_json::Value;

use super::json::{self, Json};
use super::typed::{self, DecodeErrors};
use crate::schema::node::{Rest, Shape, TypeRef};
use crate::status::FieldError;

/// Decodes a custom resource. Only metadata is decoded by its Go types. Validation refuses other values of a wrong
/// type.
pub(super) fn decode(body: &Json<'_>, type_ref: TypeRef<'_>) -> (Value, DecodeErrors) {
    let mut errors = DecodeErrors { strict: json::duplicate_keys(body), error: None };
    let mut value = to_stored_value(body, &mut errors);
    let mut embedded = Vec::new();
    prune(&mut value, type_ref, &mut String::new(), &mut errors, &mut embedded);
    errors.strict.append(&mut embedded);
    (value, errors)
}

/// Converts a value to the form that storage returns, which may change its numbers. The last of duplicate keys wins.
fn to_stored_value(body: &Json<'_>, errors: &mut DecodeErrors) -> Value {
    match body {
        Json::Number(text) => number(text).unwrap_or_else(|| {
            errors.error.get_or_insert_with(|| {
                format!("json: cannot unmarshal number {text} into Go value of type float64")
            });
            Value::Null
        }),
        Json::Array(items) => items.iter().map(|item| to_stored_value(item, errors)).collect(),
        Json::Object(entries) => Value::Object(
            entries
                .iter()
                .map(|(key, value)| (key.clone().into_owned(), to_stored_value(value, errors)))
                .collect(),
        ),
        other => other.to_value(),
    }
}

/// Converts a number to the form that storage returns: an integral float becomes an integer, and an integer out of
/// range becomes a float. `None` if it is out of range for both.
fn number(text: &str) -> Option<Value> {
    let value = json::number(text);
    let number = value.as_f64().filter(|number| number.is_finite())?;
    // Above this limit, floats do not represent every integer.
    const MAX_EXACT_INTEGER: f64 = 9.0e15;
    if value.is_f64() && number.fract() == 0.0 && number.abs() < MAX_EXACT_INTEGER {
        return Some(Value::from(number as i64));
    }
    Some(value)
}

/// Prunes fields that the schema does not specify. `path` is the path of `value`; it is unchanged on return. Adds
/// unknown fields in the metadata of embedded objects to `embedded`, because they are reported after all other fields.
fn prune(
    value: &mut Value,
    type_ref: TypeRef<'_>,
    path: &mut String,
    errors: &mut DecodeErrors,
    embedded: &mut Vec<String>,
) {
    let length = path.len();
    match (type_ref.shape(), value) {
        (Shape::Struct(s), Value::Object(entries)) => {
            entries.retain(|key, value| {
                enter(path, key);
                let kept = match (s.field(key), s.rest) {
                    (Some(field), _) if s.embedded && key == "metadata" => {
                        *value =
                            decode_metadata(value, type_ref.to(field.node), path, errors, embedded);
                        true
                    }
                    (Some(field), _) => {
                        prune(value, type_ref.to(field.node), path, errors, embedded);
                        true
                    }
                    (None, Rest::Keep) => true,
                    (None, Rest::Typed(id)) => {
                        prune(value, type_ref.to(id), path, errors, embedded);
                        true
                    }
                    (None, Rest::Drop | Rest::DropInPreserved) => false,
                };
                if !kept && typed::is_reported(&errors.strict) {
                    errors.strict.push(format!("unknown field {}", typed::quoted(path)));
                }
                path.truncate(length);
                kept
            });
        }
        (Shape::Map { value: value_type, .. }, Value::Object(entries)) => {
            for (key, value) in entries {
                enter(path, key);
                prune(value, type_ref.to(*value_type), path, errors, embedded);
                path.truncate(length);
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            for (i, value) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{i}]"));
                prune(value, type_ref.to(*item), path, errors, embedded);
                path.truncate(length);
            }
        }
        (Shape::Any | Shape::Raw, _) => {}
        (_, value) => prune_all(value, path, errors),
    }
}

/// Prunes all fields of a value whose type differs from the schema's, because the schema specifies none of them.
fn prune_all(value: &mut Value, path: &mut String, errors: &mut DecodeErrors) {
    let length = path.len();
    match value {
        Value::Object(entries) => {
            for (key, _) in std::mem::take(entries) {
                enter(path, &key);
                if typed::is_reported(&errors.strict) {
                    errors.strict.push(format!("unknown field {}", typed::quoted(path)));
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (i, value) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{i}]"));
                prune_all(value, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Adds a field or a key to the path.
fn enter(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

/// Decodes `metadata` by its Go type. `path` is its path in the object, for error messages.
fn decode_metadata(
    value: &Value,
    type_ref: TypeRef<'_>,
    path: &str,
    errors: &mut DecodeErrors,
    embedded: &mut Vec<String>,
) -> Value {
    let (metadata, metadata_errors) = typed::decode(&Json::from(value), type_ref);
    // The errors have a path within the metadata, in quotes: `unknown field "x"`.
    let with_full_path = |error: String| match error.split_once('"') {
        Some((before, rest)) => format!("{before}\"{path}.{rest}"),
        None => error,
    };
    let strict = metadata_errors.strict.into_iter().map(with_full_path);
    if path == "metadata" {
        errors.strict.extend(strict);
        errors.error = errors.error.take().or(metadata_errors.error);
        return metadata;
    }
    embedded.extend(strict);
    let error = metadata_errors
        .error
        .map(|error| FieldError::invalid(path, value.clone(), error).to_string());
    errors.error = errors.error.take().or(error);
    metadata
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::group_version::GroupVersionKind;
    use crate::schema::Schema;

    fn widget() -> Schema {
        let kind = GroupVersionKind {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Widget".into(),
        };
        let text = json!({"type": "string"});
        let port = json!({"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string", "default": "p"}}});
        let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "default": 1}, "free": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}, "labels": {"type": "object", "additionalProperties": text},
            "ports": {"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"]}}});
        Schema::custom(&kind, &json!({"type": "object", "properties": {"spec": spec}}), false)
    }

    #[test]
    fn fields_that_the_schema_lacks_are_pruned_and_reported() {
        let schema = widget();
        let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "nope": 1}, "x": 1,
            "spec": {"size": "big", "y": 2, "free": {"z": 3}, "labels": {"a": "b"}, "ports": [{"port": 80, "w": 4}]}});
        let (value, errors) = decode(&Json::from(&body), schema.type_ref());
        let want = ["metadata.nope", "spec.ports[0].w", "spec.y", "x"]
            .map(|f| format!("unknown field \"{f}\""));
        assert_eq!(errors.strict, want);
        let want = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"size": "big", "free": {"z": 3}, "labels": {"a": "b"}, "ports": [{"port": 80}]}});
        assert_eq!(value, want);
    }
    #[test]
    fn numbers_out_of_range_of_float64_are_refused() {
        let schema = widget();
        for (number, error) in [
            ("1e300", None),
            ("1e400", Some("json: cannot unmarshal number 1e400 into Go value of type float64")),
        ] {
            let text = format!(r#"{{"kind":"Widget","spec":{{"free":{{"n":{number}}}}}}}"#);
            let body = json::parse(text.as_bytes()).expect("JSON");
            let (_, errors) = decode(&body, schema.type_ref());
            assert_eq!(errors.error.as_deref(), error, "{number}");
        }
    }
}
