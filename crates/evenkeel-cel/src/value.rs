//! Values of expressions. A value from an object borrows its JSON; its schema, if there is one, determines the CEL
//! types.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use evenkeel_api::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::authorization::Authorization;
use super::functions::{Semver, Time};
use super::text::Text;
use super::url::Url;

/// Schema of a JSON value: the types, formats and list types that the JSON itself does not show.
pub trait Schema: std::fmt::Debug {
    /// Returns the OpenAPI type.
    fn kind(&self) -> &str;
    /// Returns the OpenAPI format.
    fn format(&self) -> &str;
    /// Returns whether the schema describes an object with named fields, as opposed to a map.
    fn names_fields(&self) -> bool;
    /// Returns the schema of a field of an object, or of a map's values.
    fn child(&self, name: &str) -> Option<&dyn Schema>;
    /// Returns the schema of a list's elements.
    fn items(&self) -> Option<&dyn Schema>;
    /// Returns whether the order of a list's elements does not matter for equality, as for the list types `set` and
    /// `map`.
    fn is_unordered(&self) -> bool;
    /// Returns the keys of a list of type `map`, or no keys for one of type `set`; `None` for other lists.
    fn list_keys(&self) -> Option<&[Box<str>]> {
        None
    }
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
    Str(Text<'a>),
    /// The type `bytes`.
    Bytes(Rc<[u8]>),
    /// A borrowed JSON object or array, with its schema.
    Json(&'a Value, Option<&'a dyn Schema>),
    /// A list that an expression created.
    List(Rc<Vec<Val<'a>>>),
    /// A map that an expression created.
    Map(Rc<Vec<(Val<'a>, Val<'a>)>>),
    /// A created map with a default value for every other key.
    MapWithDefault(Rc<Vec<(Val<'a>, Val<'a>)>>, Rc<Val<'a>>),
    /// An optional value.
    Optional(Option<Rc<Val<'a>>>),
    /// A timestamp with nanoseconds.
    Time(Time),
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
    /// A semantic version.
    Semver(Rc<Semver>),
    /// A format of strings, by name.
    Format(Rc<str>),
    /// A value of a struct literal: the name of its type, and its fields.
    Struct(Rc<str>, Rc<Vec<(String, Val<'a>)>>),
    /// A step of an authorization check.
    Authorization(Rc<Authorization<'a>>),
    /// The variable `variables` of a policy, with the number of its fields that the expression can use.
    Variables(usize),
    /// An error that only takes effect once an expression uses the value. It is in the accumulator of `all` or
    /// `exists`, in a variable of `cel.bind`, or in an invalid `byte` field.
    Failed(Rc<str>),
}

impl<'a> Val<'a> {
    /// Converts a JSON value, by its schema if there is one.
    pub fn of(value: &'a Value, schema: Option<&'a dyn Schema>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(number) => {
                let kind = schema.map_or("", |schema| schema.kind());
                match (number.as_i64(), number.as_f64()) {
                    (Some(n), _) if kind == "number" => Self::Double(n as f64),
                    (Some(n), _) => Self::Int(n),
                    // A number with a fraction, even with a zero one. Reading it is the error.
                    (None, Some(_)) if kind == "integer" => {
                        Self::Failed("invalid data, expected int, got float64".into())
                    }
                    (None, n) => Self::Double(n.unwrap_or_default()),
                }
            }
            Value::String(text) => {
                Self::of_string(text, schema.map_or("", |schema| schema.format()))
            }
            Value::Array(_) | Value::Object(_) => Self::Json(value, schema),
        }
    }

    /// Converts a string by its OpenAPI format. A string without the format's form remains a string.
    fn of_string(text: &'a str, format: &str) -> Self {
        let converted = match format {
            "date-time" => super::functions::parse_timestamp(text)
                .and_then(Result::ok)
                .or_else(|| text.parse::<Timestamp>().ok().map(Time::from))
                .map(Self::Time),
            "date" => text
                .parse::<jiff::civil::Date>()
                .ok()
                .and_then(|date| Time::of(date.to_datetime(jiff::civil::Time::midnight())))
                .map(Self::Time),
            "duration" => super::functions::parse_duration(text).map(Self::Duration),
            "byte" => Some(match super::formats::bytes(text) {
                Ok(bytes) => Self::Bytes(bytes.into()),
                // Reading the field is the error.
                Err(error) => Self::Failed(error.into()),
            }),
            _ => None,
        };
        converted.unwrap_or(Self::borrowed(text))
    }

    /// Returns the value itself, or the error of [`Self::Failed`].
    pub(crate) fn into_result(self) -> Result<Self, String> {
        match self {
            Self::Failed(error) => Err(error.to_string()),
            value => Ok(value),
        }
    }

    /// Returns a value of type `string`.
    pub fn str(text: impl Into<String>) -> Self {
        Self::Str(text.into().into())
    }

    /// Returns a value of type `string` that borrows `text`.
    pub fn borrowed(text: &'a str) -> Self {
        Self::Str(text.into())
    }

    /// Parses a semantic version; `None` if `text` is invalid.
    pub fn semver(text: &str) -> Option<Self> {
        super::functions::semver(text, false).ok()
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
            Self::Json(..) | Self::Map(_) | Self::MapWithDefault(..) => "map",
            Self::Optional(_) => "optional_type",
            Self::Time(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Struct(..) => "object",
            Self::Authorization(step) => step.type_name(),
            Self::Variables(_) => "kubernetes.variables",
            Self::Failed(_) => "error",
        }
    }

    /// Returns the elements of a list; `None` for other types.
    pub fn items(&self) -> Option<Vec<Self>> {
        self.list_len().map(|_| self.elements().collect())
    }

    /// Returns the number of elements, entries or characters; for `bytes`, of bytes.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::Str(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(items) => Some(items.len()),
            Self::Map(entries) | Self::MapWithDefault(entries, _) => Some(entries.len()),
            Self::Json(Value::Array(items), _) => Some(items.len()),
            Self::Json(Value::Object(fields), _) => Some(fields.len()),
            _ => None,
        }
    }

    /// Returns the size that determines the cost of traversing the value: 1 for values without a size.
    pub fn weight(&self) -> u64 {
        match self {
            Self::Optional(Some(value)) => value.weight(),
            Self::Ip(ip) => {
                if ip.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Cidr(_, bits) => u64::from(bits.div_ceil(8)),
            value => value.size().map_or(1, |size| size as u64),
        }
    }

    /// Returns the field or entry of this name.
    pub fn field(&self, name: &str) -> Option<Result<Self, String>> {
        match self {
            Self::Json(Value::Object(fields), schema) => {
                let field_name = match schema {
                    // An expression escapes the names of declared fields.
                    Some(schema) if schema.names_fields() => Cow::Owned(super::unescape(name)),
                    _ => Cow::Borrowed(name),
                };
                let value = fields.get(&*field_name)?;
                Some(Ok(Self::of(value, schema.and_then(|schema| schema.child(&field_name)))))
            }
            Self::Map(entries) => entries
                .iter()
                .find(|(key, _)| matches!(key, Self::Str(k) if **k == *name))
                .map(|(_, value)| value.clone().into_result()),
            Self::MapWithDefault(entries, default) => {
                let found =
                    entries.iter().find(|(key, _)| matches!(key, Self::Str(k) if **k == *name));
                Some(Ok(found.map_or_else(|| (**default).clone(), |(_, value)| value.clone())))
            }
            Self::Struct(_, fields) => {
                fields.iter().find(|(key, _)| key == name).map(|(_, value)| Ok(value.clone()))
            }
            _ => None,
        }
    }

    /// Returns the element at an index, or the entry of a key.
    pub fn index(&self, key: &Self) -> Result<Self, String> {
        if self.list_len().is_some() {
            return match key.as_list_index()?.and_then(|index| self.item(index)) {
                Some(item) => item.into_result(),
                None => Err(format!("index out of bounds: {}", key.shown())),
            };
        }
        if self.map_len().is_none() {
            return Err("no such overload".to_owned());
        }
        let found = self.entry(key).or_else(|| match self {
            Self::MapWithDefault(_, default) => Some((**default).clone()),
            _ => None,
        });
        found.ok_or_else(|| format!("no such key: {}", key.shown()))?.into_result()
    }

    /// Converts the value to an index of a list; `None` for an integer that is out of bounds of every list.
    fn as_list_index(&self) -> Result<Option<usize>, String> {
        let unsupported = || format!("unsupported index value {} in list", self.shown());
        match self {
            Self::Int(index) => Ok(usize::try_from(*index).ok()),
            Self::Uint(index) => {
                let index = i64::try_from(*index).map_err(|_| unsupported())?;
                usize::try_from(index).map(Some).map_err(|_| unsupported())
            }
            // The bound is just below 2^63: greater numbers fit no `int`.
            Self::Double(index) if index.fract() == 0.0 && index.abs() < 9.2e18 => {
                Ok(usize::try_from(*index as i64).ok())
            }
            Self::Double(_) => Err(unsupported()),
            other => Err(format!("unsupported index type '{}' in list", other.type_name())),
        }
    }

    /// Returns the number of elements of a list; `None` for other types.
    pub(crate) fn list_len(&self) -> Option<usize> {
        match self {
            Self::List(items) => Some(items.len()),
            Self::Json(Value::Array(items), _) => Some(items.len()),
            _ => None,
        }
    }

    /// Returns the number of entries of a map; `None` for other types.
    pub(crate) fn map_len(&self) -> Option<usize> {
        match self {
            Self::Map(entries) | Self::MapWithDefault(entries, _) => Some(entries.len()),
            Self::Json(Value::Object(fields), _) => Some(fields.len()),
            _ => None,
        }
    }

    /// Iterates over the elements of a list; other types have none.
    pub(crate) fn elements(&self) -> impl Iterator<Item = Self> + use<'a> {
        let list = self.clone();
        (0..self.list_len().unwrap_or(0)).map_while(move |index| list.item(index))
    }

    /// Iterates over the entries of a map; `None` for other types.
    pub(crate) fn pairs(&self) -> Option<Box<dyn Iterator<Item = (Self, Self)> + 'a>> {
        match self {
            Self::Map(entries) | Self::MapWithDefault(entries, _) => {
                let entries = Rc::clone(entries);
                Some(Box::new((0..entries.len()).map_while(move |i| entries.get(i).cloned())))
            }
            Self::Json(Value::Object(fields), schema) => {
                let schema = *schema;
                Some(Box::new(fields.iter().map(move |(name, value)| {
                    let child = schema.and_then(|schema| schema.child(name));
                    (Self::borrowed(name), Self::of(value, child))
                })))
            }
            _ => None,
        }
    }

    /// Returns the value of a map's entry with this key. Ignores the default of [`Self::MapWithDefault`].
    pub(crate) fn entry(&self, key: &Self) -> Option<Self> {
        match (self, key) {
            (Self::Json(Value::Object(fields), schema), Self::Str(name)) => {
                let value = fields.get(&**name)?;
                Some(Self::of(value, schema.and_then(|schema| schema.child(name))))
            }
            (Self::Map(entries) | Self::MapWithDefault(entries, _), key) => {
                entries.iter().find(|(k, _)| k.equals(key)).map(|(_, v)| v.clone())
            }
            _ => None,
        }
    }

    /// Returns the element of a list at an index.
    fn item(&self, index: usize) -> Option<Self> {
        match self {
            Self::List(items) => items.get(index).cloned(),
            Self::Json(Value::Array(items), schema) => {
                let item = items.get(index)?;
                Some(Self::of(item, schema.and_then(|schema| schema.items())))
            }
            _ => None,
        }
    }

    /// Formats the value as error messages print it.
    pub fn shown(&self) -> String {
        match self {
            Self::Str(text) => text.to_string(),
            Self::Bool(b) => b.to_string(),
            Self::Int(n) => n.to_string(),
            Self::Uint(n) => n.to_string(),
            Self::Double(n) => super::functions::double_text(*n),
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
            Self::Map(entries) | Self::MapWithDefault(entries, _) => {
                let mut map = Map::new();
                for (key, value) in entries.iter() {
                    map.insert(key.shown(), value.to_json()?);
                }
                Value::Object(map)
            }
            Self::Struct(_, fields) => {
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
