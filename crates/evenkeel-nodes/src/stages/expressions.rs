//! Expressions of Stages: of jq or CEL, over an object.

use evenkeel_api::time::{self, Timestamp};
use evenkeel_cel::{
    Program, Scope, Val,
    check::{Type, Variable, check},
};
use serde_json::Value;
use std::sync::Arc;

use super::jq::Query;
use crate::behaviour::duration;

/// Maximum cost of an expression of CEL.
const CEL_BUDGET: u64 = 1_000_000;

/// An expression that reads an object.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    Jq(Query),
    Cel(Arc<Program>),
}

/// A value, or where to read it.
#[derive(Debug, Clone)]
pub(crate) struct ValueFrom {
    /// The value if the expression has none.
    pub(crate) default: Option<i64>,
    pub(crate) expression: Option<Expression>,
}

impl Expression {
    /// Parses an expression of jq.
    pub(crate) fn jq(source: &str) -> Result<Self, String> {
        Query::parse(source).map(Self::Jq)
    }

    /// Parses an expression of CEL, in which the object is `self`.
    ///
    /// # Errors
    /// A syntax error, or a variable or function that does not exist.
    pub(crate) fn cel(source: &str) -> Result<Self, String> {
        let program = Program::parse(source)?;
        check(&program, &[Variable::new("self", Type::Dyn)])?;
        Ok(Self::Cel(Arc::new(program)))
    }
}

/// Evaluates an expression of CEL.
pub(crate) fn cel<'a>(program: &'a Program, object: &'a Value) -> Result<Val<'a>, String> {
    let scope = Scope::default().with("self", Val::of(object, None));
    let mut budget = CEL_BUDGET;
    program.run(&scope, &mut budget).map_err(|failure| failure.message())
}

/// Returns a value of CEL as a whole number. A fraction is cut, a duration is in nanoseconds, and `true` is 1.
fn whole(value: &Val<'_>) -> Option<i64> {
    match value {
        Val::Int(number) => Some(*number),
        Val::Uint(number) => i64::try_from(*number).ok(),
        Val::Double(number) => Some(*number as i64),
        Val::Duration(length) => i64::try_from(length.as_nanos()).ok(),
        Val::Bool(truth) => Some(i64::from(*truth)),
        _ => None,
    }
}

/// Returns the seconds since 1970 of a time.
pub(crate) fn unix(now: Timestamp) -> f64 {
    now.as_duration().as_secs_f64()
}

impl ValueFrom {
    /// Returns a whole number; `None` if the expression says that there is none: by an empty text, or by one that is no
    /// number.
    ///
    /// # Errors
    /// The expression of CEL fails, or is neither a number nor a duration nor a bool.
    pub(crate) fn integer(&self, object: &Value, now: Timestamp) -> Result<Option<i64>, String> {
        let value = match &self.expression {
            None => return Ok(self.default),
            Some(Expression::Cel(program)) => {
                let value = cel(program, object)?;
                let number = whole(&value);
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

    /// Returns a duration in nanoseconds, which is negative before a past time; `None` if there is none. The default is
    /// in nanoseconds. The expression's value is a text of a duration such as `5s`, or of the time (RFC 3339) at which it
    /// ends. That of CEL may also be a duration, or a number of nanoseconds.
    ///
    /// # Errors
    /// The expression of CEL fails, or is no duration.
    pub(crate) fn duration(&self, object: &Value, now: Timestamp) -> Result<Option<i64>, String> {
        let value = match &self.expression {
            None => return Ok(self.default),
            Some(Expression::Cel(program)) => {
                let value = cel(program, object)?;
                let length = match &value {
                    Val::Str(text) => nanoseconds(text, now),
                    Val::Bool(_) => None,
                    value => whole(value),
                };
                return length.map(Some).ok_or_else(|| match &value {
                    Val::Str(text) => format!("{:?} is no duration", &**text),
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

/// Parses a duration, or the time at which it ends.
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
