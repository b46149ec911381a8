//! Functions of quantities and semantic versions.

use std::cmp::Ordering;

use evenkeel_api::quantity::Quantity;

use super::Outcome;
use crate::value::Val;

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(match (name, args) {
        ("quantity", [Val::Str(text)]) => {
            Quantity::parse(text).map(Val::Quantity).map_err(|error| error.to_string())
        }
        ("isQuantity", [Val::Str(text)]) => Ok(Val::Bool(Quantity::parse(text).is_ok())),
        ("semver", [Val::Str(text), rest @ ..]) => semver(text, lenient(rest))
            .ok_or_else(|| "No Major.Minor.Patch elements found".to_owned()),
        ("isSemver", [Val::Str(text), rest @ ..]) => {
            Ok(Val::Bool(semver(text, lenient(rest)).is_some()))
        }
        _ => return None,
    })
}

fn lenient(rest: &[Val<'_>]) -> bool {
    matches!(rest, [Val::Bool(true)])
}

/// Parses a semantic version. With `lenient`, it may begin with `v`, have leading zeros and omit zero parts.
pub(crate) fn semver<'a>(text: &str, lenient: bool) -> Option<Val<'a>> {
    let given = if lenient { text.strip_prefix('v').unwrap_or(text) } else { text };
    let core = given.split(['-', '+']).next().unwrap_or_default();
    let suffix = &given[core.len()..];
    let mut numbers: Vec<u64> = Vec::new();
    for part in core.split('.') {
        let part = if lenient { part.trim_start_matches('0') } else { part };
        let part = if lenient && part.is_empty() { "0" } else { part };
        if part.len() > 1 && part.starts_with('0') {
            return None;
        }
        numbers.push(part.parse().ok()?);
    }
    if lenient {
        numbers.resize(3.max(numbers.len()), 0);
    }
    let numbers: [u64; 3] = numbers.try_into().ok()?;
    Some(Val::Semver(numbers, suffix.split('+').next().unwrap_or_default().into()))
}

fn order(a: Quantity, b: Quantity) -> i64 {
    i64::from(a.minus(b).sign())
}

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Quantity(a), rest @ ..] => quantity(name, *a, rest),
        [Val::Semver(numbers, suffix), rest @ ..] => version(name, numbers, suffix, rest),
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

fn version<'a>(
    name: &str,
    numbers: &[u64; 3],
    suffix: &str,
    rest: &[Val<'a>],
) -> Option<Outcome<'a>> {
    let number = |index: usize| Val::Int(i64::try_from(numbers[index]).unwrap_or(i64::MAX));
    Some(Ok(match (name, rest) {
        ("major", []) => number(0),
        ("minor", []) => number(1),
        ("patch", []) => number(2),
        (_, [Val::Semver(others, other)]) => {
            // A version without a pre-release suffix is greater than one with a suffix.
            let by_suffix = match (suffix.is_empty(), other.is_empty()) {
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => suffix.cmp(other),
            };
            let order = numbers.cmp(others).then(by_suffix);
            match name {
                "compareTo" => Val::Int(order as i64),
                "isGreaterThan" => Val::Bool(order.is_gt()),
                "isLessThan" => Val::Bool(order.is_lt()),
                _ => return None,
            }
        }
        _ => return None,
    }))
}
