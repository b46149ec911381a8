//! Formats values as pflag prints them, for `/flagz` and the log.

use super::{Type, Value, duration};

pub(super) fn format_value(kind: Type, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) if kind == Type::Float32 => {
            format_number(&(*value as f32).to_string(), &format!("{:e}", *value as f32))
        }
        Value::Float(value) => format_number(&value.to_string(), &format!("{value:e}")),
        Value::Duration(value) => duration::print(*value),
        Value::Ip(value) => value.to_string(),
        Value::Text(value) => value.clone(),
        Value::List(items) if kind == Type::CertKeys => format!("[{}]", items.join(";")),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| quote(item)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(pairs) if kind == Type::Multimap => {
            // Sort by key only. The values of a key keep their order.
            let mut pairs: Vec<_> = pairs.iter().collect();
            pairs.sort_by_key(|(key, _)| key);
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            pairs.join(",")
        }
        Value::Map(pairs) => {
            let mut pairs: Vec<_> = pairs.iter().collect();
            pairs.sort();
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| quote(&format!("{key}={value}"))).collect();
            format!("[{}]", pairs.join(","))
        }
    }
}

/// Formats a number as Go's `%g` does. `plain` and `scientific` are its two spellings in Rust. The result has an
/// exponent, of at least two digits, if the exponent is below -4 or above 5.
fn format_number(plain: &str, scientific: &str) -> String {
    let exponent = scientific.split_once('e').and_then(|(digits, exponent)| {
        let exponent: i32 = exponent.parse().ok()?;
        (!(-4..6).contains(&exponent)).then_some((digits, exponent))
    });
    match exponent {
        Some((digits, exponent)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        None => plain.to_owned(),
    }
}

/// Quotes an item that contains a comma or a quote, so that the list can be parsed again.
fn quote(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
