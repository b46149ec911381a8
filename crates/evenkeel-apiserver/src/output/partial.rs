//! PartialObjectMetadata: an object's metadata, copied without decoding.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::stored::parse;
use evenkeel_apimachinery::status::StatusError;

/// Kind of an object's metadata alone.
pub(super) const KIND: &str = "PartialObjectMetadata";

/// The `metadata` of an encoded object, in JSON.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// Returns the `metadata` of an object in the store's encoding, where it follows `kind` and `apiVersion`. Does not read
/// the fields after it.
fn leading_metadata(object: &[u8]) -> Option<&str> {
    const FIELD: &[u8] = b",\"metadata\":";
    /// Maximum length of the fields before `metadata`.
    const MAX_START: usize = 512;
    let fields = object.strip_prefix(b"{")?;
    let start = memchr::memmem::find(fields.get(..MAX_START).unwrap_or(fields), FIELD)?;
    let (before, metadata) = fields.split_at(start);
    // Otherwise, it may be a field of a nested object.
    if memchr::memchr2(b'{', b'[', before).is_some() {
        return None;
    }
    let metadata = serde_json::Deserializer::from_slice(metadata.get(FIELD.len()..)?);
    metadata.into_iter::<&RawValue>().next()?.ok().map(RawValue::get)
}

/// Returns the `metadata` of an encoded object in JSON.
fn metadata(object: &[u8]) -> Result<&str, StatusError> {
    if let Some(metadata) = leading_metadata(object) {
        return Ok(metadata);
    }
    let head: Head<'_> = serde_json::from_slice(object).map_err(StatusError::internal)?;
    Ok(head.metadata.map_or("{}", RawValue::get))
}

/// Writes the PartialObjectMetadata of an encoded object with a copy of its metadata. `version` is the API version of
/// the response: `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
pub(super) fn partial(
    version: &'static str,
    object: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), StatusError> {
    let metadata = metadata(object)?;
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    out.extend_from_slice(metadata.as_bytes());
    out.push(b'}');
    Ok(())
}

/// Decodes the PartialObjectMetadata of an encoded object, and no other fields.
pub(super) fn partial_value(version: &'static str, object: &[u8]) -> Result<Value, StatusError> {
    Ok(with_metadata(version, parse(metadata(object)?.as_bytes())?))
}

/// Returns the PartialObjectMetadata of a decoded object.
pub(super) fn partial_of_value(version: &'static str, object: &Value) -> Value {
    with_metadata(version, object.get("metadata").cloned().unwrap_or_else(|| json!({})))
}

fn with_metadata(version: &'static str, metadata: Value) -> Value {
    // Do not use `json!`, because it copies values.
    let fields = [("kind", KIND.into()), ("apiVersion", version.into()), ("metadata", metadata)];
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}

/// Returns the resource version of an encoded object.
pub(super) fn version_of(object: &[u8]) -> Value {
    let value = metadata(object).and_then(|metadata| parse(metadata.as_bytes())).ok();
    value.and_then(|meta| meta.get("resourceVersion").cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_found_wherever_it_is() {
        for (object, expected) in [
            (
                r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","labels":{"b":"}"}},"spec":{}}"#,
                r#"{"name":"a","labels":{"b":"}"}}"#,
            ),
            (
                r#"{"spec":{"a":1,"metadata":{"name":"b"}},"metadata":{"name":"a"}}"#,
                r#"{"name":"a"}"#,
            ),
            (r#"{"items":[1,"metadata"],"metadata":{"name":"a"}}"#, r#"{"name":"a"}"#),
            (r#"{"metadata":{"name":"a"},"kind":"A"}"#, r#"{"name":"a"}"#),
            (r#"{"kind":"A"}"#, "{}"),
        ] {
            assert_eq!(metadata(object.as_bytes()).expect(object), expected, "{object}");
        }
    }
}
