//! Request bodies into objects: JSON and YAML as Go's decoders read them, with field validation.

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
use crate::group_version::GroupVersionKind;
use crate::schema::Schema;
use crate::status::StatusError;

/// What to do about unknown and repeated fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
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
pub struct Decoded {
    /// The object; a `Value::Object` with `apiVersion`, `kind` and `metadata` (an object) set, unknown fields dropped.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// A body before its types are known.
pub(crate) struct Document<'a> {
    /// The body's value.
    pub json: Json<'a>,
    /// Keys that YAML had twice, one line each.
    pub repeated: Vec<String>,
}

/// Reads the body of a create or an update. `expected` is the kind that the path stands for, `schema` its schema where it
/// has one; a body without apiVersion and kind is taken to be of it, another kind is a 400.
pub fn object(
    schema: Option<&Schema>,
    expected: &GroupVersionKind,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let json;
    let (content_type, body) = if body.starts_with(MAGIC.as_slice()) {
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

/// The JSON of a protobuf body, which is then read as any other.
fn from_protobuf(expected: &GroupVersionKind, body: &[u8]) -> Result<Vec<u8>, StatusError> {
    let object = Transcoder::decode_envelope(body)
        .map_err(|error| unrecognized(expected, &error.to_string(), body))?;
    serde_json::to_vec(&object).map_err(StatusError::internal)
}

/// [`object`] for a schema at hand.
pub(crate) fn with_schema(
    schema: &Schema,
    expected: &GroupVersionKind,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let unreadable = |error: String| unrecognized(expected, &error, body);
    let document = read(content_type, body).map_err(unreadable)?;
    let given = kinds::given(&document.json, expected).map_err(unreadable)?;
    let refuse = |error: &str| {
        StatusError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            given.kind, given.version, expected.kind
        ))
    };
    if given.kind != expected.kind || given.group != expected.group {
        return Err(refuse(&kinds::mismatch(&given, expected)));
    }
    if given.version != expected.version {
        return Err(kinds::other_version(&given, expected)
            .map_or_else(StatusError::bad_request, |error| refuse(&error)));
    }
    let (object, findings) = read_as(typed::Source::Text, &document.json, schema);
    if let Some(error) = findings.error {
        return Err(refuse(&error));
    }
    let warnings =
        judge(validation, &document.repeated, findings.strict).map_err(|e| refuse(&e))?;
    Ok(Decoded { object: named(object, expected), warnings })
}

/// What field validation makes of a body's problems: warnings, or the text of a refusal.
pub(crate) fn judge(
    validation: FieldValidation,
    repeated: &[String],
    strict: Vec<String>,
) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(repeated.iter().cloned().chain(strict).collect()),
        FieldValidation::Strict => {
            let mut all = strict;
            if !repeated.is_empty() {
                all.insert(0, format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  ")));
            }
            if all.is_empty() {
                Ok(all)
            } else {
                Err(format!("strict decoding error: {}", all.join(", ")))
            }
        }
    }
}

/// Reads a body by its media type; errors are worded as the readers upstream word them.
pub(crate) fn read<'a>(content_type: &str, body: &'a [u8]) -> Result<Document<'a>, String> {
    if content_type.contains("yaml") {
        let document = yaml::parse(body)?;
        return Ok(Document { json: document.json, repeated: document.repeated });
    }
    let json = json::parse(body)
        .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
    Ok(Document { json, repeated: Vec::new() })
}

/// Reads a value as an object of a kind: a built-in one as Go does, a custom one as it is but for what its schema does not know.
pub(crate) fn read_as(
    source: typed::Source,
    json: &Json<'_>,
    schema: &Schema,
) -> (Value, typed::Findings) {
    if schema.is_custom() {
        custom::decode(json, schema.at())
    } else {
        typed::decode_from(source, json, schema.at())
    }
}

/// A kind that no schema is known of: JSON as it is.
fn untyped(
    expected: &GroupVersionKind,
    content_type: &str,
    body: &[u8],
) -> Result<Decoded, StatusError> {
    let document = read(content_type, body).map_err(|e| unrecognized(expected, &e, body))?;
    Ok(Decoded { object: named(document.json.to_value(), expected), warnings: document.repeated })
}

/// With apiVersion and kind, and metadata when it has none.
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

/// 400 of a body that is no object of any kind.
fn unrecognized(expected: &GroupVersionKind, error: &str, body: &[u8]) -> StatusError {
    let summary = summary(body);
    StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {error} ({summary})",
        expected.kind
    ))
}

/// The start of a body: as text when it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    let start = &body[..body.len().min(30)];
    let text = match start.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|b| format!("{b:02x}")).collect(),
    };
    if body.len() > start.len() { format!("{text} ...") } else { text }
}

/// Reads the body of a DELETE as a tree: JSON, YAML or protobuf `DeleteOptions`; unknown fields are dropped later.
pub fn options(body: &[u8], content_type: &str) -> Result<Value, StatusError> {
    if body.starts_with(MAGIC.as_slice()) {
        return options_from_protobuf(body)
            .map_err(|error| StatusError::bad_request(error.to_string()));
    }
    let document = read(content_type, body).map_err(StatusError::bad_request)?;
    Ok(document.json.to_value())
}

/// Options are of every group, so they are read by kind, whichever version a client names beside it.
fn options_from_protobuf(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = Envelope::open(body)?;
    let mut options = Transcoder::decode("v1", &envelope.kind, envelope.raw)?;
    options["apiVersion"] = (&*envelope.api_version).into();
    Ok(options)
}
