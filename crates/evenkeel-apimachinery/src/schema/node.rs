//! Types of a schema: an arena of nodes that reference each other by index.

use std::sync::Arc;

use serde_json::Value;

/// An index into a [`Tree`].
pub(crate) type Id = u32;

/// Arena of types. All built-in kinds share one; each version of a custom resource has its own.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
}

/// Type of a field, with its Go name.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub shape: Shape,
    /// Go's name of the type, as decoding errors print it: `int32`, `v1.ObjectMeta`, `map[string]string`.
    pub go: Arc<str>,
}

/// The structure of a type.
///
/// Upstream: `Atom` of `sigs.k8s.io/structured-merge-diff/v6/schema`.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Any JSON, kept as written.
    Any,
    /// Any JSON, kept as written and owned as a whole (`RawExtension`).
    Raw,
    Bool,
    Int {
        bits: u8,
    },
    Float,
    String,
    /// Bytes in base64.
    Bytes,
    /// Time in RFC 3339, to the second.
    Time,
    /// Time in RFC 3339, to the microsecond.
    MicroTime,
    /// A duration in Go's notation.
    Duration,
    Quantity,
    IntOrString,
    Struct(Struct),
    Map {
        value: Id,
        atomic: bool,
    },
    List {
        item: Id,
        kind: ListKind,
    },
}

/// Type of an object with named fields.
#[derive(Debug, Clone)]
pub(crate) struct Struct {
    /// Fields sorted by name.
    pub fields: Arc<[Field]>,
    /// Whether the object is owned as a whole.
    pub atomic: bool,
    /// Handling of fields that the schema does not specify.
    pub rest: Rest,
    /// Whether this is an embedded resource, whose metadata is ObjectMeta.
    pub embedded: bool,
}

/// Handling of fields that a struct does not specify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Prunes the fields, and reports them if the client requests it.
    Drop,
    /// The same, but an apply may contain the fields, because an enclosing object preserves unknown fields.
    ///
    /// Upstream: `preserveUnknownFields` of `ToSchemaFromOpenAPI`, which also applies to nested objects.
    DropInPreserved,
    /// Preserves the fields.
    Keep,
    /// Decodes the fields as one type (`additionalProperties` beside `properties`).
    Typed(Id),
}

/// Kind of a list, which determines the identity of its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// Items have no identity: the list is atomic.
    Atomic,
    /// The value of each element.
    Set,
    /// The values of these fields of each element.
    Map(Arc<[Box<str>]>),
}

/// Named field of a struct.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub name: Box<str>,
    pub node: Id,
    /// Whether the field is a pointer in Go, so that an explicit zero value differs from an unset one.
    pub pointer: bool,
    /// Whether the field is omitted if empty (`omitempty`).
    pub omit_empty: bool,
    /// Whether the field is omitted if zero, even for structs (`omitzero`).
    pub omit_zero: bool,
    /// Position in the Go struct, which determines the order of encoding.
    pub position: usize,
    /// Name of the embedded struct that has the field in Go; empty if the struct itself has it.
    pub embedded_in: Box<str>,
    /// Default of the schema. For built-in kinds, it is used only for missing keys of list items.
    pub default: Option<Value>,
    pub patch: PatchRule,
}

/// Handling of a field by strategic merge patches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PatchRule {
    pub merge: bool,
    pub retain_keys: bool,
    /// Whether the strategy is `replace`: the patch's value replaces the old one, even if both are objects.
    pub replace: bool,
    /// Merge key; `None` for a list of primitives.
    pub key: Option<Box<str>>,
}

impl Struct {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.get(self.field_index(name)?)
    }

    /// Returns the position of a field in [`fields`](Self::fields).
    pub(crate) fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok()
    }
}

/// Reference to a type in a schema.
///
/// Upstream: `TypeRef`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypeRef<'a> {
    pub tree: &'a Tree,
    pub id: Id,
}

impl<'a> TypeRef<'a> {
    pub(crate) fn node(self) -> &'a Node {
        &self.tree.nodes[self.id as usize]
    }

    pub(crate) fn shape(self) -> &'a Shape {
        &self.node().shape
    }

    pub(crate) fn to(self, id: Id) -> Self {
        Self { tree: self.tree, id }
    }

    pub(crate) fn as_struct(self) -> Option<&'a Struct> {
        match self.shape() {
            Shape::Struct(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the type of a field or of a map's values; `None` if the schema does not specify it.
    pub(crate) fn child(self, name: &str) -> Option<TypeRef<'a>> {
        match self.shape() {
            Shape::Struct(s) => match (s.field(name), s.rest) {
                (Some(field), _) => Some(self.to(field.node)),
                (None, Rest::Typed(id)) => Some(self.to(id)),
                (None, Rest::Keep | Rest::Drop | Rest::DropInPreserved) => None,
            },
            Shape::Map { value, .. } => Some(self.to(*value)),
            _ => None,
        }
    }
}
