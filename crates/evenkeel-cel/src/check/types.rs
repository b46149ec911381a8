//! Static types of expressions, derived from schemas.

use super::calls::QUANTITY;
use super::declaration::Declaration;

/// Static type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Type<'a> {
    /// Type that is only known at evaluation.
    Dyn,
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
    List(Box<Type<'a>>),
    /// A map with string keys and values of one type.
    Map(Box<Type<'a>>),
    /// An object with a schema.
    Object(Of<'a>),
    /// A value that may be absent.
    Optional(Box<Type<'a>>),
    /// A type of a CEL library, by name.
    Library(&'static str),
    /// The type `type`, such as of `type(1)`.
    OfTypes,
}

/// Schema of an object type. At the root, the checker also knows the fields of its metadata.
#[derive(Debug, Clone, Copy)]
pub struct Of<'a> {
    pub(crate) node: &'a dyn Declaration,
    pub(crate) root: bool,
}

impl PartialEq for Of<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.node, other.node)
    }
}

impl<'a> Type<'a> {
    /// Returns the type of a schema's values; `None` if expressions cannot access them.
    pub fn of(node: &'a dyn Declaration, root: bool) -> Option<Self> {
        if node.is_int_or_string() {
            return Some(Self::Dyn);
        }
        Some(match (node.kind(), node.format()) {
            ("array", _) => Self::List(Box::new(Self::of(node.element()?, false)?)),
            ("object", _) => match node.additional() {
                Some(more) => Self::Map(Box::new(Self::of(more, false)?)),
                None => Self::Object(Of { node, root: root || node.is_embedded() }),
            },
            ("string", "byte") => Self::Bytes,
            ("string", "duration") => Self::Duration,
            ("string", "date" | "date-time") => Self::Time,
            ("string", _) => Self::Str,
            ("boolean", _) => Self::Bool,
            ("number", _) => Self::Double,
            ("integer", _) => Self::Int,
            ("quantity", _) => Self::Library(QUANTITY),
            _ => return None,
        })
    }

    /// Returns the type's name as error messages print it.
    pub fn name(&self) -> String {
        match self {
            Self::Dyn => "dyn".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Uint => "uint".to_owned(),
            Self::Double => "double".to_owned(),
            Self::Str => "string".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Time => "timestamp".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::List(of) => format!("list({})", of.name()),
            Self::Map(of) => format!("map(string, {})", of.name()),
            Self::Object(_) => "object".to_owned(),
            Self::Optional(of) => format!("optional_type({})", of.name()),
            Self::Library(name) => (*name).to_owned(),
            Self::OfTypes => "type".to_owned(),
        }
    }

    /// Whether a value of one type can be used where the other is expected.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::List(a), Self::List(b))
            | (Self::Map(a), Self::Map(b))
            | (Self::Optional(a), Self::Optional(b)) => a.agrees(b),
            // Types other than scalars may be null, and can be compared with null.
            (Self::Null, other) | (other, Self::Null) => !other.is_scalar(),
            (a, b) => a == b,
        }
    }

    fn is_scalar(&self) -> bool {
        matches!(self, Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Str)
    }
}
