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

    /// Compares two numbers: integers exactly, others as floating-point numbers. `None` if one is not a number.
    fn compare(self, other: Self) -> Option<Ordering> {
        let whole = |number: Self| match number {
            Self::Int(n) => Some(i128::from(n)),
            Self::Uint(n) => Some(i128::from(n)),
            Self::Double(_) => None,
        };
        match (whole(self), whole(other)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }
}

impl Val<'_> {
    /// Returns the fields that identify an element of a list with a schema; none for a set.
    pub(crate) fn list_keys(&self) -> Option<&[Box<str>]> {
        match self {
            Self::Json(Value::Array(_), Some(schema)) => schema.list_keys(),
            _ => None,
        }
    }

    /// Whether upstream cannot compare a value with another one: an object or a list with a schema, with another type.
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

    /// Whether two values are equal; numbers are compared across their types.
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
            (Self::Made(a, x), Self::Made(b, y)) => {
                a == b
                    && x.len() == y.len()
                    && x.iter().all(|(k, v)| y.iter().any(|(l, w)| k == l && v.equals(w)))
            }
            _ => self.equals_otherwise(other),
        }
    }

    fn equals_otherwise(&self, other: &Self) -> bool {
        if let (Some(a), Some(b)) = (Number::of(self), Number::of(other)) {
            return a.compare(b) == Some(Ordering::Equal);
        }
        if let (Some(a), Some(b)) = (self.list_len(), other.list_len()) {
            if a != b {
                return false;
            }
            let unordered = match (self, other) {
                (Self::Json(_, Some(node)), _) | (_, Self::Json(_, Some(node))) => {
                    node.is_unordered()
                }
                _ => false,
            };
            // Usually, the order is the same.
            return self.elements().zip(other.elements()).all(|(a, b)| a.equals(&b))
                || unordered
                    && self.elements().all(|item| other.elements().any(|o| item.equals(&o)));
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

    /// Returns the number of values within the value, itself included, where ten characters of a string count like
    /// one value; at most `limit`. To compare values takes a time of this order.
    pub(crate) fn nodes(&self, limit: u64) -> u64 {
        fn json(value: &Value, limit: u64) -> u64 {
            let mut count = 1;
            match value {
                Value::String(text) => count += text.len() as u64 / 10,
                Value::Array(items) => {
                    for item in items {
                        if count >= limit {
                            break;
                        }
                        count += json(item, limit - count);
                    }
                }
                Value::Object(fields) => {
                    for (name, value) in fields {
                        if count >= limit {
                            break;
                        }
                        count += name.len() as u64 / 10 + json(value, limit - count);
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
            Self::Json(value, _) => return json(value, limit),
            Self::Str(text) => count += text.len() as u64 / 10,
            Self::Bytes(bytes) => count += bytes.len() as u64 / 10,
            Self::List(items) => items.iter().for_each(add),
            Self::Map(entries) | Self::MapOr(entries, _) => entries.iter().for_each(|(k, v)| {
                add(k);
                add(v);
            }),
            Self::Optional(Some(value)) => add(value),
            Self::Made(_, fields) => fields.iter().for_each(|(_, value)| add(value)),
            _ => {}
        }
        count.min(limit)
    }
}
