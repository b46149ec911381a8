//! What is wrong with a version's schema (upstream: `ValidateCustomResourceDefinitionOpenAPISchema`, `ValidateDefaults`).

use serde_json::Value;

use super::{rules, structural};
use crate::node::Node;
use crate::{defaulting, pruning, validate};
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{at, flag, list, text};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// What holds where a schema stands.
#[derive(Clone)]
struct Here {
    /// Why there may be no defaults, when there may not.
    no_defaults: Option<String>,
    in_metadata: bool,
}

/// Checks the schema of a version, which stands at `place`.
pub(super) fn check(version: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let schema = &version["schema"]["openAPIV3Schema"];
    if !schema.is_object() {
        return;
    }
    let place = format!("{place}.openAPIV3Schema");
    let start = errors.len();
    if version["subresources"]["status"].is_object() {
        at_root(schema, &place, errors);
    }
    if flag(schema, "nullable") {
        let why = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{place}.nullable"), why));
    }
    let before = errors.len();
    structural::check(schema, &place, errors);
    if errors.len() == before {
        let node = Node::new(schema);
        defaults(schema, &node, &place, true, errors);
    }
    openapi(schema, &place, true, &Here { no_defaults: None, in_metadata: false }, errors);
    // Errors in a schema would only come back as worse ones in its rules.
    if errors.len() == start {
        rules::check(schema, &place, errors);
    }
}

/// With a status sub-resource, the schema of status must stand by itself.
fn at_root(schema: &Value, place: &str, errors: &mut Vec<FieldError>) {
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
        let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(format!("{place}.type"), kind, why));
        return;
    }
    let other = schema.as_object().into_iter().flatten().find(|(name, value)| {
        !ALLOWED.contains(&name.as_str()) && !evenkeel_apimachinery::value::is_blank(value)
    });
    if other.is_some() {
        let why = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(place, schema.clone(), why));
    }
}

/// Defaults must fit their schemas, and hold nothing that would be pruned.
fn defaults(schema: &Value, node: &Node, place: &str, root: bool, errors: &mut Vec<FieldError>) {
    if let Some(default) = &node.default {
        let field = format!("{place}.default");
        let mut pruned = default.clone();
        if !root && pruning::prune(&mut pruned, node, false) {
            let why = "must not have unknown fields";
            errors.push(FieldError::invalid(field.clone(), default.clone(), why));
        } else {
            let mut found = Vec::new();
            let mut filled = default.clone();
            defaulting::default(&mut filled, node);
            validate::check(&filled, None, node, "", &mut found);
            errors.extend(found.into_iter().map(|mut error| {
                error.field =
                    validate::below(&field, &error.field).trim_end_matches('.').to_owned();
                error
            }));
        }
    }
    for (name, child) in &node.properties {
        if root && matches!(&**name, "metadata" | "apiVersion" | "kind") {
            continue;
        }
        let schema = &schema["properties"][&**name];
        defaults(schema, child, &format!("{place}.properties[{name}]"), false, errors);
    }
    if let Some(items) = &node.items {
        defaults(&schema["items"], items, &format!("{place}.items"), false, errors);
    }
    if let Some(more) = &node.additional {
        let place = format!("{place}.additionalProperties");
        defaults(&schema["additionalProperties"], more, &place, false, errors);
    }
}

fn openapi(schema: &Value, place: &str, root: bool, here: &Here, errors: &mut Vec<FieldError>) {
    if !schema.is_object() {
        return;
    }
    keywords(schema, place, here, errors);
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(more) = schema.get("additionalProperties").filter(|a| !a.is_null()) {
        let field = format!("{place}.additionalProperties");
        if properties.is_some_and(|p| !p.is_empty()) && *more != Value::Bool(true) {
            let why = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(field.clone(), why));
        }
        let mut inside = here.clone();
        if here.in_metadata {
            inside.no_defaults =
                Some("inside additionalProperties applying to object metadata".to_owned());
        }
        openapi(more, &field, false, &inside, errors);
    }
    for (name, property) in properties.into_iter().flatten() {
        let mut inside = here.clone();
        let meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        if meta && (root || flag(schema, "x-kubernetes-embedded-resource")) {
            inside.in_metadata = true;
            if root {
                inside.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        openapi(property, &format!("{place}.properties[{name}]"), false, &inside, errors);
    }
    openapi(&schema["not"], &format!("{place}.not"), false, here, errors);
    openapi(&schema["items"], &format!("{place}.items"), false, here, errors);
    for junctor in ["allOf", "oneOf", "anyOf"] {
        for (i, one) in list(schema, junctor).iter().enumerate() {
            openapi(one, &format!("{place}.{junctor}[{i}]"), false, here, errors);
        }
    }
    lists_and_maps(schema, place, errors);
}

fn keywords(schema: &Value, place: &str, here: &Here, errors: &mut Vec<FieldError>) {
    let below = |name: &str| format!("{place}.{name}");
    let mut forbid = |name: &str, why: &str| errors.push(FieldError::forbidden(below(name), why));
    if at(schema, "default").is_some()
        && let Some(reason) = &here.no_defaults
    {
        forbid("default", &format!("must not be set {reason}"));
    }
    if !text(schema, "id").is_empty() {
        forbid("id", "id is not supported");
    }
    for name in ["additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(name).is_some_and(|v| !evenkeel_apimachinery::value::is_blank(v)) {
            forbid(name, &format!("{name} is not supported"));
        }
    }
    if flag(schema, "uniqueItems") {
        forbid(
            "uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    if text(schema, "type") == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if schema.get("items").is_some_and(Value::is_array) {
        forbid("items", "items must be a schema object and not an array");
    }
    if here.in_metadata && flag(schema, "x-kubernetes-embedded-resource") {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(below("type"), kind, &TYPES));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = below("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, false, "must be true or undefined"));
    }
}

fn lists_and_maps(schema: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let below = |name: &str| format!("{place}.{name}");
    let kind = text(schema, "type");
    for (name, wanted, known) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"]),
    ] {
        let given = text(schema, name);
        if given.is_empty() {
            continue;
        }
        if kind != wanted {
            let why = format!("must be {wanted} if {name} is specified");
            errors.push(if kind.is_empty() {
                FieldError::required(below("type"), why)
            } else {
                FieldError::invalid(below("type"), kind, why)
            });
        }
        if !known.contains(&given) {
            errors.push(FieldError::not_supported(below(name), given, known));
        }
    }
    let (list_type, items) = (text(schema, "x-kubernetes-list-type"), &schema["items"]);
    let keys = list(schema, "x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if list_type.is_empty() {
            FieldError::required(below("x-kubernetes-list-type"), why)
        } else {
            FieldError::invalid(below("x-kubernetes-list-type"), list_type, why)
        });
    }
    if matches!(list_type, "set" | "map") && flag(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(below("items.nullable"), why));
    }
    match list_type {
        "set" => set_items(items, place, errors),
        "map" => map_items(items, keys, place, errors),
        _ => {}
    }
}

fn set_items(items: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (name, wrong) = match text(items, "type") {
        "array" => (
            "x-kubernetes-list-type",
            !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic"),
        ),
        "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") != "atomic"),
        _ => return,
    };
    if wrong {
        let value = items.get(name).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(format!("{place}.items.{name}"), value, why));
    }
}

fn map_items(items: &Value, keys: &[Value], place: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{place}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(field.clone(), why));
    }
    if items.is_null() {
        let why = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{place}.items"), why));
        return;
    }
    if text(items, "type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{place}.items.type"), text(items, "type"), why));
        return;
    }
    let required = list(items, "required");
    for (i, key) in keys.iter().enumerate() {
        if keys[..i].contains(key) {
            let why = "must not contain duplicate entries";
            errors.push(FieldError::invalid(field.clone(), keys.to_vec(), why));
        }
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items.get("properties").and_then(|p| p.get(name)) else {
            let why = "entries must all be names of item properties";
            errors.push(FieldError::invalid(field.clone(), keys.to_vec(), why));
            continue;
        };
        let own = format!("{place}.items.properties[{name}]");
        if matches!(text(property, "type"), "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(format!("{own}.type"), text(property, "type"), why));
        }
        if !required.contains(key) && at(property, "default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{own}.default"), why));
        }
        if flag(property, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{own}.nullable"), why));
        }
    }
}
