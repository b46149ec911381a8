//! The types of a schema: an arena of nodes that reference each other by index.

use std::sync::Arc;

use serde_json::Value;

/// An index into a [`Tree`].
pub(crate) type Id = u32;

/// A schema's types. All built-in kinds share one arena; each version of a custom resource has its own.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
}

/// A type as a field uses it.
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
    /// Base64 of bytes.
    Bytes,
    /// RFC 3339, to the second.
    Time,
    /// RFC 3339, to the microsecond.
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

/// An object with named fields.
#[derive(Debug, Clone)]
pub(crate) struct Struct {
    /// Sorted by name.
    pub fields: Arc<[Field]>,
    /// Owned as a whole.
    pub atomic: bool,
    /// What happens to fields that the schema does not specify.
    pub rest: Rest,
    /// An embedded resource: its metadata is ObjectMeta.
    pub embedded: bool,
}

/// What happens to fields that a struct does not specify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They are pruned, and reported when the client asks for it.
    Drop,
    /// The same, but an apply may name them: an object around this one preserves what it does not specify.
    ///
    /// Upstream: `preserveUnknownFields` of `ToSchemaFromOpenAPI`, which holds for what is inside, too.
    DropInPreserved,
    /// They are preserved.
    Keep,
    /// They have one type (`additionalProperties` beside `properties`).
    Typed(Id),
}

/// What identifies a list's items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// The list is atomic.
    Atomic,
    /// Elements are identified by their value.
    Set,
    /// By these fields of each element.
    Map(Arc<[Box<str>]>),
}

/// One named field of an object.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub name: Box<str>,
    pub node: Id,
    /// A pointer in Go: an explicit zero value differs from an unset one.
    pub pointer: bool,
    /// `omitempty`: omitted when empty.
    pub omit_empty: bool,
    /// `omitzero`: omitted when zero, even for structs.
    pub omit_zero: bool,
    /// Position among the fields of Go's struct, in which order they are encoded.
    pub position: usize,
    /// Default of the schema. For built-in kinds it only completes keys of list items.
    pub default: Option<Value>,
    pub patch: PatchRule,
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PatchRule {
    pub merge: bool,
    pub retain_keys: bool,
    /// The strategy `replace`: the patch's value replaces the old one, even when both are objects.
    pub replace: bool,
    /// Merge key; `None` for a list of primitives.
    pub key: Option<Box<str>>,
}

impl Struct {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by(|f| (*f.name).cmp(name)).ok()?;
        self.fields.get(index)
    }
}

/// A reference to a type in a schema.
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

    /// Type of a field or of a map's value; `None` where the schema does not specify it.
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
