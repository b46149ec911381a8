//! Values of expressions. JSON objects are borrowed, and interpreted by their schema if they have one.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

use evenkeel_api::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

/// Schema of a JSON value: formats and list types, which the JSON does not show.
pub trait Schema: std::fmt::Debug {
    /// Returns the OpenAPI type.
    fn kind(&self) -> &str;
    /// Returns the OpenAPI format.
    fn format(&self) -> &str;
    /// Whether the schema names each field, as opposed to a map's schema.
    fn names_fields(&self) -> bool;
    /// Returns the schema of a field.
    fn child(&self, name: &str) -> Option<&dyn Schema>;
    /// Returns the schema of a list's elements.
    fn items(&self) -> Option<&dyn Schema>;
    /// Whether a list is compared as a set, without order.
    fn is_unordered(&self) -> bool;
}

/// Value of a CEL expression.
#[derive(Debug, Clone)]
pub enum Val<'a> {
    /// The value `null`.
    Null,
    /// The type `bool`.
    Bool(bool),
    /// The type `int`.
    Int(i64),
    /// The type `uint`.
    Uint(u64),
    /// The type `double`.
    Double(f64),
    /// The type `string`.
    Str(Cow<'a, str>),
    /// The type `bytes`.
    Bytes(Rc<[u8]>),
    /// A borrowed JSON object or array, with its schema.
    Json(&'a Value, Option<&'a dyn Schema>),
    /// A list that an expression created.
    List(Rc<Vec<Val<'a>>>),
    /// A map that an expression created.
    Map(Rc<Vec<(Val<'a>, Val<'a>)>>),
    /// A created map with a default value for every other key.
    MapOr(Rc<Vec<(Val<'a>, Val<'a>)>>, Rc<Val<'a>>),
    /// An optional value.
    Optional(Option<Rc<Val<'a>>>),
    /// A timestamp with nanoseconds.
    Time(Timestamp),
    /// The type `duration`.
    Duration(SignedDuration),
    /// A type, by name.
    Type(&'static str),
    /// A quantity such as `1500m`.
    Quantity(Quantity),
    /// An IP address.
    Ip(IpAddr),
    /// A CIDR: an IP address and the prefix length.
    Cidr(IpAddr, u8),
    /// An absolute URL.
    Url(Rc<Url>),
    /// A semantic version: its numbers, and the suffix after them.
    Semver([u64; 3], Rc<str>),
    /// A format of strings, by name.
    Format(Rc<str>),
    /// A value of a struct literal: the name of its type, and its fields.
    Made(Rc<str>, Rc<Vec<(String, Val<'a>)>>),
    /// An error in a loop's accumulator. A later element may still decide the result.
    Failed(Rc<str>),
}

/// A parsed URL.
#[derive(Debug, Clone, PartialEq)]
pub struct Url {
    /// Original text of the URL.
    pub text: String,
    /// Scheme, without the colon.
    pub scheme: String,
    /// Host with port, as in the text.
    pub host: String,
    /// Path after the host.
    pub path: String,
    /// Query parameters in order.
    pub query: Vec<(String, String)>,
}

impl<'a> Val<'a> {
    /// Converts a JSON value, by its schema if there is one.
    pub fn of(value: &'a Value, node: Option<&'a dyn Schema>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(number) => {
                let kind = node.map_or("", |node| node.kind());
                match (number.as_i64(), number.as_f64()) {
                    (Some(n), _) if kind == "number" => Self::Double(n as f64),
                    (Some(n), _) => Self::Int(n),
                    (None, Some(n)) if kind == "integer" => Self::Int(n as i64),
                    (None, n) => Self::Double(n.unwrap_or_default()),
                }
            }
            Value::String(text) => Self::text(text, node.map_or("", |node| node.format())),
            Value::Array(_) | Value::Object(_) => Self::Json(value, node),
        }
    }

    fn text(text: &'a str, format: &str) -> Self {
        let read = match format {
            "date-time" => text.parse().ok().map(Self::Time),
            "date" => text
                .parse::<jiff::civil::Date>()
                .ok()
                .and_then(|d| d.to_zoned(jiff::tz::TimeZone::UTC).ok())
                .map(|z| Self::Time(z.timestamp())),
            "duration" => super::functions::parse_duration(text).map(Self::Duration),
            "byte" => {
                use base64::Engine as _;
                let bytes = base64::prelude::BASE64_STANDARD.decode(text).ok();
                bytes.map(|b| Self::Bytes(b.into()))
            }
            _ => None,
        };
        read.unwrap_or(Self::Str(Cow::Borrowed(text)))
    }

    /// Returns a value of type `string`.
    pub fn str(text: impl Into<String>) -> Self {
        Self::Str(Cow::Owned(text.into()))
    }

    /// Parses a semantic version; `None` if the text is not one.
    pub fn semver(text: &str) -> Option<Self> {
        super::functions::semver(text, false)
    }

    /// Returns a value of type `list`.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(items))
    }

    /// Returns an optional value that is present.
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    /// Returns the type's name as error messages print it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Json(Value::Array(_), _) | Self::List(_) => "list",
            Self::Json(..) | Self::Map(_) | Self::MapOr(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Time(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(..) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Made(..) => "object",
            Self::Failed(_) => "error",
        }
    }

    /// Returns the elements of a list; `None` for other types.
    pub fn items(&self) -> Option<Vec<Self>> {
        match self {
            Self::List(items) => Some(items.to_vec()),
            Self::Json(Value::Array(items), node) => {
                let child = node.and_then(|n| n.items());
                Some(items.iter().map(|item| Self::of(item, child)).collect())
            }
            _ => None,
        }
    }

    /// Returns the entries of a map; `None` for other types.
    pub fn entries(&self) -> Option<Vec<(Self, Self)>> {
        match self {
            Self::Map(entries) | Self::MapOr(entries, _) => Some(entries.to_vec()),
            Self::Json(Value::Object(fields), node) => Some(
                fields
                    .iter()
                    .map(|(name, value)| {
                        let child = node.and_then(|n| n.child(name));
                        (Self::Str(Cow::Borrowed(name)), Self::of(value, child))
                    })
                    .collect(),
            ),
            _ => None,
        }
    }

    /// Returns the number of elements, entries or characters; for `bytes`, of bytes.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::Str(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(items) => Some(items.len()),
            Self::Map(entries) | Self::MapOr(entries, _) => Some(entries.len()),
            Self::Json(Value::Array(items), _) => Some(items.len()),
            Self::Json(Value::Object(fields), _) => Some(fields.len()),
            _ => None,
        }
    }

    /// Returns the size that determines the cost of traversing the value.
    pub fn weight(&self) -> u64 {
        match self {
            Self::Str(text) => text.len() as u64,
            Self::Json(..) | Self::List(_) | Self::Map(_) | Self::MapOr(..) | Self::Bytes(_) => {
                self.size().unwrap_or(1) as u64
            }
            _ => 1,
        }
    }

    /// Returns the field or entry of this name.
    pub fn field(&self, name: &str) -> Option<Result<Self, String>> {
        match self {
            Self::Json(Value::Object(fields), node) => {
                let plain = match node {
                    // An expression escapes the names of declared fields.
                    Some(node) if node.names_fields() => Cow::Owned(super::unescape(name)),
                    _ => Cow::Borrowed(name),
                };
                let value = fields.get(&*plain)?;
                Some(Ok(Self::of(value, node.and_then(|n| n.child(&plain)))))
            }
            Self::Map(entries) => entries
                .iter()
                .find(|(key, _)| matches!(key, Self::Str(k) if *k == name))
                .map(|(_, value)| match value {
                    Self::Failed(error) => Err(error.to_string()),
                    value => Ok(value.clone()),
                }),
            Self::MapOr(entries, other) => {
                let found =
                    entries.iter().find(|(key, _)| matches!(key, Self::Str(k) if *k == name));
                Some(Ok(found.map_or_else(|| (**other).clone(), |(_, value)| value.clone())))
            }
            Self::Made(_, fields) => {
                fields.iter().find(|(key, _)| key == name).map(|(_, value)| Ok(value.clone()))
            }
            _ => None,
        }
    }

    /// Returns the element at an index, or the entry of a key.
    pub fn index(&self, key: &Self) -> Result<Self, String> {
        if let Some(items) = self.list_len() {
            let at = match key {
                Self::Int(at) => usize::try_from(*at).ok(),
                Self::Uint(at) => usize::try_from(*at).ok(),
                Self::Double(at) if at.fract() == 0.0 && *at >= 0.0 => Some(*at as usize),
                _ => return Err("unsupported index type in list".to_owned()),
            };
            return at
                .filter(|at| *at < items)
                .and_then(|index| self.item(index))
                .ok_or_else(|| format!("index out of bounds: {}", key.shown()));
        }
        let found = match (self, key) {
            (Self::Json(Value::Object(fields), node), Self::Str(name)) => {
                fields.get(&**name).map(|v| Self::of(v, node.and_then(|n| n.child(name))))
            }
            (Self::Map(entries), key) => {
                entries.iter().find(|(k, _)| k.equals(key)).map(|(_, v)| v.clone())
            }
            (Self::MapOr(entries, other), key) => {
                let found = entries.iter().find(|(k, _)| k.equals(key)).map(|(_, v)| v.clone());
                found.or_else(|| Some((**other).clone()))
            }
            (Self::Json(..), _) => None,
            _ => return Err("no such overload".to_owned()),
        };
        found.ok_or_else(|| format!("no such key: {}", key.shown()))
    }

    fn list_len(&self) -> Option<usize> {
        match self {
            Self::List(items) => Some(items.len()),
            Self::Json(Value::Array(items), _) => Some(items.len()),
            _ => None,
        }
    }

    fn item(&self, index: usize) -> Option<Self> {
        match self {
            Self::List(items) => items.get(index).cloned(),
            Self::Json(Value::Array(items), node) => {
                items.get(index).map(|item| Self::of(item, node.and_then(|n| n.items())))
            }
            _ => None,
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
            (Self::Semver(a, x), Self::Semver(b, y)) => a == b && x == y,
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
        if let (Some(a), Some(b)) = (self.number(), other.number()) {
            return a == b;
        }
        if let (Some(a), Some(b)) = (self.items(), other.items()) {
            if a.len() != b.len() {
                return false;
            }
            let unordered = match (self, other) {
                (Self::Json(_, Some(node)), _) | (_, Self::Json(_, Some(node))) => {
                    node.is_unordered()
                }
                _ => false,
            };
            return if unordered {
                a.iter().all(|a| b.iter().any(|b| a.equals(b)))
            } else {
                a.iter().zip(&b).all(|(a, b)| a.equals(b))
            };
        }
        match (self.entries(), other.entries()) {
            (Some(a), Some(b)) => {
                a.len() == b.len()
                    && a.iter().all(|(k, v)| b.iter().any(|(l, w)| k.equals(l) && v.equals(w)))
            }
            _ => false,
        }
    }

    /// Returns a number of any type as `f64`; `None` for other types.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Uint(n) => Some(*n as f64),
            Self::Double(n) => Some(*n),
            _ => None,
        }
    }

    /// Compares two values; `None` if their types have no order.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Str(a), Self::Str(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Time(a), Self::Time(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }

    /// Formats the value as error messages print it.
    pub fn shown(&self) -> String {
        match self {
            Self::Str(text) => text.to_string(),
            Self::Bool(b) => b.to_string(),
            Self::Int(n) => n.to_string(),
            Self::Uint(n) => n.to_string(),
            Self::Double(n) => n.to_string(),
            Self::Json(value, _) => value.to_string(),
            other => {
                other.to_json().map_or_else(|_| other.type_name().to_owned(), |v| v.to_string())
            }
        }
    }

    /// Converts the value to JSON; an error if its type has no JSON form.
    pub fn to_json(&self) -> Result<Value, String> {
        Ok(match self {
            Self::Null | Self::Optional(None) => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Int(n) => Value::from(*n),
            Self::Uint(n) => Value::from(*n),
            Self::Double(n) => Value::from(*n),
            Self::Str(text) => Value::from(&**text),
            Self::Json(value, _) => (*value).clone(),
            Self::Optional(Some(value)) => value.to_json()?,
            Self::Time(at) => Value::from(at.to_string()),
            Self::Duration(length) => Value::from(super::functions::duration_text(*length)),
            Self::List(items) => items.iter().map(Self::to_json).collect::<Result<_, _>>()?,
            Self::Map(entries) | Self::MapOr(entries, _) => {
                let mut map = Map::new();
                for (key, value) in entries.iter() {
                    map.insert(key.shown(), value.to_json()?);
                }
                Value::Object(map)
            }
            Self::Made(_, fields) => {
                let mut map = Map::new();
                for (name, value) in fields.iter() {
                    map.insert(name.clone(), value.to_json()?);
                }
                Value::Object(map)
            }
            other => return Err(format!("a {} has no form in JSON", other.type_name())),
        })
    }
}
