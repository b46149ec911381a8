//! Defaulting: sets absent fields before an object is validated and stored. Most defaults are entries of a
//! [`Table`]. Functions set the few defaults that depend on other fields. Defaulting is idempotent.
//!
//! Upstream: `zz_generated.defaults.go`, and `defaults.go` of each group.

mod apps;
mod core;
mod image;
mod objects;
mod pod;
mod service;

use evenkeel_apimachinery::value;
use serde_json::Value;

/// Default value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// String field, a plain string in Go. An empty string counts as unset.
    Text(&'static str),
    /// Optional string field, a pointer in Go. An empty string counts as set.
    Optional(&'static str),
    /// Integer field. Zero counts as set.
    Int(i64),
    /// Integer field. Zero counts as unset.
    Positive(i64),
    /// Boolean field. False counts as set.
    Flag(bool),
    /// Object field, whose default is an empty object.
    Object,
}

/// List of defaults by field path, in the syntax of [`value::each`].
pub(crate) type Table = &'static [(&'static str, Fill)];

impl Fill {
    fn is_unset(self, value: &Value) -> bool {
        match self {
            Self::Text(_) => value.is_null() || value.as_str() == Some(""),
            Self::Positive(_) => value.is_null() || value.as_i64() == Some(0),
            Self::Optional(_) | Self::Int(_) | Self::Flag(_) | Self::Object => value.is_null(),
        }
    }

    fn value(self) -> Value {
        match self {
            Self::Text(text) | Self::Optional(text) => Value::from(text),
            Self::Int(number) | Self::Positive(number) => Value::from(number),
            Self::Flag(flag) => Value::from(flag),
            Self::Object => Value::Object(value::Object::new()),
        }
    }
}

/// Sets the unset fields of an object to the defaults of a table.
pub(crate) fn fill(object: &mut Value, table: Table) {
    for (path, default) in table {
        value::each(object, path, &mut |field| {
            if default.is_unset(field) {
                *field = default.value();
            }
        });
    }
}

/// Applies the defaults of a kind. Objects of kinds without defaults and custom objects stay unchanged.
pub fn apply(group: &str, version: &str, kind: &str, object: &mut Value) {
    if !object.is_object() {
        return;
    }
    match group {
        "" => core::apply(kind, object),
        "apps" | "batch" => apps::apply(kind, object),
        _ => objects::apply(group, version, kind, object),
    }
}

pub(crate) use objects::labels_from_template;
pub(crate) use pod::pod_spec;

#[cfg(test)]
mod tests;
