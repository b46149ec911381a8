//! What makes a schema structural (upstream: `apiserver/schema/validation.go`, KEP-1111).

use serde_json::Value;

use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{at, flag, list, text};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Everything that keeps the schema at `place` from being structural, in order of the errors' words.
pub(super) fn check(schema: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    invariants(schema, Level::Root, place, &mut found);
    complete(schema, schema, place, &mut found);
    found.sort_by_key(ToString::to_string);
    errors.extend(found);
}

/// The named schemas of an object.
fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn invariants(schema: &Value, level: Level, place: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let below = |name: &str| format!("{place}.{name}");
    match schema.get("items") {
        Some(items) if items.is_object() => {
            invariants(items, Level::Item, &below("items"), errors);
        }
        _ if kind == "array" => {
            errors.push(FieldError::required(below("items"), "must be specified"));
        }
        _ => {}
    }
    for (name, property) in properties(schema) {
        invariants(property, Level::Field, &format!("{place}.properties[{name}]"), errors);
    }
    let additional = schema.get("additionalProperties").filter(|a| !a.is_null());
    if let Some(additional) = additional {
        if level == Level::Root {
            let why = "must not be used at the root";
            errors.push(FieldError::forbidden(below("additionalProperties"), why));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &below("additionalProperties"), errors);
        }
    }
    extensions(schema, place, errors);
    let (any, all) = (is_int_or_string(schema.get("anyOf")), first_is_int_or_string(schema));
    values(schema, any, all, place, errors);
    types(schema, level, place, errors);
    whole_object(schema, level, additional.is_some(), place, errors);
}

fn extensions(schema: &Value, place: &str, errors: &mut Vec<FieldError>) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, name) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{place}.{name}"), true, why));
        }
    }
}

fn types(schema: &Value, level: Level, place: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let field = format!("{place}.type");
    let untyped = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if flag(schema, "x-kubernetes-embedded-resource") && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(field.clone(), why)
        } else {
            FieldError::invalid(field.clone(), kind, why)
        });
    } else if kind.is_empty() && !untyped {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(field.clone(), why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(field, kind, "must be object at the root"));
    }
}

fn whole_object(
    schema: &Value,
    level: Level,
    additional: bool,
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if embedded && additional {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{place}.additionalProperties"), why));
    }
    if embedded
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
        && properties(schema).next().is_none()
    {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{place}.properties"), why));
    }
    if level != Level::Root && !embedded {
        return;
    }
    for name in ["kind", "apiVersion"] {
        if let Some(property) = at(schema, &format!("properties.{name}"))
            && text(property, "type") != "string"
        {
            let field = format!("{place}.properties[{name}].type");
            errors.push(FieldError::invalid(field, text(property, "type"), "must be string"));
        }
    }
    let Some(metadata) = at(schema, "properties.metadata") else { return };
    let field = format!("{place}.properties[metadata]");
    if text(metadata, "type") != "object" {
        let why = "must be object";
        errors.push(FieldError::invalid(format!("{field}.type"), text(metadata, "type"), why));
    }
    if level == Level::Root && restricts_metadata(metadata) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(field, why));
    }
}

fn restricts_metadata(metadata: &Value) -> bool {
    let named =
        properties(metadata).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let only = metadata.as_object().into_iter().flatten().all(|(name, _)| {
        matches!(name.as_str(), "type" | "properties" | "default" | "description")
    });
    !named || !only
}

/// Whether these are the two alternatives that an int-or-string may spell out.
fn is_int_or_string(any_of: Option<&Value>) -> bool {
    any_of == Some(&serde_json::json!([{"type": "integer"}, {"type": "string"}]))
}

fn first_is_int_or_string(schema: &Value) -> bool {
    list(schema, "allOf").first().is_some_and(|first| is_int_or_string(first.get("anyOf")))
}

/// The value validation of a schema. The two flags excuse the ways to spell an int-or-string out.
fn values(schema: &Value, any: bool, all: bool, place: &str, errors: &mut Vec<FieldError>) {
    if !any {
        for (i, one) in list(schema, "anyOf").iter().enumerate() {
            nested(one, false, &format!("{place}.anyOf[{i}]"), errors);
        }
    }
    for (i, one) in list(schema, "allOf").iter().enumerate() {
        nested(one, all && i == 0, &format!("{place}.allOf[{i}]"), errors);
    }
    for (i, one) in list(schema, "oneOf").iter().enumerate() {
        nested(one, false, &format!("{place}.oneOf[{i}]"), errors);
    }
    if let Some(not) = at(schema, "not") {
        nested(not, false, &format!("{place}.not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = regex::Regex::new(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{place}.pattern"), pattern, why));
    }
}

/// A schema under a junctor may only restrict values.
fn nested(schema: &Value, any: bool, place: &str, errors: &mut Vec<FieldError>) {
    values(schema, any, false, place, errors);
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        nested(items, false, &format!("{place}.items"), errors);
    }
    for (name, property) in properties(schema) {
        nested(property, false, &format!("{place}.properties[{name}]"), errors);
        if name == "metadata" {
            let why = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(format!("{place}.properties[metadata]"), why));
        }
    }
    for (name, why) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let set = schema.get(name).is_some_and(|v| {
            !(evenkeel_apimachinery::value::is_blank(v) || *v == Value::Bool(false))
        });
        if set {
            errors.push(FieldError::forbidden(format!("{place}.{name}"), why));
        }
    }
}

/// What value validation speaks of must be there outside of it, too.
fn complete(values: &Value, skeleton: &Value, place: &str, errors: &mut Vec<FieldError>) {
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (i, one) in list(values, junctor).iter().enumerate() {
            covered(one, skeleton, place, &format!("{place}.{junctor}[{i}]"), errors);
        }
    }
    if let Some(not) = at(values, "not") {
        covered(not, skeleton, place, &format!("{place}.not"), errors);
    }
    for (name, property) in properties(values) {
        complete(property, property, &format!("{place}.properties[{name}]"), errors);
    }
    if let Some(items) = values.get("items").filter(|i| i.is_object()) {
        complete(items, items, &format!("{place}.items"), errors);
    }
    if let Some(more) = values.get("additionalProperties").filter(|a| a.is_object()) {
        complete(more, more, &format!("{place}.additionalProperties"), errors);
    }
}

fn covered(
    values: &Value,
    skeleton: &Value,
    stands: &str,
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    for (name, property) in properties(values) {
        let own = format!("{stands}.properties[{name}]");
        match at(skeleton, "properties").and_then(|p| p.get(name)) {
            Some(known) => {
                covered(property, known, &own, &format!("{place}.properties[{name}]"), errors);
            }
            None => {
                let why = format!("because it is defined in {place}.properties[{name}]");
                errors.push(FieldError::required(own, why));
            }
        }
    }
    if let Some(items) = values.get("items").filter(|i| i.is_object()) {
        let own = format!("{stands}.items");
        match skeleton.get("items").filter(|i| i.is_object()) {
            Some(known) => covered(items, known, &own, &format!("{place}.items"), errors),
            None => {
                let why = format!("because it is defined in {place}.items");
                errors.push(FieldError::required(own, why));
            }
        }
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (i, one) in list(values, junctor).iter().enumerate() {
            covered(one, skeleton, stands, &format!("{place}.{junctor}[{i}]"), errors);
        }
    }
    if let Some(not) = at(values, "not") {
        covered(not, skeleton, stands, &format!("{place}.not"), errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(schema: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        check(schema, "s", &mut errors);
        errors.into_iter().map(|e| e.field).collect()
    }

    #[test]
    fn schemas_must_be_structural() {
        for (schema, want) in [
            (json!({"type": "object", "properties": {"a": {"type": "string"}}}), vec![]),
            (json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), vec![]),
            (
                json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
                vec![],
            ),
            (json!({"properties": {"a": {}}}), vec!["s.properties[a].type", "s.type"]),
            (json!({"type": "array"}), vec!["s.items", "s.type"]),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
                vec!["s.properties[a].items.type"],
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                vec!["s.additionalProperties"],
            ),
            (json!({"type": "object", "anyOf": [{"type": "object"}]}), vec!["s.anyOf[0].type"]),
            (
                json!({"type": "object", "allOf": [{"properties": {"b": {"maximum": 1}}}]}),
                vec!["s.properties[b]"],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                vec!["s.properties[metadata]"],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
                vec![],
            ),
            (
                json!({"type": "object", "properties": {"e": {"type": "object", "x-kubernetes-embedded-resource": true}}}),
                vec!["s.properties[e].properties"],
            ),
            (
                json!({"type": "object", "properties": {"p": {"type": "string", "pattern": "("}}}),
                vec!["s.properties[p].pattern"],
            ),
        ] {
            assert_eq!(wrong(&schema), want, "{schema}");
        }
    }
}
