//! Differences of two states, as lines for a message.

use super::state::State;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of lines.
const MAX_LINES: usize = 30;

/// Maximum number of characters of a value.
const MAX_CHARS: usize = 300;

/// Returns lines that show the differences between a state and the state without a fault; no lines if they are equal.
pub(super) fn differences(state: &State, without_fault: &State) -> Vec<String> {
    let mut pairs: BTreeMap<&String, (&[Value], &[Value])> = BTreeMap::new();
    for (key, objects) in without_fault {
        pairs.entry(key).or_default().1 = objects;
    }
    for (key, objects) in state {
        pairs.entry(key).or_default().0 = objects;
    }
    let mut lines = Vec::new();
    for (key, (objects, wanted)) in pairs {
        if objects.len() != wanted.len() {
            let (n, wanted) = (objects.len(), wanted.len());
            lines.push(format!("{key}: {n} objects, without the fault {wanted}"));
            continue;
        }
        for (object, wanted) in objects.iter().zip(wanted) {
            compare(key, "", object, wanted, &mut lines);
        }
    }
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("and {more} more"));
    }
    lines
}

fn compare(key: &str, path: &str, value: &Value, wanted: &Value, lines: &mut Vec<String>) {
    if value == wanted {
        return;
    }
    match (value, wanted) {
        (Value::Object(fields), Value::Object(others)) => {
            let names: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
            for name in names {
                let field = |object: &Value| object.get(name).cloned().unwrap_or_default();
                compare(key, &format!("{path}.{name}"), &field(value), &field(wanted), lines);
            }
        }
        (Value::Array(all), Value::Array(others)) if all.len() == others.len() => {
            for (n, (value, wanted)) in all.iter().zip(others).enumerate() {
                compare(key, &format!("{path}[{n}]"), value, wanted, lines);
            }
        }
        _ => {
            let (value, wanted, path) = (short(value), short(wanted), path.trim_start_matches('.'));
            lines.push(format!("{key}: {path}: {value}, without the fault {wanted}"));
        }
    }
}

/// Returns a value as a string, and `nothing` for a field that does not exist.
fn short(value: &Value) -> String {
    if value.is_null() {
        return "nothing".to_owned();
    }
    value.to_string().chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_name_object_field_and_both_values() {
        let state = |objects: Vec<(&str, Vec<Value>)>| -> State {
            objects.into_iter().map(|(key, objects)| (key.to_owned(), objects)).collect()
        };
        let wanted = state(vec![
            ("App a", vec![json!({"status": {"ready": 2, "list": [1, 2]}})]),
            ("Pod b", vec![json!({}), json!({})]),
            ("Map c", vec![json!({})]),
        ]);
        assert_eq!(differences(&wanted, &wanted), [""; 0]);
        let found = state(vec![
            ("App a", vec![json!({"status": {"ready": 1, "list": [1, 3], "more": "x"}})]),
            ("Pod b", vec![json!({})]),
            ("Set d", vec![json!({})]),
        ]);
        assert_eq!(
            differences(&found, &wanted),
            [
                "App a: status.list[1]: 3, without the fault 2",
                "App a: status.more: \"x\", without the fault nothing",
                "App a: status.ready: 1, without the fault 2",
                "Map c: 0 objects, without the fault 1",
                "Pod b: 1 objects, without the fault 2",
                "Set d: 1 objects, without the fault 0",
            ]
        );
    }
}
