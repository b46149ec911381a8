//! Cells of the row for a custom object in a Table.
//!
//! Upstream: `registry/customresource/tableconvertor`.

use jiff::Timestamp;
use serde_json::Value;

use super::jsonpath::JsonPath;

/// Cell for a date that cannot be parsed.
const NO_DATE: &str = "<invalid>";

/// Returns the cells of the printer columns, which follow the name. `kinds` has the type of each column. `age`
/// formats the time since a timestamp.
///
/// Upstream: `ConvertToTable`.
pub fn cells(
    columns: &[JsonPath],
    kinds: &[&str],
    object: &Value,
    age: impl Fn(Timestamp) -> String,
) -> Vec<Value> {
    columns
        .iter()
        .zip(kinds)
        .map(|(path, kind)| cell(path.find(object).first().copied(), kind, &age))
        .collect()
}

/// Converts a value to a table cell of a type; null if the value does not have the type.
///
/// Upstream: `cellForJSONValue`.
fn cell(value: Option<&Value>, kind: &str, age: &impl Fn(Timestamp) -> String) -> Value {
    let Some(value) = value.filter(|v| !v.is_null()) else { return Value::Null };
    match (kind, value) {
        ("string", value) => Value::from(json_text(value)),
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|n| n as i64))
            .map_or(Value::Null, Value::from),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => {
            Value::from(text.parse::<Timestamp>().map_or_else(|_| NO_DATE.to_owned(), age))
        }
        _ => Value::Null,
    }
}

/// Formats a value as kubectl's JSON paths do: strings without quotes, other values as JSON.
fn json_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
