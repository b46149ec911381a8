//! The canonical form of a pod spec.

use std::fmt::Write;

use serde_json::Value;

use crate::quantity::Quantity;

/// Writes JSON with sorted keys, without nulls and empty lists and maps, and with canonical quantities: what upstream's
/// semantic equality of pod specs looks through. Empty objects that say something by being there (`emptyDir: {}`) stay.
pub fn canonical(spec: &Value) -> String {
    let mut text = String::new();
    push(&mut text, spec, "", "");
    if text.is_empty() {
        text.push_str("{}");
    }
    text
}

/// Names of fields that are maps, of which an empty one says no more than none.
const MAPS: [&str; 8] = [
    "nodeSelector",
    "overhead",
    "limits",
    "requests",
    "labels",
    "annotations",
    "matchLabels",
    "volumeAttributes",
];

fn says_nothing(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && (MAPS.contains(&name) || name == "options"),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_quantity(name: &str, parent: &str) -> bool {
    matches!(parent, "limits" | "requests" | "overhead") || matches!(name, "sizeLimit" | "divisor")
}

fn push(text: &mut String, value: &Value, name: &str, parent: &str) {
    match value {
        Value::Object(fields) => {
            // serde_json's map is sorted by key.
            text.push('{');
            let mut first = true;
            for (field, value) in fields.iter().filter(|(field, value)| !says_nothing(field, value))
            {
                if !std::mem::take(&mut first) {
                    text.push(',');
                }
                super::push_json(text, field);
                text.push(':');
                push(text, value, field, name);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                push(text, item, "", name);
            }
            text.push(']');
        }
        Value::String(string) if is_quantity(name, parent) => match Quantity::parse(string) {
            Ok(quantity) => super::push_json(text, &quantity.to_string()),
            Err(_) => super::push_json(text, string),
        },
        Value::Number(number) if is_quantity(name, parent) => {
            match Quantity::parse(&number.to_string()) {
                Ok(quantity) => super::push_json(text, &quantity.to_string()),
                Err(_) => super::push_json(text, &number.to_string()),
            }
        }
        Value::Null if name.is_empty() => {}
        // Writing to a string does not fail.
        other => drop(write!(text, "{other}")),
    }
}
