//! Validation of a version's schema.
//!
//! Upstream: `validateCustomResourceDefinitionValidation`.

use std::collections::HashSet;

use serde_json::Value;

use super::{cel, defaults, structural};
use crate::structural::Structural;
use evenkeel_apimachinery::status::{BadValue, FieldError};
use evenkeel_apimachinery::value::{flag, get, list, text};

/// Values that `type` may have.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Context of a schema, which its enclosing schemas determine.
///
/// Upstream: `specStandardValidatorV3`.
#[derive(Clone)]
struct SchemaContext {
    /// Reason why defaults are forbidden here, or `None` if they are allowed.
    defaults_forbidden: Option<String>,
    /// Whether the schema describes `metadata`, `kind` or `apiVersion` of a resource, or a field within one of these.
    inside_resource_meta: bool,
}

/// Validates the schema of a version, which is at `field_path`.
pub(super) fn validate_schema(version: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let schema = &version["schema"]["openAPIV3Schema"];
    if !schema.is_object() {
        return;
    }
    let field_path = format!("{field_path}.openAPIV3Schema");
    let errors_before = errors.len();
    if version["subresources"]["status"].is_object() {
        validate_root(schema, &field_path, errors);
    }
    if flag(schema, "nullable") {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{field_path}.nullable"), detail));
    }
    let errors_before_structural = errors.len();
    let is_convertible = structural::is_convertible(schema);
    if is_convertible {
        structural::validate_structural(schema, &field_path, errors);
    }
    if is_convertible && errors.len() == errors_before_structural {
        let structural = Structural::new(schema);
        defaults::validate_defaults(schema, &structural, &field_path, true, errors);
    }
    validate_openapi_schema(
        schema,
        &field_path,
        true,
        &SchemaContext { defaults_forbidden: None, inside_resource_meta: false },
        errors,
    );
    // Skip the rules of an invalid schema: their errors would repeat those of the schema, less clearly.
    if errors.len() == errors_before {
        cel::validate_rules(schema, &field_path, errors);
    }
}

/// Validates the root schema of a version with a status subresource. Its keywords must also hold for the schema of
/// `status` alone.
///
/// Upstream: `allowedAtRootSchema`.
fn validate_root(schema: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    const ALLOWED: [&str; 24] = [
        "description",
        "type",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "required",
        "items",
        "properties",
        "externalDocs",
        "example",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
        "nullable",
        "default",
    ];
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(format!("{field_path}.type"), kind, detail));
        return;
    }
    let forbidden = schema.as_object().into_iter().flatten().find(|(name, value)| {
        !ALLOWED.contains(&name.as_str()) && !evenkeel_apimachinery::value::is_blank(value)
    });
    if forbidden.is_some() {
        let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(field_path, schema.clone(), detail));
    }
}

/// Validates a schema and its subschemas by the rules of the OpenAPI version 3 subset.
///
/// Upstream: `ValidateCustomResourceDefinitionOpenAPISchema`.
fn validate_openapi_schema(
    schema: &Value,
    field_path: &str,
    is_root: bool,
    context: &SchemaContext,
    errors: &mut Vec<FieldError>,
) {
    if !schema.is_object() {
        return;
    }
    validate_keywords(schema, field_path, context, errors);
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(more) = schema.get("additionalProperties").filter(|a| !a.is_null()) {
        let field = format!("{field_path}.additionalProperties");
        if properties.is_some_and(|p| !p.is_empty()) && *more != Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        let mut inside = context.clone();
        if context.inside_resource_meta {
            inside.defaults_forbidden =
                Some("inside additionalProperties applying to object metadata".to_owned());
        }
        validate_openapi_schema(more, &field, false, &inside, errors);
    }
    for (name, property) in properties.into_iter().flatten() {
        let mut inside = context.clone();
        let is_meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        if is_meta && (is_root || flag(schema, "x-kubernetes-embedded-resource")) {
            inside.inside_resource_meta = true;
            if is_root {
                inside.defaults_forbidden = Some(format!("in top-level {name}"));
            }
        }
        validate_openapi_schema(
            property,
            &format!("{field_path}.properties[{name}]"),
            false,
            &inside,
            errors,
        );
    }
    validate_openapi_schema(&schema["not"], &format!("{field_path}.not"), false, context, errors);
    validate_openapi_schema(
        &schema["items"],
        &format!("{field_path}.items"),
        false,
        context,
        errors,
    );
    for junctor in ["allOf", "oneOf", "anyOf"] {
        for (i, nested) in list(schema, junctor).iter().enumerate() {
            validate_openapi_schema(
                nested,
                &format!("{field_path}.{junctor}[{i}]"),
                false,
                context,
                errors,
            );
        }
    }
    validate_list_and_map_types(schema, field_path, errors);
}

/// Rejects keywords of JSON Schema that Kubernetes does not support.
fn validate_keywords(
    schema: &Value,
    field_path: &str,
    context: &SchemaContext,
    errors: &mut Vec<FieldError>,
) {
    let child_path = |name: &str| format!("{field_path}.{name}");
    let mut forbid =
        |name: &str, detail: &str| errors.push(FieldError::forbidden(child_path(name), detail));
    if get(schema, "default").is_some()
        && let Some(reason) = &context.defaults_forbidden
    {
        forbid("default", &format!("must not be set {reason}"));
    }
    if !text(schema, "id").is_empty() {
        forbid("id", "id is not supported");
    }
    for name in ["additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let is_set = |v: &Value| match name {
            // Upstream only checks whether these two are nil.
            "dependencies" | "$ref" => !v.is_null(),
            _ => !evenkeel_apimachinery::value::is_blank(v),
        };
        if schema.get(name).is_some_and(is_set) {
            forbid(name, &format!("{name} is not supported"));
        }
    }
    if flag(schema, "uniqueItems") {
        forbid(
            "uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    if structural::is_list(schema.get("items")) {
        forbid("items", "items must be a schema object and not an array");
    }
    if context.inside_resource_meta && flag(schema, "x-kubernetes-embedded-resource") {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(child_path("type"), kind, &TYPES));
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(child_path("type"), detail));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = child_path("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, false, "must be true or undefined"));
    }
}

fn validate_list_and_map_types(schema: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let child_path = |name: &str| format!("{field_path}.{name}");
    let kind = text(schema, "type");
    for (name, required, known) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"]),
    ] {
        let Some(value) = schema.get(name).and_then(Value::as_str) else { continue };
        if kind != required {
            let detail = format!("must be {required} if {name} is specified");
            errors.push(if kind.is_empty() {
                FieldError::required(child_path("type"), detail)
            } else {
                FieldError::invalid(child_path("type"), kind, detail)
            });
        }
        if !known.contains(&value) {
            errors.push(FieldError::not_supported(child_path(name), value, known));
        }
    }
    let (list_type, items) = (text(schema, "x-kubernetes-list-type"), &schema["items"]);
    let keys = list(schema, "x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if schema.get("x-kubernetes-list-type").is_none() {
            FieldError::required(child_path("x-kubernetes-list-type"), detail)
        } else {
            FieldError::invalid(child_path("x-kubernetes-list-type"), list_type, detail)
        });
    }
    if matches!(list_type, "set" | "map") && flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(child_path("items.nullable"), detail));
    }
    match list_type {
        "set" => validate_set_items(items, field_path, errors),
        "map" => validate_map_list_keys(items, keys, field_path, errors),
        _ => {}
    }
}

fn validate_set_items(items: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (name, is_not_atomic) = match text(items, "type") {
        "array" => (
            "x-kubernetes-list-type",
            !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic"),
        ),
        "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") != "atomic"),
        _ => return,
    };
    if is_not_atomic {
        let value = items.get(name).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(format!("{field_path}.items.{name}"), value, detail));
    }
}

/// Requires that the items of a list of type `map` are objects with the listed scalar keys.
///
/// Upstream: `validateMapListKeysMapSet`.
fn validate_map_list_keys(
    items: &Value,
    keys: &[Value],
    field_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{field_path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(field.clone(), detail));
    }
    if items.is_null() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{field_path}.items"), detail));
        return;
    }
    if !items.is_object() {
        let detail = "must only have a single schema if x-kubernetes-list-type is map";
        let value = BadValue::Encoded(r#"{"Schema":null,"JSONSchemas":null}"#.to_owned());
        errors.push(FieldError::invalid(format!("{field_path}.items"), value, detail));
        return;
    }
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(
            format!("{field_path}.items.type"),
            text(items, "type"),
            detail,
        ));
        return;
    }
    let required: HashSet<&Value> = list(items, "required").iter().collect();
    let mut seen = HashSet::new();
    // These two errors contain the whole list, so each is reported once.
    let (mut has_duplicate, mut has_unknown) = (false, false);
    for key in keys {
        if !seen.insert(key) && !has_duplicate {
            has_duplicate = true;
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(field.clone(), keys.to_vec(), detail));
        }
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items.get("properties").and_then(|p| p.get(name)) else {
            if !has_unknown {
                has_unknown = true;
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(field.clone(), keys.to_vec(), detail));
            }
            continue;
        };
        let property_path = format!("{field_path}.items.properties[{name}]");
        if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(
                format!("{property_path}.type"),
                text(property, "type"),
                detail,
            ));
        }
        if !required.contains(key) && get(property, "default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{property_path}.default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{property_path}.nullable"), detail));
        }
    }
}

#[cfg(test)]
mod tests;
