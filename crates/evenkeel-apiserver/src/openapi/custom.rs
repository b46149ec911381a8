//! OpenAPI documents of custom resources from their definitions' schemas (upstream: `controller/openapi/builder`).

use super::recorded::recorded;
use crate::resource::custom::Version;
use crate::resource::{ResourceType, Rows};
use evenkeel_apimachinery::value::{flag, list};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
// Upstream's descriptions of fields.
const API_VERSION_DESCRIPTION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_DESCRIPTION: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_DESCRIPTION: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA_DESCRIPTION: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// OpenAPI version of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Two,
    Three,
}

impl Dialect {
    /// Returns a reference to a schema.
    fn reference(self, name: &str) -> Value {
        let section = if self == Self::Two { "definitions" } else { "components/schemas" };
        json!({"$ref": format!("#/{section}/{name}")})
    }

    /// Returns a reference to a schema, with a description.
    fn described_reference(self, name: &str, description: &str) -> Value {
        match self {
            Self::Two => {
                let mut schema = self.reference(name);
                schema["description"] = description.into();
                schema
            }
            Self::Three => {
                json!({"allOf": [self.reference(name)], "description": description})
            }
        }
    }
}

/// Returns the custom resource types, each with its version of the definition.
fn custom_resources(rows: &Rows) -> impl Iterator<Item = (&Arc<ResourceType>, &Arc<Version>)> {
    rows.all.iter().filter_map(|resource| {
        let version = resource.custom.as_ref()?;
        Some((resource, version))
    })
}

/// Returns the name of a kind's schema, such as `com.example.v1.Widget` for the group `example.com`.
fn model_name(resource: &ResourceType, kind: &str) -> String {
    let group: Vec<&str> = resource.group().rsplit('.').collect();
    format!("{}.{}.{kind}", group.join("."), resource.version())
}

fn group_version_kind(resource: &ResourceType, kind: &str) -> Value {
    json!([{"group": resource.group(), "version": resource.version(), "kind": kind}])
}

/// Returns the schema of the resource's kind.
fn schema(resource: &ResourceType, version: &Version, dialect: Dialect) -> Value {
    let document = &version.document;
    // OpenAPI v2 clients would reject unknown fields.
    let allows_any_field =
        dialect == Dialect::Two && flag(document, "x-kubernetes-preserve-unknown-fields");
    let mut schema = if allows_any_field || !document.is_object() {
        json!({"type": "object"})
    } else {
        let mut schema = document.clone();
        if dialect == Dialect::Two {
            to_openapi_v2(&mut schema);
        } else {
            spell_out_types(&mut schema);
        }
        describe_embedded_objects(&mut schema, dialect);
        schema["properties"]["metadata"] =
            dialect.described_reference(OBJECT_META, METADATA_DESCRIPTION);
        schema["properties"]["apiVersion"] =
            json!({"type": "string", "description": API_VERSION_DESCRIPTION});
        schema["properties"]["kind"] = json!({"type": "string", "description": KIND_DESCRIPTION});
        schema
    };
    mark_selectable(&mut schema, version);
    schema["x-kubernetes-group-version-kind"] = group_version_kind(resource, resource.kind());
    schema
}

/// Adds the fields that field selectors may name. Upstream adds them to lists, too.
fn mark_selectable(schema: &mut Value, version: &Version) {
    if !version.selectable.is_empty() {
        let fields: Vec<Value> =
            version.selectable.iter().map(|(name, _)| json!({"fieldPath": name})).collect();
        schema["x-kubernetes-selectable-fields"] = fields.into();
    }
}

/// Removes fields that OpenAPI v2, or its old clients, do not support.
///
/// Upstream: `ToStructuralOpenAPIV2`.
fn to_openapi_v2(schema: &mut Value) {
    let is_nullable = flag(schema, "nullable");
    let preserves_unknown = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let Some(fields) = schema.as_object_mut() else { return };
    for junctor in ["allOf", "oneOf", "anyOf", "not", "default"] {
        fields.remove(junctor);
    }
    if is_nullable {
        fields.remove("type");
        fields.remove("nullable");
    }
    if is_nullable || preserves_unknown {
        fields.remove("items");
        fields.remove("properties");
    }
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let has_untyped_contents = match kind {
        "array" => !fields.contains_key("items"),
        "object" => preserves_unknown,
        _ => false,
    };
    if has_untyped_contents {
        fields.remove("type");
    }
    let nullable_properties: Vec<String> = fields
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, property)| flag(property, "nullable"))
        .map(|(name, _)| name.clone())
        .collect();
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !nullable_properties.iter().any(|nullable| name == nullable));
        if required.is_empty() {
            fields.remove("required");
        }
    }
    for_each_child(schema, &mut to_openapi_v2);
}

/// Spells out the two types of an integer or string.
///
/// Upstream: `Structural.Unfold`.
fn spell_out_types(schema: &mut Value) {
    for_each_child(schema, &mut spell_out_types);
    let types = json!([{"type": "integer"}, {"type": "string"}]);
    let has_types = schema["anyOf"] == types || schema["allOf"][0]["anyOf"] == types;
    if !flag(schema, "x-kubernetes-int-or-string") || has_types {
        return;
    }
    if list(schema, "anyOf").is_empty() {
        schema["anyOf"] = types;
    } else {
        let more = list(schema, "allOf").iter().cloned();
        schema["allOf"] = [json!({"anyOf": types})].into_iter().chain(more).collect();
    }
}

/// Adds `apiVersion`, `kind` and `metadata` to the schemas of embedded objects.
fn describe_embedded_objects(schema: &mut Value, dialect: Dialect) {
    for_each_child(schema, &mut |child| describe_embedded_objects(child, dialect));
    if dialect == Dialect::Two && flag(schema, "x-kubernetes-preserve-unknown-fields")
        || !flag(schema, "x-kubernetes-embedded-resource")
    {
        return;
    }
    schema["properties"]["apiVersion"] = json!({"type": "string", "description": "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"});
    schema["properties"]["kind"] = json!({"type": "string", "description": "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"});
    schema["properties"]["metadata"] =
        dialect.described_reference(OBJECT_META, METADATA_DESCRIPTION);
    let mut required = list(schema, "required").to_vec();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|required_name| required_name == name) {
            required.push(name.into());
        }
    }
    schema["required"] = required.into();
}

/// Calls `visit` with each schema directly inside a schema.
fn for_each_child(schema: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    for name in ["items", "additionalProperties"] {
        if let Some(child) = schema.get_mut(name).filter(|child| child.is_object()) {
            visit(child);
        }
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flatten().for_each(|(_, property)| visit(property));
}

/// Returns the schema of the resource's list kind.
fn list_schema(resource: &ResourceType, dialect: Dialect) -> Value {
    let items_description = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        resource.plural()
    );
    json!({"type": "object", "required": ["items"],
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind()),
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION_DESCRIPTION},
            "kind": {"type": "string", "description": KIND_DESCRIPTION},
            "items": {"type": "array", "description": items_description, "items": dialect.reference(&model_name(resource, resource.kind()))},
            "metadata": dialect.described_reference(LIST_META, LIST_METADATA_DESCRIPTION)},
        "x-kubernetes-group-version-kind": group_version_kind(resource, &resource.list_kind)})
}

/// Returns the schemas of the resource's kind and list kind, with their names.
fn schemas(resource: &ResourceType, version: &Version, dialect: Dialect) -> [(String, Value); 2] {
    let mut list = list_schema(resource, dialect);
    mark_selectable(&mut list, version);
    [
        (model_name(resource, resource.kind()), schema(resource, version, dialect)),
        (model_name(resource, &resource.list_kind), list),
    ]
}

/// Returns the definitions and paths of custom resources for the v2 document.
pub(super) fn definitions_and_paths(rows: &Rows) -> (Map<String, Value>, Map<String, Value>) {
    let (mut definitions, mut paths) = (Map::new(), Map::new());
    for (resource, version) in custom_resources(rows) {
        definitions.extend(schemas(resource, version, Dialect::Two));
        add_paths(resource, Dialect::Two, &mut paths);
    }
    (definitions, paths)
}

/// Paths and schemas of one v3 document.
#[derive(Default)]
struct DocumentParts {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

/// Returns the v3 documents by name, such as `apis/example.com/v1`.
pub(super) fn documents(rows: &Rows) -> BTreeMap<String, Value> {
    let mut documents: BTreeMap<String, DocumentParts> = BTreeMap::new();
    for (resource, version) in custom_resources(rows) {
        let parts = documents.entry(format!("apis/{}", resource.api_version)).or_default();
        parts.schemas.extend(schemas(resource, version, Dialect::Three));
        add_paths(resource, Dialect::Three, &mut parts.paths);
    }
    let finish = |(name, DocumentParts { paths, mut schemas }): (String, DocumentParts)| {
        add_builtin(&mut schemas);
        let document = json!({"openapi": "3.0.0", "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
            "paths": paths, "components": {"schemas": schemas}});
        (name, document)
    };
    documents.into_iter().map(finish).collect()
}

/// Adds the built-in schemas that documents of custom resources refer to, directly or indirectly.
fn add_builtin(schemas: &mut Map<String, Value>) {
    static BUILTIN: OnceLock<Map<String, Value>> = OnceLock::new();
    for (name, schema) in BUILTIN.get_or_init(builtin) {
        schemas.entry(name).or_insert_with(|| schema.clone());
    }
}

/// Returns the built-in schemas that custom resources refer to. They come from a recorded document, because the
/// server's own schemas have no descriptions.
fn builtin() -> Map<String, Value> {
    let mut document = recorded("apis/apps/v1");
    let mut schemas = document["components"]["schemas"].take();
    let mut builtin = Map::new();
    let mut referenced: Vec<String> = [OBJECT_META, LIST_META, SCALE].map(str::to_owned).into();
    while let Some(name) = referenced.pop() {
        let Some(schema) = schemas.get_mut(&name).filter(|schema| !schema.is_null()) else {
            continue;
        };
        let schema = schema.take();
        let text = schema.to_string();
        let names = text.split("#/components/schemas/").skip(1);
        referenced.extend(names.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        builtin.insert(name, schema);
    }
    builtin
}

/// Adds a resource's paths with their operations to `paths`.
fn add_paths(resource: &ResourceType, dialect: Dialect, paths: &mut Map<String, Value>) {
    let root = format!("/apis/{}", resource.api_version);
    let plural = resource.plural();
    let collection = if resource.namespaced {
        paths.insert(
            format!("{root}/{plural}"),
            json!({"get": operation(resource, "list", dialect)}),
        );
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let operation = |action: &str| operation(resource, action, dialect);
    let of_collection = json!({"get": operation("list"), "post": operation("post"), "delete": operation("deletecollection")});
    paths.insert(collection.clone(), of_collection);
    let of_object = json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch"), "delete": operation("delete")});
    paths.insert(format!("{collection}/{{name}}"), of_object);
    for subresource in &resource.subresources {
        let of_subresource =
            json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch")});
        paths.insert(format!("{collection}/{{name}}/{}", subresource.name), of_subresource);
    }
}

/// Returns the description of an operation. From its parameters, kubectl detects whether the server supports field
/// validation and dry runs.
fn operation(resource: &ResourceType, action: &str, dialect: Dialect) -> Value {
    let gvk =
        json!({"group": resource.group(), "version": resource.version(), "kind": resource.kind()});
    let query_parameter = |name: &str| match dialect {
        Dialect::Two => json!({"name": name, "in": "query", "type": "string", "uniqueItems": true}),
        Dialect::Three => {
            json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})
        }
    };
    let names: &[&str] = match action {
        "list" | "deletecollection" => {
            &["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"]
        }
        "get" => &["pretty"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        _ => &["dryRun", "fieldManager", "fieldValidation"],
    };
    let responds_with_list = matches!(action, "list" | "deletecollection");
    let kind: &str = if responds_with_list { &resource.list_kind } else { resource.kind() };
    let name = model_name(resource, kind);
    let response = match dialect {
        Dialect::Two => json!({"description": "OK", "schema": dialect.reference(&name)}),
        Dialect::Three => {
            json!({"description": "OK", "content": {"application/json": {"schema": dialect.reference(&name)}}})
        }
    };
    json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk,
        "parameters": names.iter().map(|name| query_parameter(name)).collect::<Vec<_>>(), "responses": {"200": response}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_schemas_are_complete_and_have_descriptions() {
        let builtin = builtin();
        let fields = &builtin[OBJECT_META]["properties"];
        let words = fields["creationTimestamp"]["description"].as_str().expect("described");
        assert!(words.starts_with("CreationTimestamp is a timestamp"), "{words}");
        for name in [LIST_META, SCALE, "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"] {
            assert!(builtin.contains_key(name), "{name}");
        }
        let text = Value::Object(builtin.clone()).to_string();
        let names = text.split("#/components/schemas/").skip(1);
        for name in names.filter_map(|rest| rest.split('"').next()) {
            assert!(builtin.contains_key(name), "{name}");
        }
    }
}
