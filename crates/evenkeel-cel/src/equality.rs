//! Equality and order of values. Upstream: cel-go's `common/types`.

use std::cmp::Ordering;

use serde_json::Value;

use super::value::Val;

/// Number of one of the three numeric types.
#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i64),
    Uint(u64),
    Double(f64),
}

impl Number {
    fn of(value: &Val<'_>) -> Option<Self> {
        match value {
            Val::Int(n) => Some(Self::Int(*n)),
            Val::Uint(n) => Some(Self::Uint(*n)),
            Val::Double(n) => Some(Self::Double(*n)),
            _ => None,
        }
    }

    fn as_f64(self) -> f64 {
        match self {
            Self::Int(n) => n as f64,
            Self::Uint(n) => n as f64,
            Self::Double(n) => n,
        }
    }

    /// Compares two numbers: integers exactly, other numbers as floating-point numbers. Returns `None` if one is NaN.
    fn compare(self, other: Self) -> Option<Ordering> {
        let integer = |number: Self| match number {
            Self::Int(n) => Some(i128::from(n)),
            Self::Uint(n) => Some(i128::from(n)),
            Self::Double(_) => None,
        };
        match (integer(self), integer(other)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }
}

impl Val<'_> {
    /// Returns the keys of a list of type `map`, or no keys for one of type `set`; `None` for other values.
    pub(crate) fn list_keys(&self) -> Option<&[Box<str>]> {
        match self {
            Self::Json(Value::Array(_), Some(schema)) => schema.list_keys(),
            _ => None,
        }
    }

    /// Returns whether upstream has no overload to compare the two values: it cannot compare an object or a list with a
    /// schema to a value of another type, except null.
    pub(crate) fn refuses_comparison(&self, other: &Self) -> bool {
        match self {
            Self::Json(Value::Object(_), Some(_)) => {
                other.map_len().is_none() && !matches!(other, Self::Null)
            }
            Self::Json(Value::Array(_), Some(_)) => {
                other.list_len().is_none() && !matches!(other, Self::Null)
            }
            _ => false,
        }
    }

    /// Returns whether two values are equal; numbers are compared across their types.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Time(a), Self::Time(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, n), Self::Cidr(b, m)) => a == b && n == m,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (a, b) => a.is_none() && b.is_none(),
            },
            (Self::Struct(a, a_fields), Self::Struct(b, b_fields)) => {
                let has_field = |name: &String, value: &Self| {
                    b_fields.iter().any(|(other, field)| other == name && value.equals(field))
                };
                a == b
                    && a_fields.len() == b_fields.len()
                    && a_fields.iter().all(|(name, value)| has_field(name, value))
            }
            _ => self.equals_number_or_container(other),
        }
    }

    /// Returns whether two numbers, lists or maps are equal, whatever their variants.
    fn equals_number_or_container(&self, other: &Self) -> bool {
        if let (Some(a), Some(b)) = (Number::of(self), Number::of(other)) {
            return a.compare(b) == Some(Ordering::Equal);
        }
        if let (Some(a), Some(b)) = (self.list_len(), other.list_len()) {
            if a != b {
                return false;
            }
            let is_unordered = match (self, other) {
                (Self::Json(_, Some(schema)), _) | (_, Self::Json(_, Some(schema))) => {
                    schema.is_unordered()
                }
                _ => false,
            };
            // Usually, the order is the same: this takes less time than the comparison without order.
            let is_same_in_order = self.elements().zip(other.elements()).all(|(a, b)| a.equals(&b));
            let is_in_other = |item: Self| other.elements().any(|element| item.equals(&element));
            return is_same_in_order || is_unordered && self.elements().all(is_in_other);
        }
        match (self.map_len(), other.map_len()) {
            (Some(a), Some(b)) if a == b => self
                .pairs()
                .into_iter()
                .flatten()
                .all(|(key, value)| other.entry(&key).is_some_and(|found| value.equals(&found))),
            _ => false,
        }
    }

    /// Returns a number of any type as `f64`; `None` for other types.
    pub fn number(&self) -> Option<f64> {
        Number::of(self).map(Number::as_f64)
    }

    /// Compares two values; `None` if their types have no order.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Str(a), Self::Str(b)) => Some((**a).cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Time(a), Self::Time(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            _ => Number::of(self)?.compare(Number::of(other)?),
        }
    }

    /// Returns the number of nested values including the value itself, at most `limit`. Ten characters of a string
    /// count as one value. Comparing two values takes time proportional to this number.
    pub(crate) fn nodes(&self, limit: u64) -> u64 {
        fn json_nodes(value: &Value, limit: u64) -> u64 {
            let mut count = 1;
            match value {
                Value::String(text) => count += text.len() as u64 / 10,
                Value::Array(items) => {
                    for item in items {
                        if count >= limit {
                            break;
                        }
                        count += json_nodes(item, limit - count);
                    }
                }
                Value::Object(fields) => {
                    for (name, value) in fields {
                        if count >= limit {
                            break;
                        }
                        count += name.len() as u64 / 10 + json_nodes(value, limit - count);
                    }
                }
                _ => {}
            }
            count.min(limit)
        }
        let mut count = 1;
        let mut add = |value: &Self| {
            if count < limit {
                count += value.nodes(limit - count);
            }
        };
        match self {
            Self::Json(value, _) => return json_nodes(value, limit),
            Self::Str(text) => count += text.len() as u64 / 10,
            Self::Bytes(bytes) => count += bytes.len() as u64 / 10,
            Self::List(items) => items.iter().for_each(add),
            Self::Map(entries) | Self::MapWithDefault(entries, _) => {
                entries.iter().for_each(|(key, value)| {
                    add(key);
                    add(value);
                });
            }
            Self::Optional(Some(value)) => add(value),
            Self::Struct(_, fields) => fields.iter().for_each(|(_, value)| add(value)),
            _ => {}
        }
        count.min(limit)
    }
}
