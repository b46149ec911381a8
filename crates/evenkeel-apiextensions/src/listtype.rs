//! Validation of lists of type `set` and `map`, whose elements must be unique.
//!
//! Upstream: `pkg/apiserver/schema/listtype`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::structural::{ListType, Structural};
use evenkeel_apimachinery::status::FieldError;

/// Reports each element that duplicates an earlier one.
///
/// Upstream: `ValidateListSetsAndMaps`.
pub fn validate_list_sets_and_maps(
    value: &Value,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(child) = schema.child(name) else { continue };
                validate_list_sets_and_maps(
                    value,
                    child,
                    &super::validation::child_path(path, name),
                    errors,
                );
            }
        }
        Value::Array(items) => {
            match schema.list_type {
                ListType::Set => validate_list_set(items, path, errors),
                ListType::Map => validate_list_map(items, schema, path, errors),
                ListType::Atomic => {}
            }
            let Some(child) = &schema.items else { return };
            for (i, item) in items.iter().enumerate() {
                validate_list_sets_and_maps(item, child, &format!("{path}[{i}]"), errors);
            }
        }
        _ => {}
    }
}

/// Upstream: `validateListSet`.
fn validate_list_set(items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        if !seen.insert(item) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), item.clone()));
        }
    }
}

/// Upstream: `validateListMap`.
fn validate_list_map(
    items: &[Value],
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let keys: Vec<Vec<Option<&Value>>> = items.iter().map(|item| schema.key_of(item)).collect();
    let mut seen = HashSet::with_capacity(keys.len());
    for (i, key) in keys.iter().enumerate() {
        if !items[i].is_object() {
            let why = "must be an object for an array of list-type map";
            errors.push(FieldError::invalid(format!("{path}[{i}]"), items[i].clone(), why));
        }
        if seen.insert(key) || !items[i].is_object() {
            continue;
        }
        let key_fields: Map<String, Value> = schema
            .list_map_keys
            .iter()
            .zip(key)
            .filter_map(|(name, value)| Some((name.to_string(), (*value)?.clone())))
            .collect();
        errors.push(FieldError::duplicate(format!("{path}[{i}]"), key_fields));
    }
}
