//! Conversion of CustomResourceDefinitions to their storage version `v1beta1`. Fields that all versions share are
//! stored once, next to the versions.
//!
//! Upstream: `Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec` and its inverse.

use serde_json::{Map, Value};

const V1: &str = "apiextensions.k8s.io/v1";
const V1BETA1: &str = "apiextensions.k8s.io/v1beta1";

/// Fields of a version, with the names that they have next to the versions if all versions have the same value.
const SHARED_FIELDS: [(&str, &str); 4] = [
    ("subresources", "subresources"),
    ("schema", "validation"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Converts a definition from `v1` to `v1beta1`.
pub(super) fn to_storage(definition: &Value) -> Value {
    let mut definition = definition.clone();
    set(&mut definition, "apiVersion", V1BETA1.into());
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return definition;
    };
    // Without the field, the default of `v1beta1` would be true.
    spec.entry("preserveUnknownFields").or_insert(Value::Bool(false));
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
        && let Some(mut webhook) = conversion.remove("webhook")
    {
        rename(conversion, "webhookClientConfig", take(&mut webhook, "clientConfig"));
        let versions = take(&mut webhook, "conversionReviewVersions");
        rename(conversion, "conversionReviewVersions", versions);
    }
    let mut shared = Vec::new();
    for version in versions(spec) {
        rename_paths(version.get_mut("additionalPrinterColumns"), "jsonPath", "JSONPath");
    }
    let versions = versions(spec);
    if let Some(first) = versions.first().cloned() {
        shared.push(("version", first.get("name").cloned().unwrap_or_default()));
        for (field, shared_name) in SHARED_FIELDS {
            if versions.iter().any(|version| version.get(field) != first.get(field)) {
                continue;
            }
            let value = versions.iter_mut().filter_map(|version| take(version, field)).next();
            shared.extend(value.map(|value| (shared_name, value)));
            for version in versions.iter_mut() {
                take(version, field);
            }
        }
    }
    spec.extend(shared.into_iter().map(|(name, value)| (name.to_owned(), value)));
    definition
}

/// Converts a stored definition to `v1`.
pub(super) fn from_storage(mut definition: Value) -> Value {
    if definition.get("apiVersion").and_then(Value::as_str) != Some(V1BETA1) {
        return definition;
    }
    set(&mut definition, "apiVersion", V1.into());
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return definition;
    };
    match spec.get("preserveUnknownFields") {
        Some(Value::Bool(false)) => drop(spec.remove("preserveUnknownFields")),
        _ => drop(spec.insert("preserveUnknownFields".to_owned(), Value::Bool(true))),
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let config = conversion.remove("webhookClientConfig");
        let versions = conversion.remove("conversionReviewVersions");
        if config.is_some() || versions.is_some() {
            let mut webhook = Map::new();
            rename(&mut webhook, "clientConfig", config);
            rename(&mut webhook, "conversionReviewVersions", versions);
            conversion.insert("webhook".to_owned(), webhook.into());
        }
    }
    let name = spec.remove("version").unwrap_or_default();
    if versions(spec).is_empty() {
        let version = serde_json::json!({"name": name, "served": true, "storage": true});
        spec.insert("versions".to_owned(), vec![version].into());
    }
    for (field, shared_name) in SHARED_FIELDS {
        let Some(value) = spec.remove(shared_name) else { continue };
        for version in versions(spec) {
            set(version, field, value.clone());
        }
    }
    for version in versions(spec) {
        rename_paths(version.get_mut("additionalPrinterColumns"), "JSONPath", "jsonPath");
    }
    definition
}

fn versions(spec: &mut Map<String, Value>) -> &mut [Value] {
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    versions.map_or(&mut [], |versions| &mut versions[..])
}

fn take(object: &mut Value, field: &str) -> Option<Value> {
    object.as_object_mut()?.remove(field)
}

fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

fn rename(fields: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        fields.insert(name.to_owned(), value);
    }
}

/// Renames the field of each column that has the path of its value.
fn rename_paths(columns: Option<&mut Value>, from: &str, to: &str) {
    let columns = columns.and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten() {
        if let Some(path) = take(column, from) {
            set(column, to, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn common_fields_of_the_versions_are_stored_once() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let column = |path: &str| json!([{"name": "A", "type": "string", path: ".spec.a"}]);
        let version = |name: &str, more: Value| {
            let mut version = json!({"name": name, "served": true, "storage": name == "v1"});
            version
                .as_object_mut()
                .expect("an object")
                .extend(more.as_object().expect("an object").clone());
            version
        };
        let webhook =
            json!({"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]});
        let definition = json!({"apiVersion": V1, "kind": "CustomResourceDefinition", "spec": {
            "group": "b.c",
            "conversion": {"strategy": "Webhook", "webhook": webhook},
            "versions": [
                version("v1", json!({"schema": schema, "subresources": {"status": {}}, "additionalPrinterColumns": column("jsonPath")})),
                version("v2", json!({"schema": schema, "additionalPrinterColumns": column("jsonPath")})),
            ],
        }});
        let stored = json!({"apiVersion": V1BETA1, "kind": "CustomResourceDefinition", "spec": {
            "group": "b.c",
            "version": "v1",
            "validation": schema,
            "additionalPrinterColumns": column("JSONPath"),
            "preserveUnknownFields": false,
            "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]},
            "versions": [version("v1", json!({"subresources": {"status": {}}})), version("v2", json!({}))],
        }});
        assert_eq!(to_storage(&definition), stored);
        assert_eq!(from_storage(stored), definition);
        assert_eq!(from_storage(definition.clone()), definition, "stored as v1 by another program");
    }

    #[test]
    fn a_definition_without_versions_has_the_one_that_it_names() {
        let stored = json!({"apiVersion": V1BETA1, "spec": {"version": "v1", "validation": {}}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {}});
        let expected = json!({"preserveUnknownFields": true, "versions": [version]});
        assert_eq!(from_storage(stored)["spec"], expected);
    }
}
