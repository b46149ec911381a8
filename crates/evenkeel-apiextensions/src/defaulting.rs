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

use std::ops::ControlFlow;

use serde_json::Value;

use super::structural::Structural;

/// Approximate memory in bytes that the defaults of one object may take. A list of empty items in a small request could
/// otherwise get gigabytes of defaults. A value counts as [`NODE_BYTES`] and has at least two bytes in JSON, so an object
/// whose defaults exceed this is larger than what the store accepts.
///
/// Upstream has no such limit.
const MAX_DEFAULTS: usize = 64 << 20;
/// Memory in bytes of a value without its text.
const NODE_BYTES: usize = 80;

/// Sets the defaults of absent fields at every depth. A null counts as absent if the schema is not nullable. Returns
/// whether all are set. It stops at [`MAX_DEFAULTS`]: the store then refuses the object as too large, and a stored object
/// is read with fewer defaults.
///
/// Upstream: `structuraldefaulting.Default`.
pub fn set_defaults(value: &mut Value, schema: &Structural) -> bool {
    set_defaults_within(MAX_DEFAULTS, value, schema)
}

fn set_defaults_within(max: usize, value: &mut Value, schema: &Structural) -> bool {
    Budget(max).set_defaults(value, schema).is_continue()
}

/// Memory that is left for defaults.
struct Budget(usize);

impl Budget {
    /// Returns a copy of a default, if the memory suffices for it.
    fn copy(&mut self, default: &Value) -> ControlFlow<(), Value> {
        match self.0.checked_sub(memory(default)) {
            Some(rest) => {
                self.0 = rest;
                ControlFlow::Continue(default.clone())
            }
            None => ControlFlow::Break(()),
        }
    }

    fn set_defaults(&mut self, value: &mut Value, schema: &Structural) -> ControlFlow<()> {
        match value {
            Value::Object(fields) => {
                for (name, property) in &schema.properties {
                    let Some(default) = &property.default else { continue };
                    let absent =
                        fields.get(&**name).is_none_or(|v| v.is_null() && !property.nullable);
                    if absent {
                        fields.insert(name.to_string(), self.copy(default)?);
                    }
                }
                for (name, value) in fields.iter_mut() {
                    let Some(child) = schema.child(name) else { continue };
                    self.set_defaults_at(value, child)?;
                }
            }
            Value::Array(items) => {
                let Some(child) = &schema.items else { return ControlFlow::Continue(()) };
                items.iter_mut().try_for_each(|item| self.set_defaults_at(item, child))?;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Replaces a null that the schema does not allow by the schema's default, then sets the defaults of the fields below
    /// it.
    fn set_defaults_at(&mut self, value: &mut Value, schema: &Structural) -> ControlFlow<()> {
        if value.is_null()
            && !schema.nullable
            && let Some(default) = &schema.default
        {
            *value = self.copy(default)?;
        }
        self.set_defaults(value, schema)
    }
}

/// Returns the approximate memory of a value in bytes.
fn memory(value: &Value) -> usize {
    let text = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + memory(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    NODE_BYTES + text
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
    fn defaults_take_bounded_memory() {
        let schema = Structural::new(
            &json!({"type": "object", "properties": {"l": {"type": "array", "items": {
            "type": "object", "properties": {"x": {"type": "string", "default": "y".repeat(920)}}}}}}),
        );
        let mut value = json!({"l": vec![json!({}); 100]});
        assert!(!set_defaults_within(10_000, &mut value, &schema));
        let set = value["l"].as_array().unwrap().iter().filter(|item| item.get("x").is_some());
        assert_eq!(set.count(), 10);
        let mut value = json!({"l": vec![json!({}); 10]});
        assert!(set_defaults_within(10_000, &mut value, &schema));
    }

    #[test]
    fn a_null_field_is_removed_unless_it_is_nullable_or_has_a_default() {
        let mut value = json!({"spec": {"p": null, "o": null, "a": {"n": null}}});
        prune_non_nullable_nulls(&mut value, &schema());
        assert_eq!(value, json!({"spec": {"o": null, "a": {"n": null}}}));
    }
}
