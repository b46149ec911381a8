//! Types of flags' values.

use super::duration;
use std::time::Duration;

/// Types that upstream's flags have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `bool`, for which `--flag` alone is true.
    Bool,
    /// Whole numbers that fit 32 bits.
    Int32,
    /// Whole numbers.
    Int,
    /// Numbers.
    Float,
    /// Go durations.
    Duration,
    /// Comma-separated lists, which add up.
    List,
    /// Anything else is kept as text.
    Text(&'static str),
}

/// A flag's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of [`Type::Bool`].
    Bool(bool),
    /// Of the whole numbers.
    Int(i64),
    /// Of [`Type::Float`].
    Float(f64),
    /// Of [`Type::Duration`].
    Duration(Duration),
    /// Of [`Type::List`].
    List(Vec<String>),
    /// Of [`Type::Text`].
    Text(String),
}

/// A flag whose value is no value of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid argument {given:?} for --{flag}: {reason}")]
pub struct ValueError {
    flag: String,
    given: String,
    reason: String,
}

impl ValueError {
    /// A value that is well formed but not allowed.
    pub fn refused(flag: &str, given: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { flag: flag.to_owned(), given: given.into(), reason: reason.into() }
    }

    pub(super) fn unknown(flag: &str) -> Self {
        Self::refused(flag, "", "there is no such flag")
    }
}

impl Type {
    pub(super) fn named(name: &'static str) -> Self {
        match name {
            "bool" => Self::Bool,
            "int32" | "Level" => Self::Int32,
            "int" => Self::Int,
            "float" | "float32" => Self::Float,
            "duration" => Self::Duration,
            "strings" => Self::List,
            other => Self::Text(other),
        }
    }

    /// Upstream's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int => "int",
            Self::Float => "float",
            Self::Duration => "duration",
            Self::List => "strings",
            Self::Text(name) => name,
        }
    }

    pub(super) fn parse(self, flag: &str, texts: &[&str]) -> Result<Value, ValueError> {
        let last = texts.last().copied().unwrap_or_default();
        let refused = |reason: String| ValueError::refused(flag, last, reason);
        Ok(match self {
            Self::Bool => Value::Bool(match last {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                _ => return Err(refused("want true or false".to_owned())),
            }),
            Self::Int32 => {
                Value::Int(last.parse::<i32>().map_err(|e| refused(e.to_string()))?.into())
            }
            Self::Int => Value::Int(
                last.parse().map_err(|e: std::num::ParseIntError| refused(e.to_string()))?,
            ),
            Self::Float => Value::Float(
                last.parse().map_err(|e: std::num::ParseFloatError| refused(e.to_string()))?,
            ),
            Self::Duration => Value::Duration(duration::parse(last).map_err(refused)?),
            Self::List => Value::List(
                texts.iter().flat_map(|text| text.split(',')).map(str::to_owned).collect(),
            ),
            Self::Text(_) => Value::Text(last.to_owned()),
        })
    }

    pub(super) fn default(self, flag: &str, default: &str) -> Result<Value, ValueError> {
        match (self, default) {
            (Self::Bool, "") => Ok(Value::Bool(false)),
            (Self::Int | Self::Int32, "") => Ok(Value::Int(0)),
            (Self::Float, "") => Ok(Value::Float(0.0)),
            (Self::Duration, "") => Ok(Value::Duration(Duration::ZERO)),
            (Self::List, "" | "[]") => Ok(Value::List(Vec::new())),
            (Self::List, list) => {
                self.parse(flag, &[list.trim_start_matches('[').trim_end_matches(']')])
            }
            _ => self.parse(flag, &[default]),
        }
    }
}
