//! Documents of custom resources: one a group and a version, with the least that kubectl needs.

use crate::resource::{ResourceType, Rows};
use crate::schema::Schema;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn is_custom(resource: &ResourceType) -> bool {
    Schema::builtin(resource.group(), resource.version(), resource.kind()).is_none()
}

fn custom(rows: &Rows) -> impl Iterator<Item = &Arc<ResourceType>> {
    rows.all.iter().filter(|resource| is_custom(resource))
}

/// `com.example.v1.Widget` for the group `example.com`.
fn definition_name(resource: &ResourceType) -> String {
    let group: Vec<&str> = resource.group().rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), resource.version(), resource.kind())
}

fn schema(resource: &ResourceType) -> Value {
    json!({"type": "object", "x-kubernetes-group-version-kind": [{
        "group": resource.group(), "version": resource.version(), "kind": resource.kind()}],
        "x-kubernetes-preserve-unknown-fields": true})
}

/// Definitions for the document of version 2.
pub(super) fn definitions(rows: &Rows) -> Map<String, Value> {
    custom(rows).map(|resource| (definition_name(resource), schema(resource))).collect()
}

/// Documents of version 3, by name.
pub(super) fn documents(rows: &Rows) -> BTreeMap<String, Value> {
    let mut documents: BTreeMap<String, Value> = BTreeMap::new();
    for resource in custom(rows) {
        let document = documents.entry(format!("apis/{}", resource.api_version)).or_insert_with(|| {
            json!({"openapi": "3.0.0", "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}, "paths": {},
                "components": {"schemas": {}}})
        });
        document["components"]["schemas"][definition_name(resource)] = schema(resource);
        let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let path =
            format!("/apis/{}{namespace}/{}/{{name}}", resource.api_version, resource.plural());
        document["paths"][path] = operations(resource);
    }
    documents
}

/// What can be done to one object: kubectl looks here whether fields are validated and dry runs are taken.
fn operations(resource: &ResourceType) -> Value {
    let gvk =
        json!({"group": resource.group(), "version": resource.version(), "kind": resource.kind()});
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    let operation = |action: &str| {
        json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk, "parameters": parameters,
            "responses": {"200": {"description": "OK"}}})
    };
    json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch"), "delete": operation("delete")})
}
