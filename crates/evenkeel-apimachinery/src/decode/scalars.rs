//! Single values: which JSON each type takes, and the one spelling that the server gives back.

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

/// Why a value was not taken.
pub(crate) enum Problem {
    /// JSON of another form.
    Form,
    /// A number that the type cannot hold, as written.
    Number(String),
    /// JSON of another form, for a type whose reader expects this Go type.
    As(&'static str),
    /// Words of the type's own reader.
    Text(String),
}

/// Reads a value that is not null as one of the single-valued types.
pub(crate) fn read(shape: &Shape, json: &Json<'_>) -> Result<Value, Problem> {
    match (shape, json) {
        (Shape::Bool, Json::Bool(b)) => Ok(Value::Bool(*b)),
        (Shape::Int { bits }, Json::Number(text)) => int(text, *bits),
        (Shape::Float, Json::Number(text)) => float(text),
        (Shape::String, Json::String(s)) => Ok(Value::String(s.clone().into_owned())),
        (Shape::Bytes, Json::String(s)) => bytes(s),
        (Shape::Time, Json::String(s)) => time(s).map(|t| evenkeel_api::time::seconds(t).into()),
        (Shape::MicroTime, Json::String(s)) => micro_time(s),
        (Shape::Duration, Json::String(s)) => {
            evenkeel_api::duration::canonical(s).map(Value::String).map_err(Problem::Text)
        }
        (Shape::Quantity, Json::String(s)) => quantity(s),
        (Shape::Quantity, Json::Number(s)) => quantity(s),
        (Shape::IntOrString, Json::String(s)) => Ok(Value::String(s.clone().into_owned())),
        (Shape::IntOrString, Json::Number(text)) => int(text, 32),
        (Shape::Time | Shape::MicroTime | Shape::Duration, _) => Err(Problem::As("string")),
        (Shape::IntOrString, _) => Err(Problem::As("int32")),
        (Shape::Quantity, _) => Err(Problem::Text(NO_QUANTITY.to_owned())),
        _ => Err(Problem::Form),
    }
}

const NO_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

fn int(text: &str, bits: u8) -> Result<Value, Problem> {
    let int = i64::from_str(text).ok().filter(|n| bits == 64 || i32::try_from(*n).is_ok());
    int.map(Value::from).ok_or_else(|| Problem::Number(text.to_owned()))
}

fn float(text: &str) -> Result<Value, Problem> {
    match number(text) {
        Value::Null => Err(Problem::Number(text.to_owned())),
        value => Ok(value),
    }
}

fn bytes(text: &str) -> Result<Value, Problem> {
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
            Err(Problem::Text(format!("illegal base64 data at input byte {at}")))
        }
    }
}

fn quantity(text: &str) -> Result<Value, Problem> {
    let quantity =
        Quantity::parse(text.trim()).map_err(|_| Problem::Text(NO_QUANTITY.to_owned()))?;
    Ok(quantity.to_string().into())
}

/// RFC 3339 as Go reads it: upper-case `T`, a zone, any number of decimals.
fn time(text: &str) -> Result<Timestamp, Problem> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let shaped = text.len() >= 20
        && text.is_ascii()
        && text.as_bytes()[10] == b'T'
        && text.as_bytes()[16] == b':';
    shaped
        .then(|| PARSER.parse_timestamp(text).ok())
        .flatten()
        .ok_or_else(|| Problem::Text(no_time(text, "2006-01-02T15:04:05Z07:00")))
}

fn micro_time(text: &str) -> Result<Value, Problem> {
    let six = text
        .split_once('.')
        .is_some_and(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count() == 6);
    match time(text) {
        Ok(t) if six => Ok(t.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string().into()),
        _ => Err(Problem::Text(no_time(text, "2006-01-02T15:04:05.000000Z07:00"))),
    }
}

/// Go names the first part of the layout that the text does not fit.
fn no_time(text: &str, layout: &str) -> String {
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
