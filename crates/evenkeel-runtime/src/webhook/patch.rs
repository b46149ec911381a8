//! Changes of a typed object, carried over to the JSON that it was decoded from.

use serde_json::{Map, Value};

/// Returns `raw` with the changes between `before` and `after`, two states of an object that was decoded from `raw`. Fields
/// that the type does not know, omits or adds on encoding stay as they are in `raw`.
///
/// Upstream: `dropSchemeRemovals`.
pub(super) fn carry_over(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            Value::Object(carry_over_fields(raw, before, after))
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() =>
        {
            Value::Array(carry_over_items(raw, before, after))
        }
        _ => after.clone(),
    }
}

fn carry_over_fields(
    raw: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let is_removed = |key: &String| before.contains_key(key) && !after.contains_key(key);
    let mut merged: Map<String, Value> = raw
        .iter()
        .filter(|(key, _)| !is_removed(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, new) in after {
        let old = before.get(key);
        if old == Some(new) {
            // This field is unchanged, even if `raw` omits it.
            continue;
        }
        let value = match (raw.get(key), old) {
            (Some(raw), Some(old)) => carry_over(raw, old, new),
            _ => new.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

/// Keeps the unknown fields of items before the first change, of items after the last change, and of items that are changed in
/// place.
fn carry_over_items(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    if before.len() == after.len() {
        let items = raw.iter().zip(before).zip(after);
        return items.map(|((raw, before), after)| carry_over(raw, before, after)).collect();
    }
    let n_head = before.iter().zip(after).take_while(|(old, new)| old == new).count();
    let rest = before.len().min(after.len()) - n_head;
    let tails = before.iter().rev().zip(after.iter().rev());
    let n_tail = tails.take(rest).take_while(|(old, new)| old == new).count();
    let head = raw.iter().take(n_head);
    let changed = after.iter().skip(n_head).take(after.len() - n_head - n_tail);
    let tail = raw.iter().skip(raw.len() - n_tail);
    head.chain(changed).chain(tail).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn only_changes_of_the_type_are_carried_over() {
        for (name, raw, before, after, expected) in [
            (
                "an unknown field stays",
                json!({"a": 1, "new": {"b": 2}}),
                json!({"a": 1}),
                json!({"a": 2}),
                json!({"a": 2, "new": {"b": 2}}),
            ),
            (
                "an omitted empty field stays",
                json!({"a": 1, "list": []}),
                json!({"a": 1}),
                json!({"a": 2}),
                json!({"a": 2, "list": []}),
            ),
            (
                "a field that the type adds is no change",
                json!({"a": 1}),
                json!({"a": 1, "b": null}),
                json!({"a": 2, "b": null}),
                json!({"a": 2}),
            ),
            (
                "a field is removed",
                json!({"a": 1, "b": 2}),
                json!({"a": 1, "b": 2}),
                json!({"a": 1}),
                json!({"a": 1}),
            ),
            (
                "a field is set",
                json!({"a": 1}),
                json!({"a": 1}),
                json!({"a": 1, "b": [1]}),
                json!({"a": 1, "b": [1]}),
            ),
            (
                "items are changed in place",
                json!([{"a": 1, "x": 1}, {"a": 2, "x": 2}]),
                json!([{"a": 1}, {"a": 2}]),
                json!([{"a": 1}, {"a": 3}]),
                json!([{"a": 1, "x": 1}, {"a": 3, "x": 2}]),
            ),
            (
                "an item is inserted",
                json!([{"a": 1, "x": 1}, {"a": 2, "x": 2}]),
                json!([{"a": 1}, {"a": 2}]),
                json!([{"a": 1}, {"a": 9}, {"a": 2}]),
                json!([{"a": 1, "x": 1}, {"a": 9}, {"a": 2, "x": 2}]),
            ),
            (
                "an item is removed",
                json!([{"a": 1, "x": 1}, {"a": 2, "x": 2}]),
                json!([{"a": 1}, {"a": 2}]),
                json!([{"a": 2}]),
                json!([{"a": 2, "x": 2}]),
            ),
            ("another form", json!("100m"), json!("0.1"), json!("0.2"), json!("0.2")),
            ("the same in another form", json!("100m"), json!("0.1"), json!("0.1"), json!("100m")),
        ] {
            assert_eq!(carry_over(&raw, &before, &after), expected, "{name}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0i64..3).prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_type_that_knows_all_fields_is_replaced(raw in value(), after in value()) {
            let merged = carry_over(&raw, &raw, &after);
            prop_assert_eq!(&merged, &after);
            let mut patched = raw.clone();
            json_patch::patch(&mut patched, &json_patch::diff(&raw, &merged)).unwrap();
            prop_assert_eq!(patched, after);
        }
    }
}
