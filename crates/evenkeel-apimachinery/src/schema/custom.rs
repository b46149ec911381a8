//! Schema of one version of a custom resource, built from its `openAPIV3Schema`. Its metadata has the built-in
//! type.

use std::collections::HashMap;

use serde_json::Value;

use super::node::{Field, Id, ListKind, Node, PatchRule, Rest, Shape, Struct, Tree, TypeRef};

/// Builds the schema, whose first node is the root; `metadata` is the built-in type ObjectMeta.
pub(super) fn build(doc: &Value, metadata: TypeRef<'_>) -> Tree {
    let mut builder = Builder { tree: Tree::default(), metadata, grafted: HashMap::new() };
    let (is_resource, preserves_unknown) = (true, false);
    builder.object(doc, is_resource, preserves_unknown);
    builder.tree
}

/// Builder of the schema of a custom resource.
struct Builder<'a> {
    tree: Tree,
    metadata: TypeRef<'a>,
    /// Nodes of the built-in schema that were copied into the tree, with their ids there.
    grafted: HashMap<Id, Id>,
}

impl Builder<'_> {
    fn push(&mut self, shape: Shape) -> Id {
        self.tree.nodes.push(Node { shape, go: "interface {}".into() });
        (self.tree.nodes.len() - 1) as Id
    }

    /// Adds the type of a value. `preserves_unknown` is true if an enclosing object preserves unknown fields.
    fn node(&mut self, doc: &Value, preserves_unknown: bool) -> Id {
        if is(doc, "x-kubernetes-int-or-string") {
            return self.push(Shape::IntOrString);
        }
        match doc.get("type").and_then(Value::as_str) {
            Some("object") => {
                self.object(doc, is(doc, "x-kubernetes-embedded-resource"), preserves_unknown)
            }
            Some("array") => {
                let item = self.node(doc.get("items").unwrap_or(&Value::Null), preserves_unknown);
                self.push(Shape::List { item, kind: list_kind(doc) })
            }
            Some("string") => self.push(Shape::String),
            Some("integer") => self.push(Shape::Int { bits: 64 }),
            Some("number") => self.push(Shape::Float),
            Some("boolean") => self.push(Shape::Bool),
            _ => self.push(Shape::Any),
        }
    }

    /// Adds the type of an object. `is_resource` is true for the root and for embedded resources.
    fn object(&mut self, doc: &Value, is_resource: bool, preserves_unknown: bool) -> Id {
        let preserves_unknown =
            preserves_unknown || is(doc, "x-kubernetes-preserve-unknown-fields");
        let atomic = doc.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        let properties = doc.get("properties").and_then(Value::as_object).filter(|p| !p.is_empty());
        let id = self.push(Shape::Any);
        let additional = match doc.get("additionalProperties") {
            Some(Value::Object(_)) => {
                doc.get("additionalProperties").map(|value| self.node(value, preserves_unknown))
            }
            Some(Value::Bool(true)) => Some(self.push(Shape::Any)),
            _ => None,
        };
        if let (None, Some(value), false) = (properties, additional, is_resource) {
            self.tree.nodes[id as usize].shape = Shape::Map { value, atomic };
            return id;
        }
        let mut fields: Vec<Field> = Vec::new();
        for (name, property) in properties.into_iter().flatten() {
            let node = self.node(property, preserves_unknown);
            fields.push(field(name, node, property.get("default").cloned()));
        }
        if is_resource {
            fields.retain(|f| !matches!(&*f.name, "apiVersion" | "kind" | "metadata"));
            let text = self.push(Shape::String);
            let metadata = self.graft(self.metadata.id);
            fields.extend(
                [("apiVersion", text), ("kind", text), ("metadata", metadata)]
                    .map(|(n, id)| field(n, id, None)),
            );
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let rest = match additional {
            _ if is(doc, "x-kubernetes-preserve-unknown-fields") => Rest::Keep,
            Some(id) => Rest::Typed(id),
            None if preserves_unknown => Rest::DropInPreserved,
            None => Rest::Drop,
        };
        self.tree.nodes[id as usize].shape =
            Shape::Struct(Struct { fields: fields.into(), atomic, rest, embedded: is_resource });
        id
    }

    /// Copies a built-in type into this schema.
    fn graft(&mut self, from: Id) -> Id {
        if let Some(id) = self.grafted.get(&from) {
            return *id;
        }
        let node = self.metadata.to(from).node();
        self.tree.nodes.push(node.clone());
        let id = (self.tree.nodes.len() - 1) as Id;
        self.grafted.insert(from, id);
        let shape = match &node.shape {
            Shape::Struct(s) => {
                let fields =
                    s.fields.iter().map(|f| Field { node: self.graft(f.node), ..f.clone() });
                Shape::Struct(Struct { fields: fields.collect(), ..s.clone() })
            }
            Shape::Map { value, atomic } => {
                Shape::Map { value: self.graft(*value), atomic: *atomic }
            }
            Shape::List { item, kind } => {
                Shape::List { item: self.graft(*item), kind: kind.clone() }
            }
            other => other.clone(),
        };
        self.tree.nodes[id as usize].shape = shape;
        id
    }
}

/// Returns a field that is omitted if unset.
fn field(name: &str, node: Id, default: Option<Value>) -> Field {
    Field {
        name: name.into(),
        node,
        pointer: true,
        omit_empty: true,
        omit_zero: false,
        position: 0,
        embedded_in: "".into(),
        default,
        patch: PatchRule::default(),
    }
}

fn is(doc: &Value, flag: &str) -> bool {
    doc.get(flag) == Some(&Value::Bool(true))
}

fn list_kind(doc: &Value) -> ListKind {
    match doc.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = doc.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            ListKind::Map(
                keys.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect(),
            )
        }
        _ => ListKind::Atomic,
    }
}
