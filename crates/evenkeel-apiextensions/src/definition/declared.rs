//! CEL declarations of the values that a schema describes, for the type checks and cost estimates of its rules.
//!
//! Upstream: `SchemaDeclType` of `apiserver/pkg/cel/common`.

use evenkeel_cel::check::{DeclType, Type};
use evenkeel_cel::escape;

use crate::structural::Structural;

/// Maximum size of a request in bytes. Upstream: `DefaultMaxRequestSizeBytes`.
const MAX_REQUEST_SIZE: u64 = 3 * 1024 * 1024;
/// Maximum size in bytes of one value: a request without the two quotes, brackets or braces around the value.
const MAX_VALUE_SIZE: u64 = MAX_REQUEST_SIZE - 2;
/// Maximum number of bytes of a duration or a time with its quotes. Upstream: `MaxDurationSizeJSON`,
/// `MaxDatetimeSizeJSON`.
const MAX_TIME_SIZE: u64 = 32;
/// Minimum number of bytes of a time with its quotes: `"YYYY-MM-DDTHH:MM:SS"`. Upstream: `MinDatetimeSizeJSON`.
const MIN_TIME_SIZE: u64 = 21;
/// Number of bytes of a date with its quotes: `"YYYY-MM-DD"`. Upstream: `JSONDateSize`.
const DATE_SIZE: u64 = 12;
/// Minimum number of bytes of a duration with its quotes: `"0"`. Upstream: `MinDurationSizeJSON`.
const MIN_DURATION_SIZE: u64 = 3;

/// Returns the maximum number of values with this declaration in one request. Each is followed by a comma.
///
/// Upstream: `maxCardinality`.
pub(super) fn max_cardinality(declared: &DeclType) -> u64 {
    MAX_REQUEST_SIZE / (declared.min_serialized_size() + 1)
}

/// Returns the declaration of a schema's values; `None` if expressions cannot read them. If `is_resource_root`, an
/// object also has `kind`, `apiVersion` and `metadata`.
pub(super) fn declared(schema: &Structural, is_resource_root: bool) -> Option<DeclType> {
    // The schema limits the number of characters, which have up to 4 bytes each in UTF-8.
    let max_bytes = || schema.max_length.map(|characters| characters.saturating_mul(4));
    if schema.int_or_string {
        return Some(DeclType::of(Type::Dyn).with_max_size(max_bytes().unwrap_or(MAX_VALUE_SIZE)));
    }
    let nested = |schema: &Structural| declared(schema, schema.embedded_resource);
    Some(match (&*schema.kind, &*schema.format) {
        ("array", _) => {
            let item = nested(schema.items.as_deref()?)?;
            // Each item is followed by a comma.
            let max_that_fit = MAX_VALUE_SIZE / (item.min_serialized_size() + 1);
            DeclType::list(item, schema.max_items.unwrap_or(max_that_fit))
        }
        ("object", _) => match schema.additional_properties.as_deref() {
            Some(values) => {
                let value = nested(values)?;
                // The key of an entry, with quotes, colon and comma, has at least 6 bytes.
                let max_that_fit = MAX_VALUE_SIZE / (value.min_serialized_size() + 6);
                DeclType::map(value, schema.max_properties.unwrap_or(max_that_fit))
            }
            None => object(schema, is_resource_root),
        },
        ("string", "byte") => {
            let max_size = schema.max_length.unwrap_or(MAX_VALUE_SIZE);
            DeclType::of(Type::Bytes).with_max_size(max_size)
        }
        ("string", "duration") => DeclType::of(Type::Duration)
            .with_max_size(MAX_TIME_SIZE)
            .with_min_request_bytes(MIN_DURATION_SIZE),
        ("string", "date") => {
            DeclType::of(Type::Time).with_max_size(DATE_SIZE).with_min_request_bytes(DATE_SIZE)
        }
        ("string", "date-time") => DeclType::of(Type::Time)
            .with_max_size(MAX_TIME_SIZE)
            .with_min_request_bytes(MIN_TIME_SIZE),
        ("string", _) => {
            let max_size = max_bytes().or_else(|| longest_enum_value(schema));
            DeclType::of(Type::Str).with_max_size(max_size.unwrap_or(MAX_VALUE_SIZE))
        }
        ("boolean", _) => DeclType::of(Type::Bool),
        ("number", _) => DeclType::of(Type::Double),
        ("integer", _) => DeclType::of(Type::Int),
        _ => return None,
    })
}

/// Returns the length in bytes of the longest string that `enum` allows; `None` without `enum`.
fn longest_enum_value(schema: &Structural) -> Option<u64> {
    if schema.enum_values.is_empty() {
        return None;
    }
    let texts = schema.enum_values.iter().filter_map(|value| value.as_str());
    Some(texts.map(|text| text.len() as u64).max().unwrap_or(0))
}

fn object(schema: &Structural, is_resource_root: bool) -> DeclType {
    let mut fields = Vec::with_capacity(schema.properties.len());
    // The two braces, and each required field without a default.
    let mut min_bytes = 2u64;
    for (name, property) in &schema.properties {
        let Some(field) = declared(property, property.embedded_resource) else { continue };
        if schema.required.contains(name) && property.default.is_none() {
            // The name has quotes, a colon and a comma.
            let field_bytes = (name.len() as u64).saturating_add(field.min_serialized_size() + 4);
            min_bytes = min_bytes.saturating_add(field_bytes);
        }
        if let Some(name) = escape(name) {
            fields.push((name, field));
        }
    }
    if is_resource_root {
        let text = || DeclType::of(Type::Str).with_max_size(MAX_VALUE_SIZE);
        let metadata = DeclType::object(None, [("name", text()), ("generateName", text())]);
        for (name, field) in [("kind", text()), ("apiVersion", text()), ("metadata", metadata)] {
            fields.push((name.to_owned(), field));
        }
    }
    DeclType::object(None, fields).with_min_request_bytes(min_bytes)
}
