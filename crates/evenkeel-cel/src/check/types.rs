//! Static types of expressions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::DeclType;

/// Static type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Type that is only known at evaluation.
    Dyn,
    /// Like `dyn`, except that a comprehension cannot iterate over it.
    Any,
    /// The type of an expression with an error. It matches every type, so that its use does not cause a second error.
    Error,
    /// The type of `null`.
    Null,
    /// The type `bool`.
    Bool,
    /// The type `int`: a signed 64-bit integer.
    Int,
    /// The type `uint`: an unsigned 64-bit integer.
    Uint,
    /// The type `double`: a 64-bit floating-point number.
    Double,
    /// The type `string`.
    Str,
    /// The type `bytes`.
    Bytes,
    /// The type `timestamp`.
    Time,
    /// The type `duration`.
    Duration,
    /// A list with elements of one type.
    List(Arc<Type>),
    /// A map with keys of one type and values of another.
    Map(Arc<Type>, Arc<Type>),
    /// An object with declared fields.
    Object(Object),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// A type of a CEL library, by name.
    Library(&'static str),
    /// The type of a type, such as of `type(1)`.
    OfTypes(Option<Arc<Type>>),
    /// A type variable, by its number: a type that is still to be inferred.
    Variable(u32),
}

/// Type of an object: its name, and its fields.
#[derive(Debug, Clone)]
pub struct Object {
    pub(crate) name: Arc<str>,
    pub(crate) fields: Fields,
}

/// Fields of an object type.
#[derive(Debug, Clone)]
pub(crate) enum Fields {
    /// DeclType fields, by their names as expressions write them.
    DeclType(Arc<BTreeMap<Box<str>, DeclType>>),
    /// A field of any name, each of type `dyn`.
    Any,
    /// Fields of the type `JSONPatch`.
    JsonPatch,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Name of an object type whose declaration has none. [`Type::named`] replaces it by a name derived from the field's
/// path.
const UNNAMED: &str = "object";

/// Maximum number of nodes of a type. A larger type becomes `dyn`: nested literals such as `[[[x, x]]]` could otherwise
/// create types of exponential size.
pub(super) const MAX_NODES: usize = 1_000;

impl Type {
    /// Returns the type of lists with elements of a type.
    pub fn list(parameter: Self) -> Self {
        Self::List(Arc::new(parameter))
    }

    /// Returns the type of maps with keys and values of these types.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// Returns the type of values that may be absent.
    pub fn optional(parameter: Self) -> Self {
        Self::Optional(Arc::new(parameter))
    }

    pub(crate) fn of_type(parameter: Self) -> Self {
        Self::OfTypes(Some(Arc::new(parameter)))
    }

    /// Returns an object type with declared fields. Without a name, [`Self::named`] derives one from the field's path.
    pub fn object(name: Option<&str>, fields: Arc<BTreeMap<Box<str>, DeclType>>) -> Self {
        let name = name.unwrap_or(UNNAMED).into();
        Self::Object(Object { name, fields: Fields::DeclType(fields) })
    }

    /// Returns the type of the field at `path`, and names each unnamed object type in it after its path.
    ///
    /// Upstream: `MaybeAssignTypeName`.
    pub fn named(&self, path: &str) -> Self {
        match self {
            Self::Object(object) if &*object.name == UNNAMED => {
                Self::Object(Object { name: path.into(), fields: object.fields.clone() })
            }
            Self::List(element) => Self::list(element.named(&format!("{path}.@idx"))),
            Self::Map(key, value) => {
                Self::Map(Arc::clone(key), Arc::new(value.named(&format!("{path}.@elem"))))
            }
            other => other.clone(),
        }
    }

    /// Returns the type itself, or `dyn` if it has more than [`MAX_NODES`] nodes.
    pub(crate) fn bounded(self) -> Self {
        let mut remaining_nodes = MAX_NODES;
        if self.has_at_most(&mut remaining_nodes) { self } else { Self::Dyn }
    }

    /// Deducts the number of nodes of the type. Returns false if fewer remain.
    fn has_at_most(&self, remaining_nodes: &mut usize) -> bool {
        let Some(rest) = remaining_nodes.checked_sub(1) else { return false };
        *remaining_nodes = rest;
        self.parameters().into_iter().flatten().all(|kind| kind.has_at_most(remaining_nodes))
    }

    /// Returns the type's parameters, such as the types of a map's keys and values.
    pub(crate) fn parameters(&self) -> [Option<&Self>; 2] {
        match self {
            Self::List(parameter) | Self::Optional(parameter) | Self::OfTypes(Some(parameter)) => {
                [Some(parameter), None]
            }
            Self::Map(key, value) => [Some(key), Some(value)],
            _ => [None, None],
        }
    }

    /// Returns the type with each of its parameters replaced.
    pub(crate) fn map_parameters(&self, mut replace: impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(parameter) => Self::list(replace(parameter)),
            Self::Optional(parameter) => Self::optional(replace(parameter)),
            Self::OfTypes(Some(parameter)) => Self::of_type(replace(parameter)),
            Self::Map(key, value) => {
                let key = replace(key);
                Self::map(key, replace(value))
            }
            other => other.clone(),
        }
    }

    /// Returns whether two types are equal except for their parameters.
    pub(crate) fn has_kind_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Library(a), Self::Library(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Returns whether `null` can be assigned to the type.
    pub(crate) fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Dyn
                | Self::Any
                | Self::Optional(_)
                | Self::Library(_)
                | Self::Object(_)
                | Self::Time
                | Self::Duration
        )
    }

    /// Returns whether the type matches every other type.
    pub(crate) fn is_wildcard(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any | Self::Error)
    }

    /// Returns whether all values have the size 1.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Optional(parameter) => parameter.is_scalar(),
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Time | Self::Duration => {
                true
            }
            _ => false,
        }
    }

    /// Returns the type's name at run time, without its parameters.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Error => "error",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Str => "string",
            Self::Bytes => "bytes",
            Self::Time => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Object(object) => &object.name,
            Self::Optional(_) => "optional_type",
            Self::Library(name) => name,
            Self::OfTypes(_) => "type",
            Self::Variable(_) => "",
        }
    }

    /// Returns the type's name at run time, with its parameters.
    ///
    /// Upstream: `Type.String`.
    pub fn declared_name(&self) -> String {
        self.with_parameters(self.runtime_name(), Self::declared_name)
    }

    /// Formats the type as `name(parameters)`.
    fn with_parameters(&self, name: &str, format_parameter: fn(&Self) -> String) -> String {
        let parameters: Vec<String> =
            self.parameters().into_iter().flatten().map(format_parameter).collect();
        if parameters.is_empty() {
            return name.to_owned();
        }
        format!("{name}({})", parameters.join(", "))
    }

    /// Returns the type's name in error messages, without its parameters.
    fn short_name(&self) -> &str {
        match self {
            Self::Any => "any",
            Self::Error => "!error!",
            Self::Null => "null",
            Self::Time => "timestamp",
            Self::Duration => "duration",
            other => other.runtime_name(),
        }
    }
}

impl fmt::Display for Type {
    /// Writes the type's name for error messages. Upstream: `FormatCELType`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(number) => write!(f, "_var{number}"),
            other => f.write_str(&other.with_parameters(other.short_name(), Self::to_string)),
        }
    }
}
