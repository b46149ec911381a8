//! Prints values as Go does, and as YAML.

use serde_json::{Number, Value};
use std::fmt::Write as _;

/// Returns whether a value counts as true: it is neither a zero value nor empty.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Returns the number of steps that the creation or copy of a value takes.
pub(super) fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / 64,
        Value::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(weight).sum::<usize>(),
        _ => 1,
    }
}

/// Returns the name of a value's type for messages.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// Returns the output of an action for a value.
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        other => text(other),
    }
}

/// Returns a value as Go's `fmt.Sprint` prints it.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// Returns a number as `%v` prints it: with an exponent below 10⁻⁴ and from 10²¹.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let exponent = if float == 0.0 { 0.0 } else { float.abs().log10().floor() };
    if !(-4.0..21.0).contains(&exponent) {
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    float.to_string()
}

/// Formats as Go's `fmt.Sprintf`: the verbs `v`, `s`, `d`, `q`, `t`, `x`, `f`, `e` and `%`, with flags, width and
/// precision.
///
/// # Errors
/// Fails for an unknown verb, and for a width above 1000.
pub(super) fn printf(format: &str, arguments: &[Value]) -> Result<String, String> {
    let (mut out, mut chars, mut arguments) =
        (String::new(), format.chars().peekable(), arguments.iter());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut flags = String::new();
        while let Some(flag) = chars.next_if(|c| matches!(*c, '-' | '+' | '0' | ' ' | '#')) {
            flags.push(flag);
        }
        let width = digits(&mut chars)?.unwrap_or_default();
        let precision = match chars.next_if_eq(&'.') {
            Some(_) => Some(digits(&mut chars)?.unwrap_or_default()),
            None => None,
        };
        let verb = chars.next().ok_or("a format ends with \"%\"")?;
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = arguments.next() else {
            let _ = write!(out, "%!{verb}(MISSING)");
            continue;
        };
        let mut word = formatted(verb, value, precision, &flags)?;
        if flags.contains('+') && value.is_number() && !word.starts_with('-') {
            word.insert(0, '+');
        }
        let missing = width.saturating_sub(word.chars().count());
        if flags.contains('-') {
            word.push_str(&" ".repeat(missing));
        } else if flags.contains('0') && value.is_number() {
            let sign = usize::from(word.starts_with(['-', '+']));
            word.insert_str(sign, &"0".repeat(missing));
        } else {
            word.insert_str(0, &" ".repeat(missing));
        }
        out.push_str(&word);
    }
    Ok(out)
}

/// Reads a number of digits, at most 1000.
fn digits(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Result<Option<usize>, &'static str> {
    let mut word = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        word.push(digit);
    }
    if word.is_empty() {
        return Ok(None);
    }
    let number = word.parse().ok().filter(|number| *number <= 1000);
    number.map(Some).ok_or("a format has a width above 1000")
}

/// Formats one value by a verb.
fn formatted(
    verb: char,
    value: &Value,
    precision: Option<usize>,
    flags: &str,
) -> Result<String, String> {
    let number = || value.as_f64().unwrap_or_default();
    Ok(match verb {
        'v' => text(value),
        's' => match precision {
            Some(length) => text(value).chars().take(length).collect(),
            None => text(value),
        },
        'd' => match value {
            Value::Number(number) => number.as_i64().map_or_else(|| text(value), |n| n.to_string()),
            other => text(other),
        },
        't' => text(value),
        'q' => quoted(&text(value)),
        'x' if value.is_number() => format!("{:x}", value.as_i64().unwrap_or_default()),
        'x' => text(value).bytes().map(|byte| format!("{byte:02x}")).collect(),
        'f' => format!("{:.*}", precision.unwrap_or(6), number()),
        'e' => format!("{:.*e}", precision.unwrap_or(6), number()),
        other => return Err(format!("printf knows no verb \"%{flags}{other}\"")),
    })
}

/// Returns a string in quotation marks, with escapes.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns a value as a YAML block.
pub(super) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

/// Writes a value as lines with this indentation. An object or array that is not empty starts on the current line.
fn block(value: &Value, indentation: usize, out: &mut String) {
    let pad = " ".repeat(indentation);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push_str(&pad);
                }
                let _ = write!(out, "{}:", scalar(&Value::from(&**key)));
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        let _ = write!(out, "\n{pad}  ");
                        block(value, indentation + 2, out);
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        let _ = write!(out, "\n{pad}");
                        block(value, indentation, out);
                    }
                    other => {
                        let _ = writeln!(out, " {}", scalar(other));
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(&pad);
                }
                out.push_str("- ");
                block(item, indentation + 2, out);
            }
        }
        other => {
            let _ = writeln!(out, "{}", scalar(other));
        }
    }
}

/// Returns a scalar, or an empty collection, in YAML. A string is plain if every parser of YAML reads it as a string.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
                && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                    .contains(&&*text.to_ascii_lowercase());
            if is_plain { text.clone() } else { quoted(text) }
        }
        other => other.to_string(),
    }
}
