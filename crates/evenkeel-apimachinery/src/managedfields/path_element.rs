//! Path elements in the notation of `fieldsV1`, and their form in messages.
//!
//! Upstream: `PathElement`, `internal/pathelement.go`.

use serde_json::Value;

use crate::decode::typed::quoted;
use crate::schema::node::TypeRef;

/// Returns the path element of a named field.
pub(crate) fn field(name: &str) -> Box<str> {
    ["f:", name].concat().into()
}

/// Returns the path element of a value in a set, or the reason why a set cannot have the value.
pub(crate) fn of_value(value: &Value) -> Result<Box<str>, &'static str> {
    match value {
        Value::Object(_) => Err("associative list without keys has an element that's a map type"),
        Value::Array(_) => Err("not supported: associative list with lists as elements"),
        Value::Null => Err("associative list without keys has an element that's an explicit null"),
        scalar => Ok(format!("v:{}", plain(scalar)).into()),
    }
}

/// Returns the path element of an item in a list of type `map` with items of type `item`.
pub(crate) fn of_item(
    value: &Value,
    keys: &[Box<str>],
    item: TypeRef<'_>,
) -> Result<Box<str>, String> {
    let Value::Object(entries) = value else {
        let problem = if value.is_null() { "a null element" } else { "non-map elements" };
        return Err(format!("associative list with keys may not have {problem}"));
    };
    let mut found: Vec<(&str, &Value)> = keys
        .iter()
        .filter_map(|key| Some((&**key, entries.get(&**key).or_else(|| default_of(key, item))?)))
        .collect();
    if found.is_empty() {
        let keys = keys.iter().map(|k| quoted(k)).collect::<Vec<_>>().join(" ");
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{keys}] (and doesn't have default values for any key fields)"
        ));
    }
    found.sort_by_key(|(name, _)| *name);
    Ok(key_text(&found))
}

/// Returns whether a value can be an item of a list of type `map`, so that [`of_item`] returns its path element.
pub(crate) fn is_item(value: &Value, keys: &[Box<str>], item: TypeRef<'_>) -> bool {
    let Value::Object(entries) = value else { return false };
    let has_key = |key: &str| entries.contains_key(key) || default_of(key, item).is_some();
    keys.iter().any(|key| has_key(key))
}

/// Returns the default of a key in items of type `item`.
fn default_of<'a>(key: &str, item: TypeRef<'a>) -> Option<&'a Value> {
    item.as_struct()?.field(key)?.default.as_ref()
}

fn key_text(keys: &[(&str, &Value)]) -> Box<str> {
    let mut text = b"k:{".to_vec();
    for (index, (name, value)) in keys.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        // Writes of JSON to memory do not fail.
        let _ = serde_json::to_writer(&mut text, name);
        text.push(b':');
        match value {
            Value::String(value) => drop(serde_json::to_writer(&mut text, value)),
            other => text.extend_from_slice(plain(other).as_bytes()),
        }
    }
    text.push(b'}');
    String::from_utf8_lossy(&text).into()
}

/// Encodes a scalar so that equal numbers have the same encoding.
fn plain(value: &Value) -> String {
    match value.as_f64() {
        Some(n) if value.is_f64() && n.fract() == 0.0 && n.abs() < 9e15 => (n as i64).to_string(),
        _ => value.to_string(),
    }
}

/// Parses a path element into its canonical form; `None` for an unknown kind of element.
///
/// Upstream: `NewPathElement`.
pub(crate) fn normalize(text: &str) -> Result<Option<Box<str>>, String> {
    let Some((kind, rest)) = text.split_once(':') else {
        return Err(format!("missing colon: {text}"));
    };
    let json = || serde_json::from_str::<Value>(rest).map_err(|e| format!("{text}: {e}"));
    Ok(Some(match kind {
        "f" => text.into(),
        "v" => format!("v:{}", plain(&json()?)).into(),
        "i" => format!("i:{}", rest.parse::<i64>().map_err(|e| format!("{text}: {e}"))?).into(),
        "k" => match json()? {
            Value::Object(entries) => {
                key_text(&entries.iter().map(|(k, v)| (k.as_str(), v)).collect::<Vec<_>>())
            }
            _ => return Err(format!("{text}: must be an object")),
        },
        _ => return Ok(None),
    }))
}

/// Formats a value as messages print it.
///
/// Upstream: `value.ToString`.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(entries) => {
            entries.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect()
        }
        scalar => scalar.to_string(),
    }
}

/// Formats a path as messages print it: `.spec.containers[name="a"].image`.
pub(crate) fn print(path: &[&str]) -> String {
    path.iter().map(|element| print_one(element)).collect()
}

/// Formats a path element as messages print it.
pub(crate) fn print_one(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some(("k", keys)) => match serde_json::from_str::<Value>(keys) {
            Ok(Value::Object(entries)) => {
                let parts = entries.iter().map(|(k, v)| format!("{k}={}", shown(v)));
                let parts: Vec<String> = parts.collect();
                format!("[{}]", parts.join(","))
            }
            _ => format!("[{keys}]"),
        },
        Some((_, index)) => format!("[{index}]"),
        None => element.to_owned(),
    }
}
