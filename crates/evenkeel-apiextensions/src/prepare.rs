//! What is done to an object before it is looked at: unknown fields go, defaults come.

use serde_json::Value;

use super::node::Node;

/// Fills in the defaults (upstream: `defaulting.Default`).
pub fn default(value: &mut Value, node: &Node) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                let absent = fields.get(&**name).is_none_or(|v| v.is_null() && !property.nullable);
                if absent {
                    fields.insert(name.to_string(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                let Some(child) = node.child(name) else { continue };
                fill(value, child);
            }
        }
        Value::Array(items) => {
            let Some(child) = &node.items else { return };
            items.iter_mut().for_each(|item| fill(item, child));
        }
        _ => {}
    }
}

fn fill(value: &mut Value, node: &Node) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
    default(value, node);
}

/// Takes nulls away where they may not be and nothing stands for them (upstream: `PruneNonNullableNullsWithoutDefaults`).
pub fn drop_nulls(value: &mut Value, node: &Node) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let Some(child) = node.child(name) else { return true };
                !(value.is_null() && !child.nullable && child.default.is_none())
            });
            for (name, value) in fields.iter_mut() {
                if let Some(child) = node.child(name) {
                    drop_nulls(value, child);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &node.items else { return };
            items.iter_mut().for_each(|item| drop_nulls(item, child));
        }
        _ => {}
    }
}

/// Takes fields away that the schema does not know. True when there were any. At the root and in embedded objects
/// `apiVersion`, `kind` and `metadata` are known.
pub fn prune(value: &mut Value, node: &Node, root: bool) -> bool {
    let mut pruned = false;
    match value {
        Value::Object(fields) => {
            let whole = root || node.embedded;
            let open = node.preserve || node.any_additional || node.additional.is_some();
            let before = fields.len();
            fields.retain(|name, _| {
                open || node.properties.contains_key(name.as_str())
                    || whole && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")
            });
            pruned |= fields.len() != before;
            for (name, value) in fields.iter_mut() {
                if whole && name == "metadata" {
                    continue;
                }
                if let Some(child) = node.child(name) {
                    pruned |= prune(value, child, false);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &node.items else { return false };
            for item in items {
                pruned |= prune(item, child, false);
            }
        }
        _ => {}
    }
    pruned
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Node {
        Node::new(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "default": {"a": {}}, "properties": {
            "a": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}}},
            "o": {"type": "string", "nullable": true, "default": "d"}, "p": {"type": "string"}}}}}),
        )
    }

    #[test]
    fn defaults_go_all_the_way_down() {
        let mut value = json!({});
        default(&mut value, &node());
        assert_eq!(value, json!({"spec": {"a": {"n": 3}, "o": "d"}}));
        let mut value = json!({"spec": {"l": [{}, {"x": "z"}], "o": null, "a": {"n": null}}});
        default(&mut value, &node());
        assert_eq!(
            value,
            json!({"spec": {"l": [{"x": "y"}, {"x": "z"}], "o": null, "a": {"n": 3}}})
        );
    }

    #[test]
    fn what_is_unknown_or_null_goes() {
        let mut value = json!({"kind": "W", "x": 1, "spec": {"p": null, "q": 2, "o": null}});
        assert!(prune(&mut value, &node(), true));
        drop_nulls(&mut value, &node());
        assert_eq!(value, json!({"kind": "W", "spec": {"o": null}}));
        assert!(!prune(&mut value, &node(), true));
    }
}
