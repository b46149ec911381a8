//! Types of expressions, as far as their schemas tell.

use crate::custom::node::Node;

/// What a value is known to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Type<'a> {
    /// Anything.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Str,
    Bytes,
    Time,
    Duration,
    List(Box<Type<'a>>),
    Map(Box<Type<'a>>),
    /// An object with a schema.
    Object(Of<'a>),
    Optional(Box<Type<'a>>),
    /// A type of a library, by name.
    Library(&'static str),
    /// What types are themselves.
    OfTypes,
}

/// An object's schema. At the root its metadata is known, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Of<'a> {
    pub(crate) node: &'a Node,
    pub(crate) root: bool,
}

impl PartialEq for Of<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.node, other.node)
    }
}

impl<'a> Type<'a> {
    /// The type that values of a schema have; `None` where expressions cannot see them.
    pub(crate) fn of(node: &'a Node, root: bool) -> Option<Self> {
        if node.int_or_string {
            return Some(Self::Dyn);
        }
        Some(match (&*node.kind, &*node.format) {
            ("array", _) => Self::List(Box::new(Self::of(node.items.as_deref()?, false)?)),
            ("object", _) => match &node.additional {
                Some(more) => Self::Map(Box::new(Self::of(more, false)?)),
                None => Self::Object(Of { node, root: root || node.embedded }),
            },
            ("string", "byte") => Self::Bytes,
            ("string", "duration") => Self::Duration,
            ("string", "date" | "date-time") => Self::Time,
            ("string", _) => Self::Str,
            ("boolean", _) => Self::Bool,
            ("number", _) => Self::Double,
            ("integer", _) => Self::Int,
            _ => return None,
        })
    }

    /// Its name, as errors have it.
    pub(crate) fn name(&self) -> String {
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

    /// Whether a value of one may stand where the other is wanted.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::List(a), Self::List(b))
            | (Self::Map(a), Self::Map(b))
            | (Self::Optional(a), Self::Optional(b)) => a.agrees(b),
            // What may be null is compared with null.
            (Self::Null, other) | (other, Self::Null) => !other.is_scalar(),
            (a, b) => a == b,
        }
    }

    fn is_scalar(&self) -> bool {
        matches!(self, Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Str)
    }
}
