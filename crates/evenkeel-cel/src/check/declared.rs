//! Declarations of values: their types, with the bounds that cost estimates need.
//!
//! Upstream: `DeclType` of `apiserver/pkg/cel`.

use std::sync::Arc;

use super::types::{Fields, Type};

/// Declaration of a value: its type, and how large it can be.
#[derive(Debug, Clone)]
pub struct Declared {
    /// Static type of the value.
    pub kind: Type,
    /// Maximum number of elements, entries or bytes; 0 for values without a size.
    most: u64,
    /// Minimum number of bytes that the value takes in a request.
    least: u64,
    /// Declaration of a list's elements, or of a map's values.
    element: Option<Arc<Declared>>,
}

/// Minimum number of bytes of a list, a map or an object: its brackets.
const BRACKETS: u64 = 2;

impl Declared {
    /// Returns a declaration of a type, without a bound of its size.
    pub fn of(kind: Type) -> Self {
        let least = match kind {
            Type::Bool => 4,
            Type::Str | Type::Bytes | Type::List(_) | Type::Map(..) | Type::Object(_) => BRACKETS,
            Type::Duration => 3,
            Type::Time => 12,
            _ => 1,
        };
        Self { kind, most: 0, least, element: None }
    }

    /// Returns a declaration of a list with at most so many elements.
    pub fn list(element: Self, most: u64) -> Self {
        let kind = Type::list(element.kind.clone());
        Self { kind, most, least: BRACKETS, element: Some(Arc::new(element)) }
    }

    /// Returns a declaration of a map from strings with at most so many entries.
    pub fn map(value: Self, most: u64) -> Self {
        let kind = Type::map(Type::Str, value.kind.clone());
        Self { kind, most, least: BRACKETS, element: Some(Arc::new(value)) }
    }

    /// Returns a declaration of an object with these fields, by their names as expressions write them. Without a name,
    /// its type gets one by its place.
    pub fn object<N: Into<Box<str>>>(
        name: Option<&str>,
        fields: impl IntoIterator<Item = (N, Self)>,
    ) -> Self {
        let fields = fields.into_iter().map(|(name, field)| (name.into(), field)).collect();
        Self::of(Type::object(name, Arc::new(fields)))
    }

    /// Bounds the size of the value: in elements, entries or bytes.
    pub fn at_most(mut self, most: u64) -> Self {
        self.most = most;
        self
    }

    /// Bounds the bytes that the value takes in a request.
    pub fn at_least(mut self, least: u64) -> Self {
        self.least = least;
        self
    }

    /// Returns the maximum number of elements, entries or bytes.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the minimum number of bytes that the value takes in a request.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// Returns the declaration of a list's elements, or of a map's values.
    pub fn element(&self) -> Option<&Self> {
        self.element.as_deref()
    }

    /// Returns the declaration of an object's field, by its name as expressions write it.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match &self.kind {
            Type::Object(object) => match &object.fields {
                Fields::Declared(fields) => fields.get(name),
                Fields::Any | Fields::JsonPatch => None,
            },
            _ => None,
        }
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.kind, Type::Map(..))
    }
}
