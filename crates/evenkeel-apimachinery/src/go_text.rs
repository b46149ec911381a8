//! Untyped values in Go's formats `%v` and `%#v`, for messages.

use evenkeel_api::quote::{escape_html, quote};
use serde_json::Value;

/// Formats a value as `%v` does: `map[a:1 b:[x y]]`.
pub fn go(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// Formats a value as `%#v` does: `map[string]interface {}{"a":1, "b":[]interface {}{"x", "y"}}`.
pub(crate) fn go_syntax(value: &Value) -> String {
    let joined = |items: Vec<String>| items.join(", ");
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", joined(items.iter().map(go_syntax).collect()))
        }
        Value::Object(entries) => {
            let entries =
                entries.iter().map(|(key, value)| format!("{}:{}", quote(key), go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", joined(entries.collect()))
        }
    }
}

/// Encodes a value as Go's `encoding/json` does: with `<`, `>`, `&` and the line separators escaped.
pub fn go_json(value: &Value) -> String {
    escape_html(value.to_string())
}

/// Encodes a string as Go's `encoding/json` does.
pub fn go_json_string(text: &str) -> String {
    escape_html(Value::from(text).to_string())
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push_str("map[");
            for (i, (key, value)) in entries.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write(value, out);
            }
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_gos_format() {
        let value = json!({"a": 1, "b": ["x", null, true]});
        assert_eq!(go(&value), "map[a:1 b:[x <nil> true]]");
        let syntax =
            r#"map[string]interface {}{"a":1, "b":[]interface {}{"x", interface {}(nil), true}}"#;
        assert_eq!(go_syntax(&value), syntax);
        assert_eq!(go_json(&json!({"<": ["a & b\n"]})), r#"{"\u003c":["a \u0026 b\n"]}"#);
    }
}
