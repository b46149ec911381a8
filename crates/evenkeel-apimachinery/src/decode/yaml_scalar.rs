//! Resolution of YAML 1.1 scalars to JSON.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granit_parser::ScalarStyle;

use super::json::Json;

/// Resolves a scalar. `tag` is the suffix of a core tag (`int`, `str`, …).
pub(crate) fn resolve(
    text: &str,
    style: ScalarStyle,
    tag: Option<&str>,
) -> Result<Json<'static>, String> {
    let string = || Json::String(Cow::Owned(text.to_owned()));
    match tag {
        Some("str") => return Ok(string()),
        Some("binary") => {
            let bytes = STANDARD
                .decode(text)
                .map_err(|_| "yaml: !!binary value contains invalid base64 data")?;
            return Ok(Json::String(String::from_utf8_lossy(&bytes).into_owned().into()));
        }
        None if style != ScalarStyle::Plain => return Ok(string()),
        _ => {}
    }
    let json = word(text).or_else(|| number(text)).unwrap_or_else(string);
    match (tag, &json) {
        (Some("float"), Json::Number(_)) | (None, _) => Ok(json),
        (Some("int"), Json::Number(_))
        | (Some("bool"), Json::Bool(_))
        | (Some("null"), Json::Null) => Ok(json),
        (Some(tag @ ("int" | "bool" | "null" | "float")), _) => {
            Err(format!("yaml: cannot decode !!str `{text}` as a !!{tag}"))
        }
        (Some(_), _) => Ok(json),
    }
}

fn word(text: &str) -> Option<Json<'static>> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Json::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Json::Bool(false)
        }
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        _ => return None,
    })
}

fn number(text: &str) -> Option<Json<'static>> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(&plain)).map(|text| Json::Number(Cow::Owned(text)))
}

/// Parses an integer with one of Go's prefixes: `0b`, `0o`, `0` (octal) or `0x`; decimal without a prefix.
fn integer(text: &str) -> Option<String> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, body) = match lower.as_bytes() {
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if !body.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = u64::from_str_radix(body, base).ok()?;
    if sign == "-" && value > 1 << 63 {
        return None;
    }
    Some(if value == 0 { "0".to_owned() } else { format!("{sign}{value}") })
}

/// Parses a decimal fraction, with or without an exponent. Infinities and NaN have no JSON form and remain strings.
fn float(text: &str) -> Option<String> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let allowed = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !unsigned.chars().all(allowed)
    {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then(|| value.to_string())
}
