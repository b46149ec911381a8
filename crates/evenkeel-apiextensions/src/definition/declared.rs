//! Declarations of a schema's values for the checks of its rules.
//!
//! Upstream: `SchemaDeclType` of `apiserver/pkg/cel/common`.

use evenkeel_cel::check::{Declared, Type};
use evenkeel_cel::escape;

use crate::structural::Structural;

/// Maximum size of a request in bytes. Upstream: `MaxRequestSizeBytes`.
const REQUEST: u64 = 3 * 1024 * 1024;
/// The same less two quotes or brackets: no value within a request is larger.
const VALUE: u64 = REQUEST - 2;
/// Maximum and minimum number of bytes of durations and times with their quotes.
const LONGEST_TIME: u64 = 32;
const SHORTEST_TIME: u64 = 21;
const DATE: u64 = 12;
const SHORTEST_DURATION: u64 = 3;

/// Returns the maximum number of values of such a size in one request.
///
/// Upstream: `maxCardinality`.
pub(super) fn max_cardinality(declared: &Declared) -> u64 {
    REQUEST / (declared.least() + 1)
}

/// Returns the declaration of a schema's values; `None` if expressions cannot read them. An object at the root has its
/// type and its name, too.
pub(super) fn declared(schema: &Structural, is_root: bool) -> Option<Declared> {
    let bytes = || schema.max_length.map(|most| most.saturating_mul(4));
    if schema.int_or_string {
        return Some(Declared::of(Type::Dyn).at_most(bytes().unwrap_or(VALUE)));
    }
    let below = |schema: &Structural| declared(schema, schema.embedded_resource);
    Some(match (&*schema.kind, &*schema.format) {
        ("array", _) => {
            let item = below(schema.items.as_deref()?)?;
            let most = schema.max_items.unwrap_or(VALUE / (item.least() + 1));
            Declared::list(item, most)
        }
        ("object", _) => match schema.additional_properties.as_deref() {
            Some(values) => {
                let value = below(values)?;
                let most = schema.max_properties.unwrap_or(VALUE / (value.least() + 6));
                Declared::map(value, most)
            }
            None => object(schema, is_root),
        },
        ("string", "byte") => Declared::of(Type::Bytes).at_most(schema.max_length.unwrap_or(VALUE)),
        ("string", "duration") => {
            Declared::of(Type::Duration).at_most(LONGEST_TIME).at_least(SHORTEST_DURATION)
        }
        ("string", "date") => Declared::of(Type::Time).at_most(DATE).at_least(DATE),
        ("string", "date-time") => {
            Declared::of(Type::Time).at_most(LONGEST_TIME).at_least(SHORTEST_TIME)
        }
        ("string", _) => {
            let texts = schema.enum_values.iter().filter_map(|value| value.as_str());
            let longest = texts.map(|text| text.len() as u64).max().unwrap_or(0);
            let longest = (!schema.enum_values.is_empty()).then_some(longest);
            Declared::of(Type::Str).at_most(bytes().or(longest).unwrap_or(VALUE))
        }
        ("boolean", _) => Declared::of(Type::Bool),
        ("number", _) => Declared::of(Type::Double),
        ("integer", _) => Declared::of(Type::Int),
        _ => return None,
    })
}

fn object(schema: &Structural, is_root: bool) -> Declared {
    let mut fields = Vec::with_capacity(schema.properties.len());
    let mut least = 2u64;
    for (name, property) in &schema.properties {
        let Some(field) = declared(property, property.embedded_resource) else { continue };
        if schema.required.contains(name) && property.default.is_none() {
            least = least.saturating_add(name.len() as u64).saturating_add(field.least() + 4);
        }
        if let Some(name) = escape(name) {
            fields.push((name, field));
        }
    }
    if is_root {
        let text = || Declared::of(Type::Str).at_most(VALUE);
        let metadata = Declared::object(None, [("name", text()), ("generateName", text())]);
        for (name, field) in [("kind", text()), ("apiVersion", text()), ("metadata", metadata)] {
            fields.push((name.to_owned(), field));
        }
    }
    Declared::object(None, fields).at_least(least)
}
