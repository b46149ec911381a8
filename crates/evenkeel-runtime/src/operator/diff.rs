//! Merge patches (RFC 7386) and JSON patches (RFC 6902) from the difference of two values.

use serde_json::{Map, Value, json};

/// Merge patch, and whether it replaces a list.
#[derive(Debug, PartialEq)]
pub(super) struct MergePatch {
    pub(super) patch: Value,
    /// Whether the patch replaces, removes or creates a list as a whole. It then also overwrites entries that other clients
    /// have added meanwhile, perhaps to a list that was absent when the object was read.
    pub(super) replaces_list: bool,
}

/// Returns the merge patch that changes `old` into `new`, or `None` if they are equal. `null` counts as absent.
pub(super) fn merge_patch(old: &Value, new: &Value) -> Option<MergePatch> {
    let mut replaces_list = false;
    let patch = difference(old, new, &mut replaces_list)?;
    Some(MergePatch { patch, replaces_list })
}

/// JSON patch, and whether it touches a list.
#[derive(Debug, PartialEq)]
pub(super) struct JsonPatch {
    pub(super) operations: Vec<Value>,
    /// Whether the patch names entries of a list by their number, or replaces, removes or creates a list.
    pub(super) touches_list: bool,
}

/// Returns the JSON patch that changes `old` into `new`, or `None` if they are equal.
pub(super) fn json_patch(old: &Value, new: &Value) -> Option<JsonPatch> {
    let operations: Vec<Value> =
        json_patch::diff(old, new).0.iter().map(|operation| json!(operation)).collect();
    let touches_list = operations.iter().any(|operation| {
        let path = operation["path"].as_str().unwrap_or_default();
        holds_list(&operation["value"])
            || old.pointer(path).is_some_and(holds_list)
            || prefixes(path).any(|path| old.pointer(path).is_some_and(Value::is_array))
    });
    (!operations.is_empty()).then_some(JsonPatch { operations, touches_list })
}

/// Returns the JSON pointers to a value and to all values that contain it.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(move |end| &path[..end])
}

/// Returns whether a value is a list, or holds one at any depth.
fn holds_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(holds_list),
        _ => false,
    }
}

fn difference(old: &Value, new: &Value, replaces_list: &mut bool) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        *replaces_list |= holds_list(old) || holds_list(new);
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        let before = old.get(name).unwrap_or(&Value::Null);
        match difference(before, value, replaces_list) {
            // Nulls in a new object would be read as removals, which change nothing.
            Some(change) => drop(patch.insert(name.clone(), change)),
            // A new empty object has to be in the patch.
            None if !old.contains_key(name) && !value.is_null() => {
                patch.insert(name.clone(), value.clone());
            }
            None => {}
        }
    }
    for (name, value) in old {
        if !new.contains_key(name) && !value.is_null() {
            *replaces_list |= holds_list(value);
            patch.insert(name.clone(), Value::Null);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_patch_names_only_what_differs() {
        let table = [
            (json!({}), json!({}), None),
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!(null), json!({"a": 1}), Some((json!({"a": 1}), false))),
            (json!({"a": 1, "b": 2}), json!({"a": 3}), Some((json!({"a": 3, "b": null}), false))),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1, "c": 3}}),
                Some((json!({"a": {"c": 3}}), false)),
            ),
            (json!({"l": [1]}), json!({"l": [1, 2]}), Some((json!({"l": [1, 2]}), true))),
            (json!({}), json!({"l": [1, 2]}), Some((json!({"l": [1, 2]}), true))),
            (json!(null), json!({"l": []}), Some((json!({"l": []}), true))),
            (json!({}), json!({"a": {"l": [1]}}), Some((json!({"a": {"l": [1]}}), true))),
            (json!({"a": {"l": [1]}}), json!({}), Some((json!({"a": null}), true))),
            (json!({"a": {"l": [1]}}), json!({"a": 1}), Some((json!({"a": 1}), true))),
            (json!({"l": [1]}), json!({}), Some((json!({"l": null}), true))),
            (json!({"a": null}), json!({}), None),
        ];
        for (old, new, wanted) in table {
            let wanted = wanted.map(|(patch, replaces_list)| MergePatch { patch, replaces_list });
            assert_eq!(merge_patch(&old, &new), wanted, "{old} -> {new}");
        }
    }

    #[test]
    fn a_json_patch_knows_whether_it_touches_a_list() {
        let table = [
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!({"a": 1, "l": [1]}), json!({"a": 2, "l": [1]}), false),
            (json!({"l": [1]}), json!({"l": [1, 2]}), true),
            (json!({"l": [{"n": 1}]}), json!({"l": [{"n": 2}]}), true),
            (json!({}), json!({"l": [1]}), true),
            (json!({}), json!({"a": {"l": [1]}}), true),
            (json!({"a": {"l": [1]}}), json!({}), true),
            (json!({"a": {"l": [1]}}), json!({"a": 1}), true),
        ];
        for (old, new, wanted) in table {
            let patch = json_patch(&old, &new).unwrap();
            assert_eq!(patch.touches_list, wanted, "{old} -> {new}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![any::<bool>().prop_map(Value::from), (0..3i64).prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_leads_from_the_old_value_to_the_new(old in value(), new in value()) {
            let mut patched = old.clone();
            if let Some(MergePatch { patch, .. }) = merge_patch(&old, &new) {
                json_patch::merge(&mut patched, &patch);
            }
            prop_assert_eq!(patched, new);
        }

        #[test]
        fn a_json_patch_leads_from_the_old_value_to_the_new(old in value(), new in value()) {
            let mut patched = old.clone();
            if let Some(JsonPatch { operations, touches_list }) = json_patch(&old, &new) {
                let patch: json_patch::Patch =
                    serde_json::from_value(Value::Array(operations)).unwrap();
                json_patch::patch(&mut patched, &patch).unwrap();
                prop_assert!(touches_list || old == new || !old.is_array());
            }
            prop_assert_eq!(patched, new);
        }
    }
}
