//! Decoding of request bodies: JSON, YAML and protobuf as Go's decoders read them, with field validation.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

pub(crate) mod custom;
pub(crate) mod json;
pub(crate) mod kinds;
mod scalars;
pub(crate) mod typed;
pub(crate) mod yaml;
mod yaml_scalar;

use evenkeel_api::DecodeError;
use evenkeel_api::protobuf::{Envelope, MAGIC, Transcoder};
use serde_json::{Map, Value};

use self::json::Json;
use crate::group_version::{GroupKind, GroupVersionKind};
use crate::schema::{Schema, decode_type};
use crate::status::{FieldError, StatusError};

/// Handling of unknown and duplicate fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drops such fields without a warning.
    Ignore,
    /// Drops such fields with a warning; the default.
    #[default]
    Warn,
    /// Rejects the request.
    Strict,
}

/// A decoded body with its warnings.
#[derive(Debug)]
pub struct Decoded {
    /// The object: a `Value::Object` with `apiVersion`, `kind` and an object `metadata`, without unknown fields.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Why the object is refused nevertheless. The response has the warnings too.
    pub refusal: Option<StatusError>,
}

/// A parsed body, before its types are known.
pub(crate) struct Document<'a> {
    /// Value of the body.
    pub json: Json<'a>,
    /// Duplicate keys of a YAML body, one line each.
    pub duplicate_keys: Vec<String>,
}

/// Decodes the body of a create or an update. `expected` is the kind of the path, and `schema` its schema if it has
/// one. A body without apiVersion and kind is decoded as that kind; another kind is a 400.
pub fn object(
    schema: Option<&Schema>,
    expected: &GroupVersionKind,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let json;
    let is_protobuf = content_type.starts_with("application/vnd.kubernetes.protobuf");
    if is_protobuf {
        let error = match body.strip_prefix(MAGIC.as_slice()) {
            _ if body.is_empty() => Some("empty data"),
            None => Some(
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
            ),
            Some([]) => Some("empty body"),
            Some(_) => None,
        };
        if let Some(error) = error {
            return Err(unrecognized(expected, error, body));
        }
    }
    let (content_type, body) = if is_protobuf {
        json = from_protobuf(expected, body)?;
        ("application/json", json.as_slice())
    } else {
        (content_type, body)
    };
    match schema {
        Some(schema) => with_schema(schema, expected, content_type, body, validation),
        None => untyped(expected, content_type, body),
    }
}

/// Converts a protobuf body to JSON, which is then decoded like any other.
fn from_protobuf(expected: &GroupVersionKind, body: &[u8]) -> Result<Vec<u8>, StatusError> {
    let object = Envelope::open(body)
        .and_then(|it| Transcoder::decode_body(&it.api_version, &it.kind, it.raw))
        .map_err(|error| unrecognized(expected, &error.to_string(), body))?;
    serde_json::to_vec(&object).map_err(StatusError::internal)
}

/// Decodes like [`object`], for a kind with a schema.
pub(crate) fn with_schema(
    schema: &Schema,
    expected: &GroupVersionKind,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let unreadable = |error: String| unrecognized(expected, &error, body);
    let document = read(content_type, body).map_err(unreadable)?;
    let actual = kinds::body_kind(&document.json, expected).map_err(unreadable)?;
    let refuse = |error: &str| {
        StatusError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            actual.kind, actual.version, expected.kind
        ))
    };
    if schema.is_custom() {
        return custom_object(schema, expected, &document, content_type, body, validation);
    }
    if actual.kind != expected.kind || actual.group != expected.group {
        return Err(refuse(&kinds::conversion_error(&actual, expected)));
    }
    if actual.version != expected.version && !kinds::is_old_eviction(&actual) {
        return Err(kinds::version_error(&actual, expected)
            .map_or_else(StatusError::bad_request, |error| refuse(&error)));
    }
    let (object, errors) = decode_as(typed::DecoderKind::Text, &document.json, schema);
    if let Some(error) = errors.error {
        return Err(refuse(&error));
    }
    let warnings = apply_field_validation(validation, &document.duplicate_keys, errors.strict)
        .map_err(|e| refuse(&e))?;
    Ok(Decoded { object: named(object, expected), warnings, refusal: None })
}

/// Decodes a custom resource, whose body must have apiVersion and kind.
///
/// Upstream: `unstructuredJSONScheme`.
fn custom_object(
    schema: &Schema,
    expected: &GroupVersionKind,
    document: &Document<'_>,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let text = |name: &str| match document.json.get(name) {
        Some(Json::String(text)) => text.to_string(),
        _ => String::new(),
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        let json = if content_type.contains("yaml") {
            document.json.to_value().to_string()
        } else {
            String::from_utf8_lossy(body).into_owned()
        };
        let error = format!("Object 'Kind' is missing in '{json}'");
        return Err(unrecognized(expected, &error, body));
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let refuse = |wanted: &str, error: &str| {
        StatusError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {wanted}: {error}"
        ))
    };
    let (object, mut errors) = decode_as(typed::DecoderKind::Text, &document.json, schema);
    if let Some(error) = errors.error {
        return Err(refuse(&expected.kind, &error));
    }
    if kind != *expected.kind {
        // Upstream prunes objects of the resource's kind only. The metadata has the same fields in all kinds.
        errors.strict.retain(|error| {
            let field = error.strip_prefix("unknown field \"");
            field.is_none_or(|field| field.starts_with("metadata."))
        });
    }
    // The strict decoder has already set the kind of the object that it decodes to.
    let warnings = apply_field_validation(validation, &document.duplicate_keys, errors.strict)
        .map_err(|error| refuse(&kind, &error))?;
    let mut refusal = None;
    if api_version != expected.api_version() {
        refusal = Some(StatusError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            expected.api_version()
        )));
    } else if kind != *expected.kind {
        let detail = format!("must be {}", expected.kind);
        let error = FieldError::invalid("kind", kind.as_str(), detail);
        let kind = GroupKind { group: expected.group.clone(), kind: kind.into() };
        let name = crate::value::text(&object, "metadata.name");
        refusal = Some(StatusError::invalid(&kind, name, &[error]));
    }
    Ok(Decoded { object: named(object, expected), warnings, refusal })
}

/// Applies field validation to unknown and duplicate fields. Returns the warnings, or an error message.
pub(crate) fn apply_field_validation(
    validation: FieldValidation,
    duplicate_keys: &[String],
    strict: Vec<String>,
) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(duplicate_keys.iter().cloned().chain(strict).collect()),
        FieldValidation::Strict => {
            let mut errors = strict;
            if !duplicate_keys.is_empty() {
                errors.insert(
                    0,
                    format!("yaml: unmarshal errors:\n  {}", duplicate_keys.join("\n  ")),
                );
            }
            if errors.is_empty() {
                Ok(Vec::new())
            } else {
                Err(format!("strict decoding error: {}", errors.join(", ")))
            }
        }
    }
}

/// Parses a body by its media type. Errors have upstream's message.
pub(crate) fn read<'a>(content_type: &str, body: &'a [u8]) -> Result<Document<'a>, String> {
    if content_type.contains("yaml") {
        let document = yaml::parse(body)?;
        return Ok(Document { json: document.json, duplicate_keys: document.duplicate_keys });
    }
    let json = json::parse(body)
        .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
    Ok(Document { json, duplicate_keys: Vec::new() })
}

/// Decodes a value as an object of a kind: a built-in one by its Go types, a custom one by pruning.
pub(crate) fn decode_as(
    decoder: typed::DecoderKind,
    json: &Json<'_>,
    schema: &Schema,
) -> (Value, typed::DecodeErrors) {
    if schema.is_custom() {
        custom::decode(json, schema.type_ref())
    } else {
        typed::decode_from(decoder, json, schema.type_ref())
    }
}

/// Decodes an object of a kind without a schema: any JSON object.
fn untyped(
    expected: &GroupVersionKind,
    content_type: &str,
    body: &[u8],
) -> Result<Decoded, StatusError> {
    let document = read(content_type, body).map_err(|e| unrecognized(expected, &e, body))?;
    Ok(Decoded {
        object: named(document.json.to_value(), expected),
        warnings: document.duplicate_keys,
        refusal: None,
    })
}

/// Sets apiVersion and kind, and an empty metadata if the object has none.
pub(crate) fn named(object: Value, expected: &GroupVersionKind) -> Value {
    let mut map = match object {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    map.insert("apiVersion".into(), expected.api_version().into());
    map.insert("kind".into(), (*expected.kind).into());
    map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    Value::Object(map)
}

/// Returns the 400 for a body that cannot be decoded.
fn unrecognized(expected: &GroupVersionKind, error: &str, body: &[u8]) -> StatusError {
    let summary = summary(body);
    StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {error} ({summary})",
        expected.kind
    ))
}

/// Returns the first 30 bytes of a body: as a string if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    let start = body.get(..30).unwrap_or(body);
    let text = match start.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|b| format!("{b:02x}")).collect(),
    };
    if body.len() > start.len() { format!("{text} ...") } else { text }
}

/// Parses a configuration file in YAML or JSON. Duplicate keys are an error.
pub fn file(text: &[u8]) -> Result<Value, String> {
    let document = yaml::parse(text)?;
    apply_field_validation(FieldValidation::Strict, &document.duplicate_keys, Vec::new())?;
    Ok(document.json.to_value())
}

/// Parses JSON with the errors of Go's decoder.
pub fn json_value(text: &[u8]) -> Result<Value, String> {
    json::parse(text).map(|json| json.to_value())
}

/// Checks that `text` is a JSON object or null, with the errors of Go's decoder of maps.
pub fn json_object(text: &[u8]) -> Result<(), String> {
    match json::parse(text)? {
        Json::Object(_) | Json::Null => Ok(()),
        other => {
            let form = other.json_type();
            Err(format!(
                "json: cannot unmarshal {form} into Go value of type map[string]interface {{}}"
            ))
        }
    }
}

/// Parses the body of a DELETE, `DeleteOptions` in JSON, YAML or protobuf. The caller drops unknown fields.
pub fn options(body: &[u8], content_type: &str) -> Result<Value, StatusError> {
    if body.starts_with(MAGIC.as_slice()) {
        return options_from_protobuf(body)
            .map_err(|error| StatusError::bad_request(error.to_string()));
    }
    let document = read(content_type, body).map_err(StatusError::bad_request)?;
    let expected = GroupVersionKind {
        group: "meta.k8s.io".into(),
        version: "v1".into(),
        kind: "DeleteOptions".into(),
    };
    kinds::body_kind(&document.json, &expected).map_err(StatusError::bad_request)?;
    decode_type(DELETE_OPTIONS, &document.json).map_err(StatusError::bad_request)
}

/// Name of the options' type in the OpenAPI document.
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Decodes `DeleteOptions` by kind alone, because every API group has them.
fn options_from_protobuf(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = Envelope::open(body)?;
    let mut options = Transcoder::decode_body("v1", &envelope.kind, envelope.raw)?;
    crate::value::set(&mut options, "apiVersion", &*envelope.api_version);
    Ok(options)
}
