//! Scalar types: the JSON that each accepts, and the canonical form in responses.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_api::quantity::Quantity;
use jiff::Timestamp;
use jiff::fmt::temporal::DateTimeParser;
use serde_json::Value;

use super::json::{Json, number};
use super::typed::quoted;
use crate::schema::node::Shape;

/// Reason why a scalar was rejected.
pub(crate) enum ScalarError {
    /// The JSON has another type.
    Type,
    /// The number, as written, is out of the type's range.
    Range(String),
    /// The JSON has another type than this Go type, into which the scalar type unmarshals.
    GoType(&'static str),
    /// The type's own parser rejected the text, with this error.
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

fn bytes(text: &str) -> Result<Value, ScalarError> {
    let stripped: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(&stripped) {
        Ok(_) => Ok(Value::String(stripped)),
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _)
                | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
                    stripped.len() & !3
                }
            };
            Err(ScalarError::Text(format!("illegal base64 data at input byte {at}")))
        }
    }
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
            quoted(text)
        ))),
        Some(time) => Ok(time),
        None => Err(ScalarError::Text(time_error(text, "2006-01-02T15:04:05Z07:00"))),
    }
}

/// 0000-01-01T00:00:00Z, the first time that RFC 3339 can represent in UTC.
const YEAR_ZERO: Timestamp = Timestamp::constant(-62_167_219_200, 0);

/// Whether a text has the form of RFC 3339. The parser accepts more: leap seconds, short zones and annotations.
fn is_rfc3339(text: &[u8]) -> bool {
    let [_, _, _, _, _, _, _, _, _, _, b'T', _, _, _, _, _, b':', b'0'..b'6', _, rest @ ..] = text
    else {
        return false;
    };
    let zone = match rest {
        [b'.' | b',', decimals @ ..] => {
            let n_digits = decimals.iter().take_while(|byte| byte.is_ascii_digit()).count();
            decimals.get(n_digits..).filter(|_| n_digits > 0).unwrap_or_default()
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
        .split_once('.')
        .is_some_and(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count() == 6);
    match time(text) {
        Ok(t) if six => Ok(t.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string().into()),
        _ => Err(ScalarError::Text(time_error(text, "2006-01-02T15:04:05.000000Z07:00"))),
    }
}

/// Returns Go's error, which names the first part of the layout that the text does not match.
fn time_error(text: &str, layout: &str) -> String {
    let parts = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"];
    let (mut rest, mut missing) = (text, "Z07:00");
    for part in parts {
        let digits = part.bytes().all(|b| b.is_ascii_digit());
        let fits = if digits {
            rest.len() >= part.len() && rest.bytes().take(part.len()).all(|b| b.is_ascii_digit())
        } else {
            rest.starts_with(part)
        };
        if !fits {
            missing = part;
            break;
        }
        rest = &rest[part.len()..];
    }
    let (text, rest) = (quoted(text), quoted(rest));
    format!("parsing time {text} as \"{layout}\": cannot parse {rest} as \"{missing}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_form_of_rfc3339() {
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
}
