//! Pruning of custom resources: fields that a definition's schema does not specify are removed.
//!
//! When objects are pruned stands in the table at the head of `defaulting`.
//!
//! Upstream: `apiextensions-apiserver/pkg/apiserver/schema/pruning`.

use serde_json::Value;

use super::node::Node;

/// Removes fields that the schema does not specify, and returns whether there were any. At the root and in embedded
/// objects `apiVersion`, `kind` and `metadata` are specified.
///
/// Upstream: `structuralpruning.PruneWithOptions`.
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

    #[test]
    fn unspecified_fields_go() {
        let node = Node::new(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "p": {"type": "string"}}}}}),
        );
        let mut value = json!({"kind": "W", "x": 1, "spec": {"p": null, "q": 2}});
        assert!(prune(&mut value, &node, true));
        assert_eq!(value, json!({"kind": "W", "spec": {"p": null}}));
        assert!(!prune(&mut value, &node, true));
    }
}
