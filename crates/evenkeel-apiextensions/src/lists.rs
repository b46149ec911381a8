//! Lists that are sets or maps hold nothing twice (upstream: `schema/listtype`).

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::node::{ListKind, Node};
use evenkeel_apimachinery::status::FieldError;

/// Every element that repeats another one.
pub fn duplicates(value: &Value, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(child) = node.child(name) else { continue };
                duplicates(value, child, &super::validate::below(path, name), errors);
            }
        }
        Value::Array(items) => {
            match node.list {
                ListKind::Set => same_values(items, path, errors),
                ListKind::Map => same_keys(items, node, path, errors),
                ListKind::Atomic => {}
            }
            let Some(child) = &node.items else { return };
            for (i, item) in items.iter().enumerate() {
                duplicates(item, child, &format!("{path}[{i}]"), errors);
            }
        }
        _ => {}
    }
}

fn same_values(items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        if !seen.insert(item) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), item.clone()));
        }
    }
}

fn same_keys(items: &[Value], node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let keys: Vec<Vec<Option<&Value>>> = items.iter().map(|item| node.key_of(item)).collect();
    let mut seen = HashSet::with_capacity(keys.len());
    for (i, key) in keys.iter().enumerate() {
        if seen.insert(key) || !items[i].is_object() {
            continue;
        }
        let shown: Map<String, Value> = node
            .keys
            .iter()
            .zip(key)
            .filter_map(|(name, value)| Some((name.to_string(), (*value)?.clone())))
            .collect();
        errors.push(FieldError::duplicate(format!("{path}[{i}]"), shown));
    }
}
