//! Field set of an object, and validation of an applied object.

use crate::go_text::{go, go_syntax};
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::field_set::FieldSet;
use super::merge_type::{self, MergeType};
use super::path_element;
use crate::schema::node::{Shape, TypeRef};
use crate::value::go_type;

/// Returns the set of all fields of `value`.
///
/// Upstream: `ToFieldSet`.
pub(crate) fn to_field_set(value: &Value, type_ref: TypeRef<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    collect(value, Some(type_ref), &mut Vec::new(), &mut set);
    set
}

/// Adds the fields of a value at `path` to the set.
fn collect(
    value: &Value,
    type_ref: Option<TypeRef<'_>>,
    path: &mut Vec<Box<str>>,
    set: &mut FieldSet,
) {
    match merge_type::merge_type(type_ref, value) {
        MergeType::Atomic => set.insert(path),
        MergeType::Map(type_ref) => {
            for (key, value) in merge_type::entries(Some(value)).into_iter().flatten() {
                path.push(path_element::field(key));
                collect(value, merge_type::field_type(type_ref, key), path, set);
                let is_empty =
                    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if is_empty || !merge_type::is_named_field(type_ref, key) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        MergeType::AssociativeList { item, keys } => {
            collect_items(merge_type::items(Some(value)), item, keys, path, set);
        }
    }
}

fn collect_items(
    items: &[Value],
    item: TypeRef<'_>,
    keys: &[Box<str>],
    path: &mut Vec<Box<str>>,
    set: &mut FieldSet,
) {
    let mut by_element: BTreeMap<Box<str>, Vec<&Value>> = BTreeMap::new();
    for value in items {
        if let Ok(element) = merge_type::item_element(value, keys, item) {
            by_element.entry(element).or_default().push(value);
        }
    }
    for (element, values) in by_element {
        path.push(element);
        if let [value] = values.as_slice() {
            collect(value, Some(item), path, set);
        }
        set.insert(path);
        path.pop();
    }
}

/// Validates an applied object: finds undeclared fields, values of a wrong type and duplicate list items. Each
/// error contains its path.
///
/// Upstream: `AsTyped`, `validatingObjectWalker`.
pub(crate) fn validation_errors(value: &Value, type_ref: TypeRef<'_>) -> Vec<String> {
    let mut walker = Walker { allows_duplicates: false, errors: Vec::new() };
    walker.validate(value, Some(type_ref), "");
    walker.errors
}

/// Returns whether all values have the types that the schema declares. Lists may have duplicate items.
///
/// Upstream: `ObjectToTyped` with `AllowDuplicates`.
pub(crate) fn is_typed(value: &Value, type_ref: TypeRef<'_>) -> bool {
    let mut walker = Walker { allows_duplicates: true, errors: Vec::new() };
    walker.validate(value, Some(type_ref), "");
    walker.errors.is_empty()
}

/// Validation of a value, with the errors so far.
///
/// Upstream: `validatingObjectWalker`.
struct Walker {
    allows_duplicates: bool,
    errors: Vec<String>,
}

/// Returns whether an associative list in the value has an item without a path element, for example without its keys.
pub(crate) fn has_items_without_key(value: &Value, type_ref: TypeRef<'_>) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            (value.is_object() || value.is_array())
                && type_ref.child(name).is_some_and(|field| has_items_without_key(value, field))
        }),
        Value::Array(items) => match merge_type::merge_type(Some(type_ref), &Value::Null) {
            MergeType::AssociativeList { item, keys } => items.iter().any(|value| {
                !merge_type::is_item(value, keys, item) || has_items_without_key(value, item)
            }),
            _ => {
                let Shape::List { item, .. } = type_ref.shape() else { return false };
                items.iter().any(|value| has_items_without_key(value, type_ref.to(*item)))
            }
        },
        _ => false,
    }
}

/// Formats a value as upstream's structured-merge-diff does.
fn unstructured(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go_syntax(value))
}

impl Walker {
    fn validate(&mut self, value: &Value, type_ref: Option<TypeRef<'_>>, path: &str) {
        let Some(type_ref) = type_ref else { return };
        let errors = &mut self.errors;
        let mut report = |detail: String| {
            errors.push(if path.is_empty() { detail } else { format!("{path}: {detail}") });
        };
        match (type_ref.shape(), value) {
            (_, Value::Null) | (Shape::Any | Shape::Raw, _) => {}
            (Shape::Struct(_) | Shape::Map { .. }, Value::Object(entries)) => {
                for (key, value) in entries {
                    let path = format!("{path}.{key}");
                    if merge_type::is_declared(Some(type_ref), key) {
                        self.validate(value, type_ref.child(key), &path);
                    } else {
                        // Upstream looks at no further field of this map.
                        self.errors.push(format!("{path}: field not declared in schema"));
                        break;
                    }
                }
            }
            (Shape::Struct(_) | Shape::Map { .. }, other) => {
                report(format!("expected map, got &{{{}}}", go(other)));
            }
            (Shape::List { .. }, Value::Array(items)) => self.validate_items(items, type_ref, path),
            (Shape::List { .. }, other) => report(format!("expected list, got &{{{}}}", go(other))),
            (Shape::Int { .. } | Shape::Float, Value::Number(_))
            | (Shape::String | Shape::Bytes, Value::String(_))
            | (Shape::Bool, Value::Bool(_)) => {}
            (Shape::Int { .. } | Shape::Float, other) => {
                report(format!(
                    "expected numeric (int or float), got {}",
                    go_type(other).unwrap_or("nil")
                ));
            }
            (Shape::String | Shape::Bytes, other) => {
                report(format!("expected string, got {}", unstructured(other)));
            }
            (Shape::Bool, other) => {
                report(format!("expected boolean, got &{{{}}}", go(other)));
            }
            (_, Value::Object(_) | Value::Array(_)) => {
                report(format!("expected any scalar, got &{{{}}}", go(value)));
            }
            _ => {}
        }
    }

    fn validate_items(&mut self, items: &[Value], type_ref: TypeRef<'_>, path: &str) {
        let Shape::List { item, .. } = type_ref.shape() else { return };
        let MergeType::AssociativeList { item, keys } =
            merge_type::merge_type(Some(type_ref), &Value::Null)
        else {
            for (i, value) in items.iter().enumerate() {
                self.validate(value, Some(type_ref.to(*item)), &format!("{path}[{i}]"));
            }
            return;
        };
        let mut seen = BTreeSet::new();
        for (i, value) in items.iter().enumerate() {
            match merge_type::item_element(value, keys, item) {
                Err(detail) => self.errors.push(format!("{path}: element {i}: {detail}")),
                Ok(element) => {
                    let printed = path_element::print_one(&element);
                    self.validate(value, Some(item), &format!("{path}{printed}"));
                    if !seen.insert(element) && !self.allows_duplicates {
                        self.errors.push(format!("{path}: duplicate entries for key {printed}"));
                    }
                }
            }
        }
    }
}
