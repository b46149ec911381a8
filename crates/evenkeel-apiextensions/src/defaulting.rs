//! Defaulting of custom resources: sets absent fields to the defaults of a definition's schema.
//!
//! | when | function that the server calls |
//! |---|---|
//! | a create, an update or a patch is decoded | `CustomResourceStrategy::default` in `custom/strategy.rs` |
//! | an object is read from the store: get, list, watch, the old object of an update | `Definition::prune_and_default`, from `custom::conversion::read`, `CustomResourceStrategy::convert_out` and `codec::decode_alone` |
//! | an object is converted to another version | before it: `Definition::prune_and_default`; after it: `Definition::prune`, without defaults |
//! | a mutating policy or webhook has changed an object | `Definition::prune_and_default`, from `admission::mutated::prune_and_default` |
//! | a definition is validated: each default must fit its schema | `definition::schema::validate_defaults`, in this crate |
//!
//! These functions call [`set_defaults`]. The paths in all rows but the last are in `evenkeel-apiserver`, where
//! `resource/custom.rs` has `Definition`. Defaults are stored with the object. They are also applied on each read,
//! because defaults may have been added to the schema since the write.

use serde_json::Value;

use super::structural::Structural;

/// Sets the defaults of absent fields at every depth. A null counts as absent if the schema is not nullable.
///
/// Upstream: `structuraldefaulting.Default`.
pub fn set_defaults(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let absent = fields.get(&**name).is_none_or(|v| v.is_null() && !property.nullable);
                if absent {
                    fields.insert(name.to_string(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                let Some(child) = schema.child(name) else { continue };
                set_defaults_at(value, child);
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            items.iter_mut().for_each(|item| set_defaults_at(item, child));
        }
        _ => {}
    }
}

/// Replaces a null that the schema does not allow by the schema's default, then sets the defaults of the fields below it.
fn set_defaults_at(value: &mut Value, schema: &Structural) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
    set_defaults(value, schema);
}

/// Removes null fields whose schema is not nullable and has no default.
///
/// Upstream: `PruneNonNullableNullsWithoutDefaults`.
pub fn prune_non_nullable_nulls(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let Some(child) = schema.child(name) else { return true };
                !(value.is_null() && !child.nullable && child.default.is_none())
            });
            for (name, value) in fields.iter_mut() {
                if let Some(child) = schema.child(name) {
                    prune_non_nullable_nulls(value, child);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            items.iter_mut().for_each(|item| prune_non_nullable_nulls(item, child));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Structural {
        Structural::new(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "default": {"a": {}}, "properties": {
            "a": {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}}},
            "o": {"type": "string", "nullable": true, "default": "d"}, "p": {"type": "string"}}}}}),
        )
    }

    #[test]
    fn defaults_apply_at_every_depth() {
        let mut value = json!({});
        set_defaults(&mut value, &schema());
        assert_eq!(value, json!({"spec": {"a": {"n": 3}, "o": "d"}}));
        let mut value = json!({"spec": {"l": [{}, {"x": "z"}], "o": null, "a": {"n": null}}});
        set_defaults(&mut value, &schema());
        assert_eq!(
            value,
            json!({"spec": {"l": [{"x": "y"}, {"x": "z"}], "o": null, "a": {"n": 3}}})
        );
    }

    #[test]
    fn a_null_field_is_removed_unless_it_is_nullable_or_has_a_default() {
        let mut value = json!({"spec": {"p": null, "o": null, "a": {"n": null}}});
        prune_non_nullable_nulls(&mut value, &schema());
        assert_eq!(value, json!({"spec": {"o": null, "a": {"n": null}}}));
    }
}
