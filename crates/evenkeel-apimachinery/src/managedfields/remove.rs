//! Removal of fields from an object.

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::merge_type::{self, MergeType};
use super::path_element;
use crate::schema::node::{Shape, TypeRef};

/// Returns the object without the fields of a set.
///
/// Upstream: `RemoveItems`.
pub(crate) fn remove(value: &Value, to_remove: &FieldSet, type_ref: TypeRef<'_>) -> Value {
    without(value, to_remove, Some(type_ref))
}

fn without(value: &Value, to_remove: &FieldSet, type_ref: Option<TypeRef<'_>>) -> Value {
    match (merge_type::merge_type(type_ref, value), value) {
        (MergeType::Map(type_ref), Value::Object(entries)) => {
            let mut out = Map::new();
            for (key, value) in entries {
                let name = path_element::field(key);
                if to_remove.has_element(&name) {
                    continue;
                }
                let kept = match to_remove.with_prefix(&name) {
                    Some(below) => without(value, below, merge_type::field_type(type_ref, key)),
                    None => value.clone(),
                };
                out.insert(key.clone(), kept);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (MergeType::AssociativeList { item, keys }, Value::Array(items)) => {
            let mut out = Vec::with_capacity(items.len());
            for value in items {
                let Ok(name) = merge_type::item_element(value, keys, item) else { continue };
                if to_remove.has_element(&name) {
                    continue;
                }
                out.push(match to_remove.with_prefix(&name) {
                    Some(below) => without(value, below, Some(item)),
                    None => value.clone(),
                });
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        (MergeType::Atomic, Value::Object(_) | Value::Array(_)) => Value::Null,
        _ => value.clone(),
    }
}

/// Adds the declared fields above members to the set, so that a struct is a member if one of its fields is a member.
///
/// Upstream: `EnsureNamedFieldsAreMembers`.
pub(crate) fn ensure_named_fields_are_members(set: &FieldSet, type_ref: TypeRef<'_>) -> FieldSet {
    set.with_named_prefixes(Some(type_ref), &|type_ref: Option<TypeRef<'_>>, element: &str| {
        match element.split_once(':') {
            Some(("f", name)) => {
                let is_named = merge_type::is_named_field(type_ref, name);
                (is_named, merge_type::field_type(type_ref, name))
            }
            Some(("k", _)) => {
                let item = type_ref.and_then(|type_ref| match type_ref.shape() {
                    Shape::List { item, .. } => Some(type_ref.to(*item)),
                    _ => None,
                });
                (false, item)
            }
            _ => (false, None),
        }
    })
}
