//! What a schema is made of: an arena of nodes that name each other by index.

use std::sync::Arc;

use serde_json::Value;

/// An index into a [`Tree`].
pub(crate) type Id = u32;

/// A schema's nodes. The built-in kinds share one tree; every custom resource version has its own.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
}

/// One type, as some field uses it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub shape: Shape,
    /// Go's name for the type, which decoding errors print: `int32`, `v1.ObjectMeta`, `map[string]string`.
    pub go: Arc<str>,
}

/// The form of a type's values.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Any JSON, kept as it is.
    Any,
    /// Any JSON, kept as it is and owned as a whole (an embedded raw object).
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
    /// Go's notation of a length of time.
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
    /// What becomes of fields that are not named.
    pub rest: Rest,
    /// An object of its own within another: its metadata is an object's metadata.
    pub embedded: bool,
}

/// What an object does with fields that its schema does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They are dropped (and reported, when the client asks for it).
    Drop,
    /// They are kept, whatever they are.
    Keep,
    /// They are of one type (`additionalProperties` beside `properties`).
    Typed(Id),
}

/// How a list's elements are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// The list is one value.
    Atomic,
    /// By value.
    Set,
    /// By these fields of each element.
    Map(Arc<[Box<str>]>),
}

/// One named field of an object.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub name: Box<str>,
    pub node: Id,
    /// A pointer in Go: a zero value that was set differs from none.
    pub pointer: bool,
    /// Left out when empty.
    pub omit_empty: bool,
    /// Left out when zero, even for structs.
    pub omit_zero: bool,
    /// Value that the schema gives when the field is absent; for built-in kinds only of use as the default of a list's key.
    pub default: Option<Value>,
    pub patch: PatchRule,
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PatchRule {
    pub merge: bool,
    pub retain_keys: bool,
    /// The patch's value takes the place of the old one, even if both are objects.
    pub replace: bool,
    /// Field that tells a merged list's elements apart; none for a list of primitives.
    pub key: Option<Box<str>>,
}

impl Struct {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let at = self.fields.binary_search_by(|f| (*f.name).cmp(name)).ok()?;
        self.fields.get(at)
    }
}

/// A place in a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub tree: &'a Tree,
    pub id: Id,
}

impl<'a> At<'a> {
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

    /// The type of a field or of a map's value; `None` where the schema has nothing to say.
    pub(crate) fn child(self, name: &str) -> Option<At<'a>> {
        match self.shape() {
            Shape::Struct(s) => match (s.field(name), s.rest) {
                (Some(field), _) => Some(self.to(field.node)),
                (None, Rest::Typed(id)) => Some(self.to(id)),
                (None, Rest::Keep | Rest::Drop) => None,
            },
            Shape::Map { value, .. } => Some(self.to(*value)),
            _ => None,
        }
    }
}
