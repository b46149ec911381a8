//! Decoding of request bodies, and of lists that may be null.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

pub(crate) use evenkeel_apimachinery::decode::{Decoded, FieldValidation, options};

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
    let schema = resource.schema(expected);
    evenkeel_apimachinery::decode::object(schema.as_ref(), expected, content_type, body, validation)
}

/// Decodes a list that may be null, as Go writes a list without elements.
pub(crate) fn listed<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<Vec<T>>::deserialize(from).map(Option::unwrap_or_default)
}
