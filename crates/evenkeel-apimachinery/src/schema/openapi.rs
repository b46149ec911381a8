//! Builder of the schemas of built-in kinds, from two recorded tables: upstream's OpenAPI document, and the Go
//! types and JSON tags of its fields.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::node::{Field, Id, ListKind, Node, PatchRule, Rest, Shape, Struct, Tree};

/// Parts of an OpenAPI schema that describe types.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OpenApiSchema<'a> {
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    format: Option<&'a str>,
    #[serde(borrow)]
    properties: HashMap<&'a str, OpenApiSchema<'a>>,
    items: Option<Box<OpenApiSchema<'a>>>,
    #[serde(rename = "additionalProperties")]
    additional: Option<Box<OpenApiSchema<'a>>>,
    #[serde(rename = "$ref")]
    reference: Option<&'a str>,
    #[serde(rename = "allOf")]
    all_of: Vec<OpenApiSchema<'a>>,
    default: Option<Value>,
    #[serde(rename = "x-kubernetes-list-type")]
    list_type: Option<&'a str>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    list_keys: Vec<&'a str>,
    #[serde(rename = "x-kubernetes-map-type")]
    map_type: Option<&'a str>,
    #[serde(rename = "x-kubernetes-patch-strategy")]
    patch_strategy: Option<&'a str>,
    #[serde(rename = "x-kubernetes-patch-merge-key")]
    patch_key: Option<&'a str>,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<GroupVersionKind<'a>>,
}

#[derive(Debug, Deserialize)]
struct GroupVersionKind<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

impl<'a> OpenApiSchema<'a> {
    /// Returns the name of the schema that this schema references.
    fn target(&self) -> Option<&'a str> {
        let reference = self.reference.or_else(|| self.all_of.first().and_then(|d| d.reference))?;
        reference.rsplit('/').next()
    }
}

/// Group, version, kind.
type KindKey = (Box<str>, Box<str>, Box<str>);

/// Schemas of all built-in kinds.
#[derive(Debug)]
pub(super) struct Builtin {
    pub tree: Arc<Tree>,
    /// Types of kinds by group, version and kind.
    pub kinds: HashMap<KindKey, Id>,
    /// All named types by their name in the OpenAPI document.
    pub names: HashMap<Box<str>, Id>,
}

/// Go type and JSON options of a field, which the OpenAPI document lacks.
struct GoField<'a> {
    type_: &'a str,
    /// `o` for omitempty and `z` for omitzero.
    flags: &'a str,
    /// Position in the struct.
    position: usize,
    /// Name of the embedded struct that has the field.
    embedded_in: &'a str,
}

/// Parses both documents and builds one tree of all their types.
pub(super) fn build(openapi: &str, go_fields: &str) -> Result<Builtin, serde_json::Error> {
    let docs: HashMap<&str, OpenApiSchema<'_>> = serde_json::from_str(openapi)?;
    let mut builder = Builder {
        docs: &docs,
        go_fields: parse_go_fields(go_fields),
        tree: Tree::default(),
        ids: HashMap::new(),
    };
    let mut kinds = HashMap::new();
    let mut names = HashMap::new();
    for (name, doc) in &docs {
        let id = builder.named(name, None);
        names.insert((*name).into(), id);
        for k in &doc.kinds {
            kinds.insert((k.group.into(), k.version.into(), k.kind.into()), id);
        }
    }
    Ok(Builtin { tree: Arc::new(builder.tree), kinds, names })
}

/// Parses lines of `schema TAB field:type[:flags[:embedded]] …`; flags are `o` (omitempty) and `z` (omitzero), and `embedded`
/// is the embedded struct that has the field.
fn parse_go_fields(text: &str) -> HashMap<&str, HashMap<&str, GoField<'_>>> {
    let mut schemas = HashMap::new();
    for line in text.lines() {
        let Some((schema, fields)) = line.split_once('\t') else { continue };
        let fields = fields.split(' ').enumerate().filter_map(|(position, field)| {
            let mut parts = field.split(':');
            let (name, type_) = (parts.next()?, parts.next()?);
            let (flags, embedded_in) =
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            Some((name, GoField { type_, flags, position, embedded_in }))
        });
        schemas.insert(schema, fields.collect());
    }
    schemas
}

/// Builder of the built-in schemas.
struct Builder<'d, 'a> {
    docs: &'d HashMap<&'a str, OpenApiSchema<'a>>,
    go_fields: HashMap<&'a str, HashMap<&'a str, GoField<'a>>>,
    tree: Tree,
    ids: HashMap<String, Id>,
}

impl<'a> Builder<'_, 'a> {
    fn push(&mut self, key: String, shape: Shape, go: &str) -> Id {
        let id = self.tree.nodes.len() as Id;
        self.tree.nodes.push(Node { shape, go: go.into() });
        self.ids.insert(key, id);
        id
    }

    /// Adds a named type of the document; `atomic` overrides its map type.
    fn named(&mut self, name: &'a str, atomic: Option<bool>) -> Id {
        let key = format!("{name} {atomic:?}");
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let go = short_name(name);
        let id = self.push(key, custom_encoding(name).unwrap_or(Shape::Any), &go);
        let Some(doc) = self.docs.get(name) else { return id };
        if custom_encoding(name).is_none() && doc.kind == Some("object") {
            let fields = self.fields(name, doc);
            let atomic = atomic.unwrap_or(doc.map_type == Some("atomic"));
            let shape = Shape::Struct(Struct {
                fields: fields.into(),
                atomic,
                rest: Rest::Drop,
                embedded: false,
            });
            self.tree.nodes[id as usize].shape = shape;
        }
        id
    }

    fn fields(&mut self, owner: &'a str, doc: &OpenApiSchema<'a>) -> Vec<Field> {
        let go = self.go_fields.remove(owner).unwrap_or_default();
        let mut fields: Vec<Field> = doc
            .properties
            .iter()
            .map(|(name, property)| {
                let go_field = go.get(name);
                let go_type = go_field.map_or("", |field| field.type_);
                let has = |flag| go_field.is_some_and(|field| field.flags.contains(flag));
                Field {
                    name: (*name).into(),
                    node: self.node(property, go_type.trim_start_matches('*')),
                    pointer: go_type.starts_with('*'),
                    omit_empty: has('o'),
                    omit_zero: has('z'),
                    position: go_field.map_or(usize::MAX, |field| field.position),
                    embedded_in: go_field.map_or("", |field| field.embedded_in).into(),
                    default: property.default.clone(),
                    patch: patch_rule(property),
                }
            })
            .collect();
        self.go_fields.insert(owner, go);
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields
    }

    /// Adds the type of a property, item or map value, whose Go type is `go`.
    fn node(&mut self, doc: &OpenApiSchema<'a>, go: &str) -> Id {
        if let Some(name) = doc.target() {
            return self.named(name, doc.map_type.map(|t| t == "atomic"));
        }
        let key = format!(
            "{go} {:?} {:?} {:?} {:?} {}",
            doc.kind,
            doc.format,
            doc.list_type,
            doc.list_keys,
            doc.map_type.unwrap_or("")
        );
        let leaf = doc.items.is_none() && doc.additional.is_none();
        if leaf && let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let shape = self.shape(doc, go);
        self.push(key, shape, go)
    }

    fn shape(&mut self, doc: &OpenApiSchema<'a>, go: &str) -> Shape {
        match (doc.kind, doc.format) {
            (Some("boolean"), _) => Shape::Bool,
            (Some("integer"), Some("int32")) => Shape::Int { bits: 32 },
            (Some("integer"), _) => Shape::Int { bits: 64 },
            (Some("number"), _) => Shape::Float,
            (Some("string"), Some("byte")) => Shape::Bytes,
            (Some("string"), _) if go == "v1.Duration" => Shape::Duration,
            (Some("string"), _) => Shape::String,
            (Some("array"), _) => {
                let item_go = go.strip_prefix("[]").unwrap_or("string").trim_start_matches('*');
                let item = doc.items.as_deref().map(|items| self.node(items, item_go));
                let item =
                    item.unwrap_or_else(|| self.push(String::new(), Shape::Any, "interface {}"));
                Shape::List { item, kind: list_kind(doc) }
            }
            (Some("object"), _) => match doc.additional.as_deref() {
                Some(value) => {
                    let value_go = go.split_once(']').map_or_else(
                        || map_value_name(value),
                        |(_, v)| v.trim_start_matches('*').to_owned(),
                    );
                    Shape::Map {
                        value: self.node(value, &value_go),
                        atomic: doc.map_type == Some("atomic"),
                    }
                }
                None => Shape::Any,
            },
            _ => Shape::Any,
        }
    }
}

/// Returns the shape of a type that has custom JSON encoding in Go.
fn custom_encoding(name: &str) -> Option<Shape> {
    Some(match name.rsplit_once(".apimachinery.pkg.")?.1 {
        "api.resource.Quantity" => Shape::Quantity,
        "apis.meta.v1.Time" => Shape::Time,
        "apis.meta.v1.MicroTime" => Shape::MicroTime,
        "util.intstr.IntOrString" => Shape::IntOrString,
        "runtime.RawExtension" => Shape::Raw,
        "apis.meta.v1.FieldsV1" | "apis.meta.v1.Patch" => Shape::Any,
        _ => return None,
    })
}

/// Returns the Go name of a schema: `v1.Container` for `io.k8s.api.core.v1.Container`.
fn short_name(schema: &str) -> String {
    let mut parts = schema.rsplit('.');
    let (kind, package) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    format!("{package}.{kind}")
}

/// Returns the Go name of a map's values if the map's own type has a name.
fn map_value_name(value: &OpenApiSchema<'_>) -> String {
    value.target().map_or_else(|| "string".to_owned(), short_name)
}

fn list_kind(doc: &OpenApiSchema<'_>) -> ListKind {
    match (doc.list_type, doc.patch_strategy, doc.patch_key) {
        (Some("set"), _, _) => ListKind::Set,
        (Some("map"), _, _) => ListKind::Map(doc.list_keys.iter().map(|k| (*k).into()).collect()),
        (Some(_), _, _) => ListKind::Atomic,
        (None, Some("merge" | "merge,retainKeys"), Some(key)) => ListKind::Map([key.into()].into()),
        (None, Some("merge" | "merge,retainKeys"), None) => ListKind::Set,
        (None, _, _) => ListKind::Atomic,
    }
}

fn patch_rule(doc: &OpenApiSchema<'_>) -> PatchRule {
    let strategy = doc.patch_strategy.unwrap_or("");
    let has = |name| strategy.split(',').any(|s| s == name);
    PatchRule {
        merge: has("merge"),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
        key: doc.patch_key.map(Into::into),
    }
}
