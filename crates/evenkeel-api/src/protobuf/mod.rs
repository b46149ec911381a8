//! Kubernetes protobuf: the envelope, and conversion from and to JSON for every built-in kind.

#[cfg(test)]
pub(crate) mod arbitrary;
mod budget;
mod decode;
mod encode;
pub(crate) mod envelope;
pub(crate) mod schema;
#[cfg(test)]
mod tests;
pub mod wire;

use serde_json::Value;

pub use envelope::{Envelope, MAGIC};

use crate::decode::{Reader, WireError};
use crate::{DecodeError, json};
use budget::Budget;

/// Field number of the metadata in the message of every kind, and in `PartialObjectMetadata`.
const METADATA: u32 = 1;

/// Converter of objects between JSON and protobuf. Its bytes equal those of upstream's server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Transcoder;

impl Transcoder {
    /// Returns whether a kind, such as `apps/v1` `Deployment`, has a protobuf form. Custom resources have none.
    pub fn supports(api_version: &str, kind: &str) -> bool {
        schema::message_of(api_version, kind).is_some()
    }

    /// Encodes an object as a message without an envelope.
    ///
    /// # Errors
    /// Fails if the kind has no protobuf form, or a field has the wrong type.
    pub fn encode(api_version: &str, kind: &str, object: &Value) -> Result<Vec<u8>, DecodeError> {
        let descriptor = descriptor(api_version, kind)?;
        encode::encode(descriptor, object).map_err(|error| error.into_decode_error(kind))
    }

    /// Decodes an object's message to JSON, including `apiVersion` and `kind`.
    ///
    /// # Errors
    /// Fails if the kind has no protobuf form, or the bytes are not its message.
    pub fn decode(api_version: &str, kind: &str, bytes: &[u8]) -> Result<Value, DecodeError> {
        decode_object(api_version, kind, bytes, &mut Budget::new(usize::MAX))
    }

    /// Returns the message of an object's `PartialObjectMetadata`, from the message of the object: every kind has its
    /// metadata in the field 1.
    ///
    /// # Errors
    /// Fails if the bytes are not an object's message.
    pub fn partial_object_metadata(message: &[u8]) -> Result<Vec<u8>, DecodeError> {
        metadata(message).map_err(|error| error.into_decode_error("PartialObjectMetadata"))
    }

    /// Encodes an object in an envelope, with the object's `apiVersion` and `kind`.
    ///
    /// # Errors
    /// Fails with the errors of [`Transcoder::encode`].
    pub fn encode_envelope(object: &Value) -> Result<Vec<u8>, DecodeError> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        Ok(Envelope::seal(api_version, kind, &Self::encode(api_version, kind, object)?))
    }

    /// Decodes an object in an envelope to JSON.
    ///
    /// # Errors
    /// Fails with the errors of [`Transcoder::decode`], or if the envelope is missing.
    pub fn decode_envelope(bytes: &[u8]) -> Result<Value, DecodeError> {
        decode_envelope(bytes, &mut Budget::new(usize::MAX))
    }

    /// Decodes an object's message from the body of a request: like [`Transcoder::decode`], with at most
    /// [`json::MAX_VALUES`] values. A message may have more than its length suggests, because the absent fields of each
    /// nested message have values, too.
    ///
    /// # Errors
    /// The errors of [`Transcoder::decode`], or the object has too many values.
    pub fn decode_body(api_version: &str, kind: &str, bytes: &[u8]) -> Result<Value, DecodeError> {
        decode_object(api_version, kind, bytes, &mut Budget::new(json::MAX_VALUES))
    }
}

/// Decodes like [`Transcoder::decode`], within a budget.
fn decode_object(
    api_version: &str,
    kind: &str,
    bytes: &[u8],
    budget: &mut Budget,
) -> Result<Value, DecodeError> {
    let descriptor = descriptor(api_version, kind)?;
    let mut object =
        decode::decode(descriptor, bytes, budget).map_err(|error| error.into_decode_error(kind))?;
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".into(), api_version.into());
        fields.insert("kind".into(), kind.into());
    }
    Ok(object)
}

/// Decodes like [`Transcoder::decode_envelope`], within a budget.
fn decode_envelope(bytes: &[u8], budget: &mut Budget) -> Result<Value, DecodeError> {
    let envelope = Envelope::open(bytes)?;
    decode_object(&envelope.api_version, &envelope.kind, envelope.raw, budget)
}

/// Returns the message of a kind, or an error if the kind has no protobuf form.
fn descriptor(api_version: &str, kind: &str) -> Result<&'static schema::Descriptor, DecodeError> {
    schema::message_of(api_version, kind).ok_or_else(|| {
        WireError::new(format!("{api_version} {kind} has no protobuf form")).into_decode_error(kind)
    })
}

/// Returns a message with the field 1 of `message` alone.
fn metadata(message: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut reader = Reader::new(message);
    let mut partial = Vec::new();
    while let Some((number, wire)) = reader.tag()? {
        if number == METADATA {
            let contents = reader.expect_bytes(wire).map_err(|error| error.at_field("metadata"))?;
            partial.reserve_exact(wire::size_of_bytes(METADATA, contents.len()));
            wire::bytes(&mut partial, METADATA, contents);
            break;
        }
        reader.skip(number, wire)?;
    }
    Ok(partial)
}

/// Converts a message to JSON, by the message's qualified name.
pub(crate) fn to_json(message: &str, bytes: &[u8]) -> Result<Value, WireError> {
    let descriptor = schema::Schema::get()
        .named(message)
        .ok_or_else(|| WireError::new(format!("{message} is not known in protobuf")))?;
    decode::decode(descriptor, bytes, &mut Budget::new(usize::MAX))
}

/// Converts JSON to a message, by the message's qualified name.
pub(crate) fn from_json(message: &str, value: &Value) -> Result<Vec<u8>, WireError> {
    let descriptor = schema::Schema::get()
        .named(message)
        .ok_or_else(|| WireError::new(format!("{message} is not known in protobuf")))?;
    encode::encode(descriptor, value)
}
