//! Scalar types: the JSON that each accepts, and the canonical form in responses.

use std::str::FromStr;

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine, alphabet};
use evenkeel_api::quantity::Quantity;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimeParser;
use serde_json::Value;

use super::json::{Json, number};
use crate::schema::node::Shape;

/// Reason why a scalar was rejected.
pub(crate) enum ScalarError {
    /// The JSON has another type.
    Type,
    /// The number, as written, is out of the type's range.
    Range(String),
    /// The JSON has another type than this Go type, into which the scalar type unmarshals.
    GoType(&'static str),
    /// The type's own parser rejected the string with this error.
    Text(String),
}

/// Decodes a value that is not null as a scalar type.
pub(crate) fn read(shape: &Shape, json: &Json<'_>) -> Result<Value, ScalarError> {
    match (shape, json) {
        (Shape::Bool, Json::Bool(b)) => Ok(Value::Bool(*b)),
        (Shape::Int { bits }, Json::Number(text)) => int(text, *bits),
        (Shape::Float, Json::Number(text)) => float(text),
        (Shape::String, Json::String(s)) => Ok(Value::String(s.clone().into_owned())),
        (Shape::Bytes, Json::String(s)) => bytes(s),
        (Shape::Time, Json::String(s)) => time(s).map(|t| evenkeel_api::time::seconds(t).into()),
        (Shape::MicroTime, Json::String(s)) => micro_time(s),
        (Shape::Duration, Json::String(s)) => {
            evenkeel_api::duration::canonical(s).map(Value::String).map_err(ScalarError::Text)
        }
        (Shape::Quantity, Json::String(s)) => quantity(s),
        (Shape::Quantity, Json::Number(s)) => quantity(s),
        (Shape::IntOrString, Json::String(s)) => Ok(Value::String(s.clone().into_owned())),
        (Shape::IntOrString, Json::Number(text)) => int(text, 32),
        (Shape::Time | Shape::MicroTime | Shape::Duration, _) => Err(ScalarError::GoType("string")),
        (Shape::IntOrString, _) => Err(ScalarError::GoType("int32")),
        (Shape::Quantity, _) => Err(ScalarError::Text(QUANTITY_ERROR.to_owned())),
        _ => Err(ScalarError::Type),
    }
}

const QUANTITY_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

fn int(text: &str, bits: u8) -> Result<Value, ScalarError> {
    let int = i64::from_str(text).ok().filter(|n| bits == 64 || i32::try_from(*n).is_ok());
    int.map(Value::from).ok_or_else(|| ScalarError::Range(text.to_owned()))
}

/// Converts a number of an unstructured object to an integer as Go does: an integral float becomes an integer, and
/// a number that is too large wraps around.
///
/// Upstream: `fromUnstructured`.
pub(super) fn converted_int(text: &str, bits: u8) -> Option<i64> {
    let whole = |float: &f64| float.fract() == 0.0;
    let number = i64::from_str(text)
        .ok()
        .or_else(|| f64::from_str(text).ok().filter(whole).map(|float| float as i64))?;
    Some(if bits == 64 { number } else { i64::from(number as i32) })
}

fn float(text: &str) -> Result<Value, ScalarError> {
    match number(text) {
        Value::Null => Err(ScalarError::Range(text.to_owned())),
        value => Ok(value),
    }
}

/// Base64 decoder that ignores unused bits of the last character, as Go's does.
static IGNORES_UNUSED_BITS: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes base64 as Go does, ignoring unused bits of the last character, and returns it with these bits zero.
fn bytes(text: &str) -> Result<Value, ScalarError> {
    let stripped: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match IGNORES_UNUSED_BITS.decode(&stripped) {
        Ok(bytes) => Ok(Value::String(STANDARD.encode(bytes))),
        Err(_) => {
            let offset = corrupt_base64(text.as_bytes()).unwrap_or_default();
            Err(ScalarError::Text(format!("illegal base64 data at input byte {offset}")))
        }
    }
}

/// Returns the offset of the first invalid byte of base64 as Go reports it; `None` if `text` is valid.
///
/// Upstream: `decodeQuantum` of Go's `encoding/base64`.
fn corrupt_base64(text: &[u8]) -> Option<usize> {
    let mut input =
        text.iter().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n')).peekable();
    while input.peek().is_some() {
        for place in 0..4 {
            match input.next() {
                Some((_, byte)) if byte.is_ascii_alphanumeric() || b"+/".contains(byte) => {}
                Some((at, b'=')) if place < 2 => return Some(at),
                Some((_, b'=')) => {
                    if place == 2 {
                        match input.next() {
                            Some((_, b'=')) => {}
                            Some((at, _)) => return Some(at.saturating_sub(1)),
                            None => return Some(text.len()),
                        }
                    }
                    return input.next().map(|(at, _)| at);
                }
                Some((at, _)) => return Some(at),
                None => return Some(text.len().saturating_sub(place)),
            }
        }
    }
    None
}

fn quantity(text: &str) -> Result<Value, ScalarError> {
    let quantity =
        Quantity::parse(text.trim()).map_err(|_| ScalarError::Text(QUANTITY_ERROR.to_owned()))?;
    Ok(quantity.to_string().into())
}

/// Parses RFC 3339 as Go does: upper-case `T`, a zone, any number of decimals.
fn time(text: &str) -> Result<Timestamp, ScalarError> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let parsed = if is_rfc3339(text.as_bytes()) { PARSER.parse_timestamp(text).ok() } else { None };
    match parsed {
        // Upstream stores such a time, but no client can decode it from JSON.
        Some(time) if time < YEAR_ZERO => Err(ScalarError::Text(format!(
            "parsing time {}: year outside of range [0,9999]",
            quoted_time(text)
        ))),
        Some(time) => Ok(time),
        None => Err(ScalarError::Text(time_error(text, ""))),
    }
}

/// 0000-01-01T00:00:00Z, the first time that RFC 3339 can represent in UTC.
const YEAR_ZERO: Timestamp = Timestamp::constant(-62_167_219_200, 0);

/// Returns whether `text` has the form of RFC 3339. The parser also accepts leap seconds, short zones and annotations.
fn is_rfc3339(text: &[u8]) -> bool {
    let [_, _, _, _, _, _, _, _, _, _, b'T', _, _, _, _, _, b':', b'0'..b'6', _, rest @ ..] = text
    else {
        return false;
    };
    let zone = match rest {
        [b'.' | b',', decimals @ ..] => {
            let digits = decimals.iter().take_while(|byte| byte.is_ascii_digit()).count();
            decimals.get(digits..).filter(|_| digits > 0).unwrap_or_default()
        }
        zone => zone,
    };
    match zone {
        [b'Z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()),
        _ => false,
    }
}

fn micro_time(text: &str) -> Result<Value, ScalarError> {
    let six = text
        .split_once(['.', ','])
        .is_some_and(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count() == 6);
    match time(text) {
        Ok(t) if six => Ok(t.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string().into()),
        _ => Err(ScalarError::Text(time_error(text, ".000000"))),
    }
}

/// Returns Go's error for a string that does not match the layout `2006-01-02T15:04:05Z07:00`, with `fraction` after
/// the seconds. The error names the first part of the layout that does not match, or the first number out of range.
///
/// Upstream: `Parse` and `ParseError` of Go's `time`.
fn time_error(text: &str, fraction: &str) -> String {
    let (mut rest, mut numbers) = (text.as_bytes(), Vec::new());
    let parts = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"];
    let whole = quoted_time(text);
    let layout = format!("2006-01-02T15:04:05{fraction}Z07:00");
    let missing = |rest: &[u8], part: &str| {
        let rest = quoted_bytes(rest);
        format!("parsing time {whole} as \"{layout}\": cannot parse {rest} as \"{part}\"")
    };
    let out_of_range = |name: &str| format!("parsing time {whole}: {name} out of range");
    for part in parts {
        let Some((head, tail)) = rest.split_at_checked(part.len()) else {
            return missing(rest, part);
        };
        if part.len() == 1 && head != part.as_bytes() {
            return missing(rest, part);
        }
        if part.len() > 1 {
            let number = head.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(head));
            let Some(number) = number.and_then(|text| text.ok()?.parse::<i16>().ok()) else {
                return missing(rest, part);
            };
            match part {
                "01" if !(1..=12).contains(&number) => return out_of_range("month"),
                "15" if number > 23 => return out_of_range("hour"),
                "04" if number > 59 => return out_of_range("minute"),
                "05" if number > 59 => return out_of_range("second"),
                _ => numbers.push(number),
            }
        }
        rest = tail;
    }
    let count_digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match (rest, fraction.len()) {
        ([b'.' | b',', digits @ ..], 0) if count_digits(digits) > 0 => {
            rest = digits.get(count_digits(digits)..).unwrap_or_default();
        }
        (_, 0) => {}
        ([b'.' | b',', digits @ ..], length)
            if count_digits(digits).saturating_add(1) >= length =>
        {
            rest = rest.get(length..).unwrap_or_default();
        }
        _ => return missing(rest, fraction),
    }
    let rest = match rest {
        [b'Z', rest @ ..] => rest,
        [b'+' | b'-', h1, h2, b':', m1, m2, rest @ ..]
            if [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()) =>
        {
            rest
        }
        _ => return missing(rest, "Z07:00"),
    };
    let day_exists = match numbers.as_slice() {
        [year, month, day, ..] => {
            let narrow = |number: &i16| i8::try_from(*number).unwrap_or_default();
            jiff::civil::Date::new(*year, narrow(month), narrow(day)).is_ok()
        }
        _ => false,
    };
    match rest {
        [] if !day_exists => out_of_range("day"),
        [] => out_of_range("time zone offset hour"),
        rest => format!("parsing time {whole}: extra text: {}", quoted_bytes(rest)),
    }
}

/// Quotes a string as Go's errors about times do: each control character and each byte outside ASCII is escaped.
fn quoted_time(text: &str) -> String {
    quoted_bytes(text.as_bytes())
}

fn quoted_bytes(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' | 0x7f => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_rfc3339_are_refused() {
        for (text, want) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.123456789+05:30", "2026-01-01T21:34:05Z"),
            ("2026-01-02T03:04:05,5Z", "2026-01-02T03:04:05Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ] {
            let read = time(text).ok().map(evenkeel_api::time::seconds);
            assert_eq!(read.as_deref(), Some(want), "{text}");
        }
        for text in [
            "0000-01-01T00:00:00+01:00",
            "2026-01-02T03:04:60Z",
            "2026-01-02T03:04:05z",
            "2026-01-02T03:04:05+05",
            "2026-01-02T03:04:05+0530",
            "2026-01-02T03:04:05Z[UTC]",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:é5Z",
            "",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_micro_time_has_six_decimals() {
        for (text, want) in [
            ("2026-01-02T03:04:05.123456Z", Some("2026-01-02T03:04:05.123456Z")),
            ("2026-01-02T03:04:05,123456+01:00", Some("2026-01-02T02:04:05.123456Z")),
            ("2026-01-02T03:04:05.12345Z", None),
            ("2026-01-02T03:04:05.1234567Z", None),
            ("2026-01-02T03:04:05Z", None),
        ] {
            assert_eq!(micro_time(text).ok(), want.map(Value::from), "{text}");
        }
    }

    #[test]
    fn errors_of_times_and_base64_have_gos_text() {
        let layout = |fraction: &str| format!("2006-01-02T15:04:05{fraction}Z07:00");
        let missing = |text: &str, fraction: &str, rest: &str, part: &str| {
            let layout = layout(fraction);
            format!(r#"parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{part}""#)
        };
        for (text, fraction, want) in [
            ("now", "", missing("now", "", "now", "2006")),
            ("2024-1-01", "", missing("2024-1-01", "", "1-01", "01")),
            ("ü", "", missing(r"\xc3\xbc", "", r"\xc3\xbc", "2006")),
            (
                "2024-02-30T00:00:00Z",
                "",
                r#"parsing time "2024-02-30T00:00:00Z": day out of range"#.to_owned(),
            ),
            (
                "2024-13-30T00:00:00Z",
                "",
                r#"parsing time "2024-13-30T00:00:00Z": month out of range"#.to_owned(),
            ),
            ("2024-01-01T00:00:00", "", missing("2024-01-01T00:00:00", "", "", "Z07:00")),
            (
                "2024-01-01T00:00:00Z",
                ".000000",
                missing("2024-01-01T00:00:00Z", ".000000", "Z", ".000000"),
            ),
            (
                "2024-01-01T00:00:00Zx",
                "",
                r#"parsing time "2024-01-01T00:00:00Zx": extra text: "x""#.to_owned(),
            ),
        ] {
            assert_eq!(time_error(text, fraction), want);
        }
        for (text, at) in [
            ("YQ==", None),
            ("YR==", None),
            ("Y\nQ==\n", None),
            ("ünï", Some(0)),
            ("a", Some(0)),
            ("YWJjY", Some(4)),
            ("YQ=", Some(3)),
            ("YQ=a", Some(2)),
            ("YQ==a", Some(4)),
            ("Y!==", Some(1)),
            ("=", Some(0)),
        ] {
            assert_eq!(corrupt_base64(text.as_bytes()), at, "{text}");
        }
        assert_eq!(bytes("YR==").ok(), Some(Value::from("YQ==")));
    }
}
