//! Decoding of request bodies, and of lists that may be null.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

pub(crate) use evenkeel_apimachinery::decode::{Decoded, FieldValidation};

use serde::Deserialize;

use crate::resource::{GroupVersionKind, ResourceType};
use evenkeel_apimachinery::status::StatusError;

/// Decodes the body of a create or update of `resource` or of a subresource, with the schema of `expected`.
pub(crate) fn object(
    resource: &ResourceType,
    expected: &GroupVersionKind,
    content_type: &str,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    check_media_type(content_type)?;
    let schema = resource.schema(expected);
    evenkeel_apimachinery::decode::object(schema.as_ref(), expected, content_type, body, validation)
}

/// Parses the body of a DELETE, `DeleteOptions`.
pub(crate) fn options(body: &[u8], content_type: &str) -> Result<serde_json::Value, StatusError> {
    check_media_type(content_type)?;
    evenkeel_apimachinery::decode::options(body, content_type)
}

/// Media types of bodies, with the default first.
const MEDIA_TYPES: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Refuses a body whose media type has no decoder.
///
/// Upstream: `NegotiateInputSerializer`.
pub(crate) fn check_media_type(content_type: &str) -> Result<(), StatusError> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let is_known = MEDIA_TYPES.iter().any(|known| known.eq_ignore_ascii_case(media));
    if is_known || content_type.is_empty() {
        return Ok(());
    }
    Err(StatusError::unsupported_media_type(&MEDIA_TYPES))
}

/// Decodes a list that may be null, as Go writes a list without elements.
pub(crate) fn listed<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<Vec<T>>::deserialize(from).map(Option::unwrap_or_default)
}
