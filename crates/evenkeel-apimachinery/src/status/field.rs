//! Validation errors of single fields, with upstream's messages.

use std::fmt::{self, Display};

use serde_json::Value;

use crate::go_text::go_json;

use evenkeel_api::quote::quote;

/// A validation error about one field.
///
/// Upstream: `field.Error`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldError {
    /// Type of the error, which determines its reason and message.
    pub kind: FieldErrorKind,
    /// Path of the field, such as `spec.ports[0].name`.
    pub field: String,
    /// The invalid value; `None` omits it from the message.
    pub value: Option<BadValue>,
    /// Explanation of the rule that the value breaks; it may be empty.
    pub detail: String,
}

/// A value as an error quotes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BadValue {
    /// A value of the stored version.
    Value(Value),
    /// The JSON of a value of another version, such as the internal one.
    Encoded(String),
}

impl BadValue {
    /// Returns the approximate length of the message in bytes.
    fn size(&self) -> usize {
        fn size(value: &Value) -> usize {
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => 4,
                Value::String(text) => 2 + text.len(),
                Value::Array(items) => 2 + items.iter().map(|item| 1 + size(item)).sum::<usize>(),
                Value::Object(fields) => {
                    let fields = fields.iter().map(|(key, value)| 4 + key.len() + size(value));
                    2 + fields.sum::<usize>()
                }
            }
        }
        match self {
            Self::Value(value) => size(value),
            Self::Encoded(json) => json.len(),
        }
    }
}

impl Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(Value::String(text)) => f.write_str(&quote(text)),
            Self::Value(value) => f.write_str(&go_json(value)),
            Self::Encoded(json) => f.write_str(json),
        }
    }
}

impl<T: Into<Value>> From<T> for BadValue {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

/// Types of [`FieldError`], each with its reason and its message.
///
/// Upstream: `ErrorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// The referenced object does not exist.
    NotFound,
    /// The value is missing.
    Required,
    /// The value is a duplicate.
    Duplicate,
    /// The value breaks a rule.
    Invalid,
    /// The value is not one of an enumeration.
    NotSupported,
    /// The value may not be set here.
    Forbidden,
    /// The value has too many bytes.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// The value is of another type.
    TypeInvalid,
    /// A rule could not be evaluated.
    Internal,
}

impl FieldErrorKind {
    /// Returns the reason for `causes[].reason`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TypeInvalid => "Invalid value",
            Self::Internal => "Internal error",
        }
    }

    /// Returns whether the message contains the invalid value.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

impl FieldError {
    /// Maximum total size in bytes of the errors of one object, enough for thousands; further errors are not
    /// listed.
    pub(crate) const MAX_TOTAL_SIZE: usize = 256 * 1024;

    /// Returns a placeholder for the errors beyond [`Self::MAX_TOTAL_SIZE`]. Upstream lists all errors without a limit.
    pub(crate) fn not_all_listed() -> Self {
        let detail = "there are more errors than can be listed; correct these to see the others";
        Self::invalid("<nil>", Value::Null, detail)
    }

    /// Returns the approximate length of the message in bytes.
    pub(crate) fn size(&self) -> usize {
        self.field.len() + self.detail.len() + self.value.as_ref().map_or(0, BadValue::size) + 16
    }

    fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Option<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), value, detail: detail.into() }
    }

    /// Returns an error for an invalid value.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    /// Returns an error for an invalid value that the message omits.
    ///
    /// Upstream: `field.OmitValueType`.
    pub(crate) fn invalid_whole(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, None, detail)
    }

    /// Returns an error for a required value that is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    /// Returns an error for a value that is not one of `supported`. The message lists the supported values in this
    /// order.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<BadValue>,
        supported: &[&str],
    ) -> Self {
        let quoted: Vec<String> = supported.iter().map(|v| quote(v)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, Some(value.into()), detail)
    }

    /// Returns an error for a value of the wrong type; `actual` is the name of its type.
    pub fn type_invalid(field: impl Into<String>, actual: &str, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, Some(actual.into()), detail)
    }

    /// Returns an error for a list with more than `max` items; `actual` is their number.
    pub fn too_many(field: impl Into<String>, actual: u64, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(FieldErrorKind::TooMany, field, Some(actual.into()), detail)
    }

    /// Returns an error for a value that may not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// Returns an error for a value whose rule could not be evaluated.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// Returns an error for a duplicate value.
    pub fn duplicate(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value.into()), "")
    }

    /// Returns an error for a reference to an object that does not exist.
    pub(crate) fn not_found(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(value.into()), "")
    }

    /// Returns an error for a value of more than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(
            FieldErrorKind::TooLong,
            field,
            None,
            format!("may not be more than {max} {unit}"),
        )
    }

    /// Returns an error for a value of more than `max` characters.
    pub(crate) fn too_long_characters(field: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "character" } else { "characters" };
        Self::new(
            FieldErrorKind::TooLong,
            field,
            None,
            format!("may not be more than {max} {unit}"),
        )
    }

    /// Returns the message without the field path.
    ///
    /// Upstream: `ErrorBody`.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if self.kind.shows_value()
            && let Some(value) = &self.value
        {
            text.push_str(&format!(": {value}"));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}
