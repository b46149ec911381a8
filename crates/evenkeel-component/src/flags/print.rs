//! Values as pflag prints them; what `/flagz` shows.

use super::{Type, Value, duration};

pub(super) fn value(kind: Type, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) if kind == Type::Float32 => {
            number(&(*value as f32).to_string(), &format!("{:e}", *value as f32))
        }
        Value::Float(value) => number(&value.to_string(), &format!("{value:e}")),
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

/// A number as Go's `%g` has it: with an exponent of two digits where it is below -4 or above 5.
fn number(plain: &str, scientific: &str) -> String {
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

/// Quotes what a comma or a quote would tear apart.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
