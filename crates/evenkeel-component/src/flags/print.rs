//! Values as pflag prints them; what `/flagz` shows.

use super::{Type, Value, duration};

pub(super) fn value(kind: Type, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) if kind == Type::Float32 => (*value as f32).to_string(),
        Value::Float(value) => value.to_string(),
        Value::Duration(value) => duration::print(*value),
        Value::Ip(value) => value.to_string(),
        Value::Text(value) => value.clone(),
        Value::List(items) if kind == Type::CertKeys => format!("[{}]", items.join(";")),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(pairs) if kind == Type::Multimap => {
            // Keys in order; the values of one as they were given.
            let mut pairs: Vec<_> = pairs.iter().collect();
            pairs.sort_by_key(|(key, _)| key);
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            pairs.join(",")
        }
        Value::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| quoted(&format!("{key}={value}"))).collect();
            format!("[{}]", pairs.join(","))
        }
    }
}

/// Quotes what a comma or a quote would tear apart.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
