//! Requirement of a label selector.

use std::fmt;

use super::SelectorError;
use crate::forms;
use crate::text::Text;

/// Operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `=`, also for `matchLabels`: the label has the value.
    Equals,
    /// `==`, which is equivalent to `=`.
    DoubleEquals,
    /// `!=`: the label has another value or is absent.
    NotEquals,
    /// `in`: the label has one of the values.
    In,
    /// `notin`: the label has none of the values or is absent.
    NotIn,
    /// The label exists, with any value.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// `>`: the label is an integer greater than the value.
    GreaterThan,
    /// `<`: the label is an integer less than the value.
    LessThan,
}

/// Requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    pub(super) key: Text,
    pub(super) operator: Operator,
    pub(super) values: Box<[Text]>,
}

/// Checks a key in a query string. Upstream's error has no path for it.
///
/// Upstream: `validateLabelKey`.
pub(super) fn check_key(key: &str) -> Result<(), SelectorError> {
    let messages = forms::qualified_name(key);
    if messages.is_empty() {
        return Ok(());
    }
    let why = messages.join("; ");
    Err(SelectorError::new(format!("<nil>: Invalid value: {key:?}: {why}")))
}

impl Requirement {
    /// Validates and returns a requirement.
    ///
    /// # Errors
    /// Fails if the key or a value is invalid, or the operator does not take this number of values.
    pub fn new(key: &str, operator: Operator, values: Box<[Text]>) -> Result<Self, SelectorError> {
        let mut errors = Vec::new();
        let mut invalid = |path: &str, value: &dyn fmt::Debug, why: &str| {
            errors.push(format!("{path}: Invalid value: {value:?}: {why}"));
        };
        let messages = forms::qualified_name(key);
        if !messages.is_empty() {
            invalid("key", &key, &messages.join("; "));
        }
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                let why = "for 'in', 'notin' operators, values set can't be empty";
                invalid("values", &values, why);
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals
                if values.len() != 1 =>
            {
                invalid("values", &values, "exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                let why = "values set must be empty for exists and does not exist";
                invalid("values", &values, why);
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    let why = "for 'Gt', 'Lt' operators, exactly one value is required";
                    invalid("values", &values, why);
                }
                for (index, value) in values.iter().enumerate() {
                    if value.parse::<i64>().is_err() {
                        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                        invalid(&format!("values[{index}]"), value, why);
                    }
                }
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let messages = forms::label_value(value);
            if !messages.is_empty() {
                invalid(&format!("values[{index}][{key}]"), value, &messages.join("; "));
            }
        }
        match &*errors {
            [] => {}
            [error] => return Err(SelectorError::new(&**error)),
            errors => return Err(SelectorError::new(format!("[{}]", errors.join(", ")))),
        }
        Ok(Self { key: key.into(), operator, values })
    }

    /// Returns the requirement that `key` equals `value`, without validation.
    pub(super) fn equals(key: &str, value: &str) -> Self {
        Self { key: key.into(), operator: Operator::Equals, values: Box::new([value.into()]) }
    }

    /// Returns the key of the label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// Returns the values to compare the label with; for `>` and `<`, the bound.
    pub fn values(&self) -> &[Text] {
        &self.values
    }

    /// Returns whether the requirement matches a label with this value, or an absent label (`None`).
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|listed| **listed == *value);
        // Compares label and bound as integers. A label that is not an integer does not match.
        let matches_bound = |compare: fn(&i64, &i64) -> bool| {
            let bound = self.values.first().and_then(|bound| bound.parse().ok());
            let value = value.and_then(|value| value.parse().ok());
            value.zip(bound).is_some_and(|(value, bound)| compare(&value, &bound))
        };
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => {
                value.is_some_and(is_listed)
            }
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => matches_bound(i64::gt),
            Operator::LessThan => matches_bound(i64::lt),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values: Vec<&str> = self.values.iter().map(|value| &**value).collect();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}
