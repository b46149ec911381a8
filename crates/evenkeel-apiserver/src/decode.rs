//! Decoding of request bodies.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

pub(crate) use evenkeel_apimachinery::decode::{Decoded, FieldValidation, options};

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
