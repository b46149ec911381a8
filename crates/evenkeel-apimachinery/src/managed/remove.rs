//! Taking fields out of an object.

use serde_json::{Map, Value};

use super::element;
use super::form::{self, Form};
use super::set::FieldSet;
use crate::schema::node::{At, Shape};

/// The object without the fields of `doomed`.
pub(crate) fn remove(value: &Value, doomed: &FieldSet, at: At<'_>) -> Value {
    without(value, doomed, Some(at))
}

fn without(value: &Value, doomed: &FieldSet, at: Option<At<'_>>) -> Value {
    match (form::form(at, value), value) {
        (Form::Map(at), Value::Object(entries)) => {
            let mut out = Map::new();
            for (key, value) in entries {
                let name = element::field(key);
                if doomed.owns(&name) {
                    continue;
                }
                let kept = match doomed.below(&name) {
                    Some(below) => without(value, below, form::field(at, key).0),
                    None => value.clone(),
                };
                out.insert(key.clone(), kept);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Form::List { item, keys }, Value::Array(items)) => {
            let mut out = Vec::with_capacity(items.len());
            for value in items {
                let Ok(name) = form::item_element(value, keys, item) else { continue };
                if doomed.owns(&name) {
                    continue;
                }
                out.push(match doomed.below(&name) {
                    Some(below) => without(value, below, Some(item)),
                    None => value.clone(),
                });
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        (Form::Leaf, Value::Object(_) | Value::Array(_)) => Value::Null,
        _ => value.clone(),
    }
}

/// The set with the named fields on the way to its fields in it too: a struct is there as long as one of its fields is.
pub(crate) fn with_named(set: &FieldSet, at: At<'_>) -> FieldSet {
    set.with_ways(Some(at), &|at: Option<At<'_>>, element: &str| match element.split_once(':') {
        Some(("f", name)) => {
            let (child, named) = form::field(at, name);
            (named, child)
        }
        Some(("k", _)) => {
            let item = at.and_then(|at| match at.shape() {
                Shape::List { item, .. } => Some(at.to(*item)),
                _ => None,
            });
            (false, item)
        }
        _ => (false, None),
    })
}
