//! Functions of quantities. Upstream: `cel/library/quantity.go`.

use evenkeel_api::quantity::{Quantity, QuantityError};

use super::Outcome;
use crate::value::Val;

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(match (name, args) {
        ("quantity", [Val::Str(text)]) => {
            Quantity::parse(text).map(Val::Quantity).map_err(|error| message(&error).to_owned())
        }
        ("isQuantity", [Val::Str(text)]) => Ok(Val::Bool(Quantity::parse(text).is_ok())),
        // Upstream declares it as a function, and documents it as a method.
        ("sign", [Val::Quantity(a)]) => Ok(Val::Int(i64::from(a.sign()))),
        _ => return None,
    })
}

/// Returns upstream's error message for a malformed quantity.
fn message(error: &QuantityError) -> &'static str {
    match error {
        QuantityError::Format(_) => {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        }
        QuantityError::Suffix(_) => "unable to parse quantity's suffix",
    }
}

/// Returns -1, 0 or 1 if `a` is less than, equal to or greater than `b`.
fn order(a: Quantity, b: Quantity) -> i64 {
    i64::from(a.minus(b).sign())
}

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Quantity(a), rest @ ..] => quantity(name, *a, rest),
        _ => None,
    }
}

fn quantity<'a>(name: &str, a: Quantity, rest: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(Ok(match (name, rest) {
        ("sign", []) => Val::Int(i64::from(a.sign())),
        ("isInteger", []) => Val::Bool(Quantity::from_units(a.value()) == a),
        ("asInteger", []) if Quantity::from_units(a.value()) == a => Val::Int(a.value()),
        ("asInteger", []) => return Some(Err("cannot convert value to integer".to_owned())),
        ("asApproximateFloat", []) => Val::Double(a.as_f64()),
        ("isGreaterThan", [Val::Quantity(b)]) => Val::Bool(order(a, *b) > 0),
        ("isLessThan", [Val::Quantity(b)]) => Val::Bool(order(a, *b) < 0),
        ("compareTo", [Val::Quantity(b)]) => Val::Int(order(a, *b)),
        ("add", [Val::Quantity(b)]) => Val::Quantity(a.plus(*b)),
        ("sub", [Val::Quantity(b)]) => Val::Quantity(a.minus(*b)),
        ("add", [Val::Int(b)]) => Val::Quantity(a.plus(Quantity::from_units(*b))),
        ("sub", [Val::Int(b)]) => Val::Quantity(a.minus(Quantity::from_units(*b))),
        _ => return None,
    }))
}
