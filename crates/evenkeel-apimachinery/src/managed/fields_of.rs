//! Which fields an object has, and whether an applied one is well formed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::element;
use super::form::{self, Form};
use super::set::FieldSet;
use crate::schema::node::{At, Shape};
use crate::value::go_type;

/// The set of all fields of `value`.
pub(crate) fn fields_of(value: &Value, at: At<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    collect(value, Some(at), &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, at: Option<At<'_>>, path: &mut Vec<Box<str>>, set: &mut FieldSet) {
    match form::form(at, value) {
        Form::Leaf => set.insert(path),
        Form::Map(at) => {
            for (key, value) in form::entries(Some(value)).into_iter().flatten() {
                let (child, named) = form::field(at, key);
                path.push(element::field(key));
                collect(value, child, path, set);
                let hollow =
                    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if hollow || !named {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Form::List { item, keys } => collect_items(form::items(Some(value)), item, keys, path, set),
    }
}

fn collect_items(
    items: &[Value],
    item: At<'_>,
    keys: &[Box<str>],
    path: &mut Vec<Box<str>>,
    set: &mut FieldSet,
) {
    let mut by_element: BTreeMap<Box<str>, Vec<&Value>> = BTreeMap::new();
    for value in items {
        if let Ok(element) = form::item_element(value, keys, item) {
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

/// What is wrong with an object that is applied: fields that are not declared, values of a wrong form, items that
/// cannot be told apart. Each with its path.
pub(crate) fn problems(value: &Value, at: At<'_>) -> Vec<String> {
    let mut found = Vec::new();
    check(value, Some(at), "", &mut found);
    found
}

fn check(value: &Value, at: Option<At<'_>>, path: &str, found: &mut Vec<String>) {
    let Some(place) = at else { return };
    let mut report =
        |what: String| found.push(if path.is_empty() { what } else { format!("{path}: {what}") });
    match (place.shape(), value) {
        (_, Value::Null) | (Shape::Any | Shape::Raw, _) => {}
        (Shape::Struct(_) | Shape::Map { .. }, Value::Object(entries)) => {
            for (key, value) in entries {
                let path = format!("{path}.{key}");
                if form::is_declared(at, key) {
                    check(value, form::field(at, key).0, &path, found);
                } else {
                    found.push(format!("{path}: field not declared in schema"));
                }
            }
        }
        (Shape::Struct(_) | Shape::Map { .. }, other) => {
            report(format!("expected map, got &{{{other}}}"));
        }
        (Shape::List { .. }, Value::Array(items)) => check_items(items, place, path, found),
        (Shape::List { .. }, other) => report(format!("expected list, got &{{{other}}}")),
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
            report(format!("expected string, got &value.valueUnstructured{{Value:{other}}}"));
        }
        (Shape::Bool, other) => {
            report(format!("expected boolean, got &value.valueUnstructured{{Value:{other}}}"));
        }
        (_, Value::Object(_) | Value::Array(_)) => {
            report(format!("expected any scalar, got {}", go_type(value).unwrap_or("nil")));
        }
        _ => {}
    }
}

fn check_items(items: &[Value], place: At<'_>, path: &str, found: &mut Vec<String>) {
    let Shape::List { item, .. } = place.shape() else { return };
    let Form::List { item, keys } = form::form(Some(place), &Value::Null) else {
        for (i, value) in items.iter().enumerate() {
            check(value, Some(place.to(*item)), &format!("{path}[{i}]"), found);
        }
        return;
    };
    let mut seen = BTreeSet::new();
    for (i, value) in items.iter().enumerate() {
        match form::item_element(value, keys, item) {
            Err(what) => found.push(format!("{path}: element {i}: {what}")),
            Ok(element) => {
                let printed = element::print_one(&element);
                check(value, Some(item), &format!("{path}{printed}"), found);
                if !seen.insert(element) {
                    found.push(format!("{path}: duplicate entries for key {printed}"));
                }
            }
        }
    }
}
