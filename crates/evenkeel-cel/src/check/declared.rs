//! Declarations of values: their types, with the bounds of their sizes for cost estimates.
//!
//! Upstream: `DeclType` of `apiserver/pkg/cel`.

use std::sync::Arc;

use super::types::{Fields, Type};

/// Declaration of a value: its type, and how large it can be.
#[derive(Debug, Clone)]
pub struct DeclType {
    /// Static type of the value.
    pub kind: Type,
    /// Maximum number of elements, entries or bytes; 0 if it has no bound. Upstream: `MaxElements`.
    max_size: u64,
    /// Minimum number of bytes of the value in a request. Upstream: `MinSerializedSize`.
    min_serialized_size: u64,
    /// Declaration of a list's elements, or of a map's values.
    element: Option<Arc<DeclType>>,
}

/// Minimum number of bytes of a string, a list, a map or an object: its quotes or brackets.
const BRACKETS: u64 = 2;

impl DeclType {
    /// Returns a declaration of a type without a maximum size.
    pub fn of(kind: Type) -> Self {
        let min_serialized_size = match kind {
            // `true`
            Type::Bool => 4,
            Type::Str | Type::Bytes | Type::List(_) | Type::Map(..) | Type::Object(_) => BRACKETS,
            // `"0"`
            Type::Duration => 3,
            // `"2022-01-01"`
            Type::Time => 12,
            _ => 1,
        };
        Self { kind, max_size: 0, min_serialized_size, element: None }
    }

    /// Returns a declaration of a list with at most `max_size` elements.
    pub fn list(element: Self, max_size: u64) -> Self {
        let kind = Type::list(element.kind.clone());
        Self { kind, max_size, min_serialized_size: BRACKETS, element: Some(Arc::new(element)) }
    }

    /// Returns a declaration of a map with strings as keys and at most `max_size` entries.
    pub fn map(value: Self, max_size: u64) -> Self {
        let kind = Type::map(Type::Str, value.kind.clone());
        Self { kind, max_size, min_serialized_size: BRACKETS, element: Some(Arc::new(value)) }
    }

    /// Returns a declaration of an object with these fields, by their names as expressions write them. Without a name,
    /// [`Type::named`] derives the type's name from the field's path.
    pub fn object<N: Into<Box<str>>>(
        name: Option<&str>,
        fields: impl IntoIterator<Item = (N, Self)>,
    ) -> Self {
        let fields = fields.into_iter().map(|(name, field)| (name.into(), field)).collect();
        Self::of(Type::object(name, Arc::new(fields)))
    }

    /// Sets the maximum size of the value in elements, entries or bytes.
    pub fn with_max_size(mut self, max_size: u64) -> Self {
        self.max_size = max_size;
        self
    }

    /// Sets the minimum number of bytes of the value in a request.
    pub fn with_min_request_bytes(mut self, min_serialized_size: u64) -> Self {
        self.min_serialized_size = min_serialized_size;
        self
    }

    /// Returns the maximum number of elements, entries or bytes; 0 if it has no bound.
    pub fn max_size(&self) -> u64 {
        self.max_size
    }

    /// Returns the minimum number of bytes of the value in a request.
    pub fn min_serialized_size(&self) -> u64 {
        self.min_serialized_size
    }

    /// Returns the declaration of a list's elements, or of a map's values.
    pub fn element(&self) -> Option<&Self> {
        self.element.as_deref()
    }

    /// Returns the declaration of an object's field, by its name as expressions write it.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match &self.kind {
            Type::Object(object) => match &object.fields {
                Fields::DeclType(fields) => fields.get(name),
                Fields::Any | Fields::JsonPatch => None,
            },
            _ => None,
        }
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.kind, Type::Map(..))
    }
}
