//! Typed schemas of built-in kinds and custom resources: types, merge rules of lists and maps, and the fields that
//! are omitted if empty.
//!
//! The built-in schemas are built once per process, from `data/openapi-v3.schemas.json` (types, list and patch
//! topology) and `data/go-fields.tsv` (pointers and `omitempty` of Go's fields, which determine the encoded JSON).

mod custom;
pub(crate) mod go_order;
pub(crate) mod node;
mod openapi;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use node::{Id, Tree, TypeRef};
use openapi::Builtin;
use serde_json::Value;

use crate::decode::json::Json;
use crate::decode::typed;
use crate::group_version::GroupVersionKind;
use crate::status::FieldError;
use crate::validation::metadata;

static OPENAPI: &str = include_str!("../../data/openapi-v3.schemas.json");
static GO_FIELDS: &str = include_str!("../../data/go-fields.tsv");

/// Schema of one kind at one version. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Schema {
    tree: Arc<Tree>,
    root: Id,
    group: Arc<str>,
    version: Arc<str>,
    kind: Arc<str>,
    custom: bool,
    status: bool,
}

fn builtin() -> &'static Builtin {
    static TREE: LazyLock<Builtin> = LazyLock::new(|| match openapi::build(OPENAPI, GO_FIELDS) {
        Ok(built) => built,
        Err(error) => unreachable!("the schema document is part of the program: {error}"),
    });
    &TREE
}

/// Decodes a value by the type with this name in the OpenAPI document, or returns Go's error.
pub(crate) fn decode_type(type_name: &str, json: &Json<'_>) -> Result<Value, String> {
    let all = builtin();
    let Some(id) = all.names.get(type_name) else { return Ok(json.to_value()) };
    let type_ref = TypeRef { tree: &all.tree, id: *id };
    let (value, errors) = typed::decode_from(typed::DecoderKind::Text, json, type_ref);
    errors.error.map_or(Ok(value), Err)
}

/// Encodes a value as Go does. `type_name` is the name of its type in the OpenAPI document.
pub fn go_encoded(type_name: &str, value: &Value) -> String {
    let all = builtin();
    let type_ref = all.names.get(type_name).map(|id| node::TypeRef { tree: &all.tree, id: *id });
    let mut out = String::new();
    go_order::write_value(value, type_ref, &mut out);
    out
}

/// Sets a top-level field to Go's encoding of an unset field.
pub fn reset_field(schema: Option<&Schema>, object: &mut Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    map.remove(field);
    let schema = schema.filter(|schema| !schema.is_custom());
    let unset = schema.and_then(|schema| typed::unset_field(schema.type_ref(), field));
    if let Some(value) = unset {
        map.insert(field.to_owned(), value);
    }
}

/// Sets each top-level field that an object of a built-in kind lacks to Go's encoding of an unset field, unless Go omits
/// it.
pub fn set_unset_fields(schema: &Schema, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let fields = schema.type_ref().as_struct().filter(|_| !schema.is_custom());
    for field in fields.into_iter().flat_map(|fields| fields.fields.iter()) {
        if !map.contains_key(&*field.name)
            && let Some(value) = typed::unset_field(schema.type_ref(), &field.name)
        {
            map.insert(field.name.to_string(), value);
        }
    }
}

/// Validates the metadata of an embedded object, except its name.
pub fn validate_metadata(object: &Value) -> Vec<FieldError> {
    metadata::validate(object)
}

/// Validates `metadata` of an object of any kind, except its name: labels, annotations, finalizers, owner
/// references and managedFields.
pub fn validate(_kind: &GroupVersionKind, object: &Value) -> Vec<FieldError> {
    metadata::validate(object)
}

/// Returns the schemas of built-in kinds by the kind's name. Few kinds share a name.
fn kinds() -> &'static HashMap<Box<str>, Vec<Schema>> {
    static KINDS: LazyLock<HashMap<Box<str>, Vec<Schema>>> = LazyLock::new(|| {
        let all = builtin();
        let mut kinds: HashMap<Box<str>, Vec<Schema>> = HashMap::new();
        for ((group, version, kind), root) in &all.kinds {
            let schema = Schema {
                tree: all.tree.clone(),
                root: *root,
                group: (**group).into(),
                version: (**version).into(),
                kind: (**kind).into(),
                custom: false,
                status: false,
            };
            kinds.entry(kind.clone()).or_default().push(schema);
        }
        kinds
    });
    &KINDS
}

impl Schema {
    /// Returns the schema of a built-in kind; `None` for an unknown kind.
    pub fn of(kind: &GroupVersionKind) -> Option<Self> {
        Self::builtin(&kind.group, &kind.version, &kind.kind)
    }

    /// Returns the schema of a built-in kind by group, version and kind.
    pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Self> {
        let named = kinds().get(kind)?;
        named.iter().find(|s| *s.group == *group && *s.version == *version).cloned()
    }

    /// Builds the schema of one version of a custom resource from its `openAPIV3Schema`. `status` is whether the
    /// version has the status subresource.
    pub fn custom(kind: &GroupVersionKind, doc: &Value, status: bool) -> Self {
        let all = builtin();
        let metadata = all
            .names
            .get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
            .copied()
            .unwrap_or_default();
        let tree = custom::build(doc, TypeRef { tree: &all.tree, id: metadata });
        Self {
            tree: Arc::new(tree),
            root: 0,
            group: kind.group.clone(),
            version: kind.version.clone(),
            kind: kind.kind.clone(),
            custom: true,
            status,
        }
    }

    /// Returns the API group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Returns the version within the group.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the kind that the schema describes.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the apiVersion: `group/version`, or the version alone in the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns whether this is the schema of a custom resource.
    pub(crate) fn is_custom(&self) -> bool {
        self.custom
    }

    /// Returns whether the kind has a `status` that only its subresource sets.
    pub(crate) fn has_status(&self) -> bool {
        if self.custom { self.status } else { self.type_ref().child("status").is_some() }
    }

    pub(crate) fn type_ref(&self) -> TypeRef<'_> {
        TypeRef { tree: &self.tree, id: self.root }
    }
}

#[cfg(test)]
mod tests {
    use super::node::{ListKind, Shape};
    use super::*;

    #[test]
    fn built_in_schemas_have_list_keys() {
        let pod = Schema::builtin("", "v1", "Pod").expect("a built-in kind");
        assert_eq!((pod.api_version().as_str(), pod.kind()), ("v1", "Pod"));
        let spec = pod.type_ref().child("spec").expect("a field");
        assert_eq!(&*spec.node().go, "v1.PodSpec");
        let containers = spec.child("containers").expect("a field");
        let Shape::List { item, kind: ListKind::Map(keys) } = containers.shape() else {
            panic!("a keyed list")
        };
        assert_eq!(&*keys[0], "name");
        let ports = containers.to(*item).child("ports").expect("a field");
        let Shape::List { kind: ListKind::Map(keys), .. } = ports.shape() else {
            panic!("a keyed list")
        };
        assert_eq!(keys.len(), 2);
        assert!(Schema::builtin("apps", "v1", "Nope").is_none());
    }

    #[test]
    fn built_in_schemas_have_pointers_and_omitempty_of_go() {
        let deployment = Schema::builtin("apps", "v1", "Deployment").expect("a built-in kind");
        let spec = deployment
            .type_ref()
            .child("spec")
            .and_then(super::node::TypeRef::as_struct)
            .expect("a struct");
        let replicas = spec.field("replicas").expect("a field");
        assert!(replicas.pointer && replicas.omit_empty);
        assert!(spec.field("selector").is_some_and(|f| f.pointer && !f.omit_empty));
        let selector = deployment
            .type_ref()
            .child("spec")
            .and_then(|s| s.child("selector"))
            .and_then(super::node::TypeRef::as_struct);
        assert!(selector.is_some_and(|s| s.atomic));
    }
}
