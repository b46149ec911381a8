//! Validation of lists of type `set` and `map`, whose elements must be unique.
//!
//! Upstream: `pkg/apiserver/schema/listtype`.

use std::collections::HashMap;
use std::hash::Hash;

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

/// Requires that the items of a list of type `set` are distinct.
///
/// Upstream: `validateListSet`.
fn validate_list_set(items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    for i in second_appearances(items) {
        if let Some(item) = items.get(i) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), item.clone()));
        }
    }
}

/// Returns the index of the second of each group of equal items. Further ones are not reported.
fn second_appearances<T: Hash + Eq>(items: &[T]) -> Vec<usize> {
    let mut seen: HashMap<&T, usize> = HashMap::with_capacity(items.len());
    let mut seconds = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let times = seen.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            seconds.push(i);
        }
    }
    seconds
}

/// Requires that the items of a list of type `map` are objects with distinct keys.
///
/// Upstream: `validateListMap`.
fn validate_list_map(
    items: &[Value],
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let is_foreign = |item: &Value| !item.is_object() && !item.is_null();
    if let Some((i, item)) = items.iter().enumerate().find(|(_, item)| is_foreign(item)) {
        let why = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{path}[{i}]"), item.clone(), why));
        return;
    }
    // Null stands for an item without keys.
    let keys: Vec<Vec<Option<&Value>>> = items.iter().map(|item| schema.key_of(item)).collect();
    for i in second_appearances(&keys) {
        let key_fields: Map<String, Value> = schema
            .list_map_keys
            .iter()
            .zip(keys.get(i).into_iter().flatten())
            .filter_map(|(name, value)| Some((name.to_string(), (*value)?.clone())))
            .collect();
        errors.push(FieldError::duplicate(format!("{path}[{i}]"), key_fields));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(value: &Value) -> Vec<String> {
        let schema = Structural::new(&json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}}));
        let mut errors = Vec::new();
        validate_list_sets_and_maps(value, &schema, "l", &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn items_of_a_map_are_objects_or_null_and_unique() {
        for (value, expected) in [
            (json!([{"k": "a"}, null]), vec![]),
            (json!([null, null]), vec!["l[1]: Duplicate value: {}"]),
            // Only the second of equal items is reported.
            (
                json!([{"k": "a"}, {"k": "a"}, {"k": "a"}]),
                vec!["l[1]: Duplicate value: {\"k\":\"a\"}"],
            ),
            (
                json!([{"k": "a"}, {"k": "a"}, 1, 2]),
                vec!["l[2]: Invalid value: 1: must be an object for an array of list-type map"],
            ),
        ] {
            assert_eq!(errors(&value), expected, "{value}");
        }
    }
}
