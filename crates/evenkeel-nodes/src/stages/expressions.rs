//! Expressions of Stages in jq or CEL, evaluated on an object.

use evenkeel_api::time::{self, Timestamp};
use evenkeel_cel::{
    Program, Scope, Val,
    check::{Type, Variable, check},
};
use serde_json::Value;
use std::sync::Arc;

use super::jq::Query;
use crate::behaviour::duration;

/// Maximum cost of a CEL expression.
const CEL_BUDGET: u64 = 1_000_000;

/// An expression that reads an object.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    Jq(Query),
    Cel(Arc<Program>),
}

/// A value of a Stage: fixed, or from an expression.
#[derive(Debug, Clone)]
pub(crate) struct ValueFrom {
    /// Value without an expression, or if the expression returns no value.
    pub(crate) default: Option<i64>,
    pub(crate) expression: Option<Expression>,
}

impl Expression {
    /// Parses a jq expression.
    pub(crate) fn jq(source: &str) -> Result<Self, String> {
        Query::parse(source).map(Self::Jq)
    }

    /// Parses a CEL expression. Its variable `self` is the object.
    ///
    /// # Errors
    /// Fails on a syntax error, and for a variable or function that does not exist.
    pub(crate) fn cel(source: &str) -> Result<Self, String> {
        let program = Program::parse(source)?;
        check(&program, &[Variable::new("self", Type::Dyn)])?;
        Ok(Self::Cel(Arc::new(program)))
    }
}

/// Evaluates a CEL expression.
pub(crate) fn cel<'a>(program: &'a Program, object: &'a Value) -> Result<Val<'a>, String> {
    let scope = Scope::default().with("self", Val::of(object, None));
    let mut budget = CEL_BUDGET;
    program.run(&scope, &mut budget).map_err(|failure| failure.message())
}

/// Converts a value of CEL to an integer. Truncates a fraction; a duration is in nanoseconds, and `true` is 1.
fn to_integer(value: &Val<'_>) -> Option<i64> {
    match value {
        Val::Int(number) => Some(*number),
        Val::Uint(number) => i64::try_from(*number).ok(),
        Val::Double(number) => Some(*number as i64),
        Val::Duration(length) => i64::try_from(length.as_nanos()).ok(),
        Val::Bool(truth) => Some(i64::from(*truth)),
        _ => None,
    }
}

/// Returns a time in seconds since 1970.
pub(crate) fn unix(now: Timestamp) -> f64 {
    now.as_duration().as_secs_f64()
}

impl ValueFrom {
    /// Returns an integer; `None` if the expression returns a string that is empty or not a number.
    ///
    /// # Errors
    /// Fails if the CEL expression fails, or returns neither a number nor a duration nor a bool.
    pub(crate) fn integer(&self, object: &Value, now: Timestamp) -> Result<Option<i64>, String> {
        let value = match &self.expression {
            None => return Ok(self.default),
            Some(Expression::Cel(program)) => {
                let value = cel(program, object)?;
                let number = to_integer(&value);
                return number
                    .map(Some)
                    .ok_or_else(|| format!("its type is {}, not number", value.type_name()));
            }
            Some(Expression::Jq(query)) => {
                query.run(object, unix(now)).and_then(|outputs| outputs.into_iter().next())
            }
        };
        Ok(match value {
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(Value::Number(number)) => number
                .as_i64()
                .or_else(|| number.as_f64().map(|number| number as i64))
                .or(self.default),
            _ => self.default,
        })
    }

    /// Returns a duration in nanoseconds; `None` if the expression returns an empty string. The default is in
    /// nanoseconds. The expression returns a string: a duration such as `5s`, or an end time in RFC 3339. If that time
    /// has passed, the duration is negative. A CEL expression may also return a duration, or a number of nanoseconds.
    ///
    /// # Errors
    /// Fails if the CEL expression fails, or does not return a duration.
    pub(crate) fn duration(&self, object: &Value, now: Timestamp) -> Result<Option<i64>, String> {
        let value = match &self.expression {
            None => return Ok(self.default),
            Some(Expression::Cel(program)) => {
                let value = cel(program, object)?;
                let length = match &value {
                    Val::Str(text) => nanoseconds(text, now),
                    Val::Bool(_) => None,
                    value => to_integer(value),
                };
                return length.map(Some).ok_or_else(|| match &value {
                    Val::Str(text) => format!("{:?} is not a duration", &**text),
                    value => format!("its type is {}, not duration", value.type_name()),
                });
            }
            Some(Expression::Jq(query)) => {
                query.run(object, unix(now)).and_then(|outputs| outputs.into_iter().next())
            }
        };
        Ok(match value.as_ref().and_then(Value::as_str) {
            Some("") => None,
            Some(text) => nanoseconds(text, now).or(self.default),
            None => self.default,
        })
    }
}

/// Parses a duration, or the end time of a duration. Returns nanoseconds.
fn nanoseconds(text: &str, now: Timestamp) -> Option<i64> {
    if let Ok(end) = time::parse(text) {
        return i64::try_from(end.duration_since(now).as_nanos()).ok();
    }
    let (sign, length) = match text.strip_prefix('-') {
        Some(length) => (-1, length),
        None => (1, text),
    };
    let length = i64::try_from(duration(length).ok()?.as_nanos()).ok()?;
    Some(sign * length)
}
