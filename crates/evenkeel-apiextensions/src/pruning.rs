//! Pruning of custom resources: removes fields that a definition's schema does not specify.
//!
//! The table in [`crate::defaulting`] lists when objects are pruned.
//!
//! Upstream: `apiextensions-apiserver/pkg/apiserver/schema/pruning`.

use serde_json::Value;

use super::structural::Structural;

/// Removes fields that the schema does not specify. Returns whether it removed any. Keeps `apiVersion`, `kind` and
/// `metadata` of embedded resources, and of the value itself if `is_root`.
///
/// Upstream: `structuralpruning.PruneWithOptions`.
pub fn prune(value: &mut Value, schema: &Structural, is_root: bool) -> bool {
    let mut pruned = false;
    match value {
        Value::Object(fields) => {
            let is_resource = is_root || schema.embedded_resource;
            let allows_unknown_fields = schema.preserve_unknown_fields
                || schema.allows_additional_properties
                || schema.additional_properties.is_some();
            let before = fields.len();
            fields.retain(|name, _| {
                allows_unknown_fields
                    || schema.properties.contains_key(name.as_str())
                    || is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")
            });
            pruned |= fields.len() != before;
            for (name, value) in fields.iter_mut() {
                if is_resource && name == "metadata" {
                    continue;
                }
                if let Some(child) = schema.child(name) {
                    pruned |= prune(value, child, false);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return false };
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
    fn unspecified_fields_are_removed() {
        let schema = Structural::new(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "p": {"type": "string"}}}}}),
        );
        let mut value = json!({"kind": "W", "x": 1, "spec": {"p": null, "q": 2}});
        assert!(prune(&mut value, &schema, true));
        assert_eq!(value, json!({"kind": "W", "spec": {"p": null}}));
        assert!(!prune(&mut value, &schema, true));
    }
}
