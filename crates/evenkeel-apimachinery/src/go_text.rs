//! Untyped values in Go's formats `%v` and `%#v`, for messages.

use evenkeel_api::quote::{escape_html, quote};
use serde_json::{Number, Value};

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
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => go_number(number),
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

/// Formats a value as `%s` does: other scalars than strings are marked, as in `%!s(int64=5)`.
pub(crate) fn go_string(value: &Value) -> String {
    // An inner nil has no mark.
    let inner = |value: &Value| match value {
        Value::Null => "<nil>".to_owned(),
        other => go_string(other),
    };
    let joined = |items: Vec<String>| items.join(" ");
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(flag) => format!("%!s(bool={flag})"),
        Value::Number(number) if number.is_f64() => format!("%!s(float64={})", go_number(number)),
        Value::Number(number) => format!("%!s(int64={number})"),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(inner).collect())),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{key}:{}", inner(value)));
            format!("map[{}]", joined(entries.collect()))
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

/// Formats a number as Go does: a float that is integral without a fraction.
fn go_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e21 => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Bool(flag) => out.push_str(&flag.to_string()),
        Value::Number(number) => out.push_str(&go_number(number)),
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
        let marked = "map[a:%!s(int64=1) b:[x <nil> %!s(bool=true)]]";
        assert_eq!(go_string(&value), marked);
        assert_eq!(go(&json!([1.0, 1.5, 2])), "[1 1.5 2]");
        assert_eq!(go_json(&json!({"<": ["a & b\n"]})), r#"{"\u003c":["a \u0026 b\n"]}"#);
    }
}
