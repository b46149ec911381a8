//! JSON merge patches (RFC 7386).

use serde_json::Value;

/// Merges `patch` into `document`: null removes a field, objects merge, and any other value replaces.
pub(super) fn apply(document: &mut Value, patch: Value) {
    let (document, patch) = match (document, patch) {
        (Value::Object(document), Value::Object(patch)) => (document, patch),
        // As in upstream, a list that replaces an object keeps its nulls.
        (document @ Value::Object(_), patch) => {
            *document = patch;
            return;
        }
        (document, mut patch) => {
            prune(&mut patch);
            *document = patch;
            return;
        }
    };
    for (key, mut value) in patch {
        if value.is_null() {
            document.remove(&key);
            continue;
        }
        match document.get_mut(&key) {
            Some(old) if !old.is_null() => apply(old, value),
            _ => {
                prune(&mut value);
                document.insert(key, value);
            }
        }
    }
}

/// Removes the null entries of objects, at every depth.
fn prune(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, v| !v.is_null());
            entries.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn examples_of_the_rfc_are_merged() {
        for (document, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut merged = document.clone();
            apply(&mut merged, patch.clone());
            assert_eq!(merged, want, "{document} + {patch}");
        }
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(0..3i64, 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn applying_a_patch_twice_equals_applying_it_once(document in tree(), patch in tree()) {
            let mut once = document;
            apply(&mut once, patch.clone());
            let mut twice = once.clone();
            apply(&mut twice, patch);
            prop_assert_eq!(once, twice);
        }
    }
}
