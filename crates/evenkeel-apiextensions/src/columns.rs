//! Cells of a custom object's row in a Table (upstream: `registry/customresource/tableconvertor`).

use jiff::Timestamp;
use serde_json::Value;

use super::jsonpath::JsonPath;

/// What a column of dates shows when the value is none.
const NO_DATE: &str = "<invalid>";

/// The cells after the name, in order of the columns; `age` says how long ago a time was.
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

fn cell(value: Option<&Value>, kind: &str, age: &impl Fn(Timestamp) -> String) -> Value {
    let Some(value) = value.filter(|v| !v.is_null()) else { return Value::Null };
    match (kind, value) {
        ("string", value) => Value::from(printed(value)),
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

/// A value as kubectl's paths print it: texts bare, all else as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
