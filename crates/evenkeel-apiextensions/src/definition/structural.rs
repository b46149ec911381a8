//! Validation that a schema is structural (KEP-1111).
//!
//! Upstream: `pkg/apiserver/schema/validation.go`, `pkg/apiserver/schema/complete.go`.

use serde_json::Value;

use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{flag, get, is_blank, list, text};
use evenkeel_cel::patterns;

/// Position of a schema: the root, the items of a list, or a field of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Reports why the schema at `field_path` is not structural. The errors are sorted by message.
///
/// Upstream: `ValidateStructural`.
pub(super) fn validate_structural(schema: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    validate_invariants(schema, Level::Root, field_path, &mut found);
    validate_completeness(schema, schema, field_path, &mut found);
    found.sort_by_key(ToString::to_string);
    errors.extend(found);
}

/// Returns whether `items` has several schemas, one for each element.
pub(super) fn is_list(items: Option<&Value>) -> bool {
    items.and_then(Value::as_array).is_some_and(|schemas| !schemas.is_empty())
}

/// Returns whether upstream can convert a schema to a structural one. If not, it only reports the fields that prevent
/// this.
///
/// Upstream: `validateUnsupportedFields`, `newExtensions`.
pub(super) fn is_convertible(schema: &Value) -> bool {
    const UNSUPPORTED: [&str; 7] = [
        "id",
        "$schema",
        "$ref",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
    ];
    let is_set = |name: &str| schema.get(name).is_some_and(|value| !is_blank(value));
    let preserves = schema.get("x-kubernetes-preserve-unknown-fields");
    if UNSUPPORTED.into_iter().any(is_set)
        || is_list(schema.get("items"))
        || preserves == Some(&Value::Bool(false))
    {
        return false;
    }
    let single = ["items", "additionalProperties", "not"].map(|name| schema.get(name));
    let alternatives = ["allOf", "anyOf", "oneOf"].map(|name| list(schema, name));
    let nested = single.into_iter().flatten().filter(|nested| nested.is_object());
    nested
        .chain(alternatives.into_iter().flatten())
        .chain(properties(schema).map(|(_, property)| property))
        .all(is_convertible)
}

/// Iterates over the entries of a schema's `properties`.
fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Requires the invariants of structural schemas, such as a type at each level and `items` for arrays.
///
/// Upstream: `validateStructuralInvariants`.
fn validate_invariants(
    schema: &Value,
    level: Level,
    field_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let kind = text(schema, "type");
    let child_path = |name: &str| format!("{field_path}.{name}");
    match schema.get("items") {
        Some(items) if items.is_object() => {
            validate_invariants(items, Level::Item, &child_path("items"), errors);
        }
        _ if kind == "array" => {
            errors.push(FieldError::required(child_path("items"), "must be specified"));
        }
        _ => {}
    }
    for (name, property) in properties(schema) {
        validate_invariants(
            property,
            Level::Field,
            &format!("{field_path}.properties[{name}]"),
            errors,
        );
    }
    let additional = schema.get("additionalProperties").filter(|a| !a.is_null());
    if let Some(additional) = additional {
        if level == Level::Root {
            let detail = "must not be used at the root";
            errors.push(FieldError::forbidden(child_path("additionalProperties"), detail));
        }
        if additional.is_object() {
            validate_invariants(
                additional,
                Level::Field,
                &child_path("additionalProperties"),
                errors,
            );
        }
    }
    validate_extensions(schema, field_path, errors);
    let skip_any_of = is_int_or_string(schema.get("anyOf"));
    let skip_first_any_of = first_is_int_or_string(schema);
    validate_value_validation(schema, skip_any_of, skip_first_any_of, field_path, errors);
    validate_types(schema, level, field_path, errors);
    validate_metadata_invariants(schema, level, additional.is_some(), field_path, errors);
}

/// Requires that the schema of an integer or string neither preserves unknown fields nor is an embedded resource.
///
/// Upstream: `validateExtensions`.
fn validate_extensions(schema: &Value, field_path: &str, errors: &mut Vec<FieldError>) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, name) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{field_path}.{name}"), true, detail));
        }
    }
}

/// Validates `type`. Upstream: `validateStructuralInvariants`.
fn validate_types(schema: &Value, level: Level, field_path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let field = format!("{field_path}.type");
    let untyped = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if flag(schema, "x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(field.clone(), detail)
        } else {
            FieldError::invalid(field.clone(), kind, detail)
        });
    } else if kind.is_empty() && !untyped {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(field.clone(), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(field, kind, "must be object at the root"));
    }
}

/// Validates embedded resources, and `apiVersion`, `kind` and `metadata` of whole objects.
///
/// Upstream: `validateStructuralMetadataInvariants`.
fn validate_metadata_invariants(
    schema: &Value,
    level: Level,
    has_additional_properties: bool,
    field_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if embedded && has_additional_properties {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{field_path}.additionalProperties"), detail));
    }
    if embedded
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
        && properties(schema).next().is_none()
    {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{field_path}.properties"), detail));
    }
    if level != Level::Root && !embedded {
        return;
    }
    for name in ["kind", "apiVersion"] {
        if let Some(property) = get(schema, &format!("properties.{name}"))
            && text(property, "type") != "string"
        {
            let field = format!("{field_path}.properties[{name}].type");
            errors.push(FieldError::invalid(field, text(property, "type"), "must be string"));
        }
    }
    let Some(metadata) = get(schema, "properties.metadata") else { return };
    let field = format!("{field_path}.properties[metadata]");
    if text(metadata, "type") != "object" {
        let detail = "must be object";
        errors.push(FieldError::invalid(format!("{field}.type"), text(metadata, "type"), detail));
    }
    if level == Level::Root && restricts_metadata(metadata) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(field, detail));
    }
}

/// Returns whether the schema of `metadata` specifies more than its type, a default, a description, and the schemas of
/// `name` and `generateName`.
fn restricts_metadata(metadata: &Value) -> bool {
    let only_names =
        properties(metadata).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let only_allowed_keywords = metadata.as_object().into_iter().flatten().all(|(name, _)| {
        matches!(name.as_str(), "type" | "properties" | "default" | "description")
    });
    !only_names || !only_allowed_keywords
}

/// Returns whether `anyOf` is integer or string, which a schema with `x-kubernetes-int-or-string` may contain.
///
/// Upstream: `isIntOrStringAnyOfPattern`.
fn is_int_or_string(any_of: Option<&Value>) -> bool {
    any_of == Some(&serde_json::json!([{"type": "integer"}, {"type": "string"}]))
}

/// Returns whether the first schema of `allOf` has the `anyOf` of an integer or string.
///
/// Upstream: `isIntOrStringAllOfPattern`.
fn first_is_int_or_string(schema: &Value) -> bool {
    list(schema, "allOf").first().is_some_and(|first| is_int_or_string(first.get("anyOf")))
}

/// Validates the keywords of a schema that restrict its values. `skip_any_of` skips `anyOf`, and `skip_first_any_of`
/// skips the `anyOf` in the first schema of `allOf`, if these only allow integers and strings.
///
/// Upstream: `validateValueValidation`.
fn validate_value_validation(
    schema: &Value,
    skip_any_of: bool,
    skip_first_any_of: bool,
    field_path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (i, nested) in list(schema, "anyOf").iter().enumerate() {
            validate_nested(nested, false, &format!("{field_path}.anyOf[{i}]"), errors);
        }
    }
    for (i, nested) in list(schema, "allOf").iter().enumerate() {
        let skip_any_of = skip_first_any_of && i == 0;
        validate_nested(nested, skip_any_of, &format!("{field_path}.allOf[{i}]"), errors);
    }
    for (i, nested) in list(schema, "oneOf").iter().enumerate() {
        validate_nested(nested, false, &format!("{field_path}.oneOf[{i}]"), errors);
    }
    if let Some(not) = get(schema, "not") {
        validate_nested(not, false, &format!("{field_path}.not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = check_pattern(pattern, errors)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{field_path}.pattern"), pattern, detail));
    }
}

/// Number of errors after which a definition's patterns are checked for their syntax alone.
const MAX_ERRORS_OF_COMPILED: usize = 10;

/// Checks a pattern. It costs much to find that a pattern is too large, so a definition with many errors, which is refused
/// anyway, gets a cheaper check.
fn check_pattern(pattern: &str, errors: &[FieldError]) -> Result<(), String> {
    if errors.len() < MAX_ERRORS_OF_COMPILED {
        patterns::compile(pattern).map(drop)
    } else {
        patterns::check(pattern)
    }
}

/// Validates a schema below `allOf`, `anyOf`, `oneOf` or `not`. Such a schema may only restrict values.
///
/// Upstream: `validateNestedValueValidation`.
fn validate_nested(
    schema: &Value,
    skip_any_of: bool,
    field_path: &str,
    errors: &mut Vec<FieldError>,
) {
    validate_value_validation(schema, skip_any_of, false, field_path, errors);
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        validate_nested(items, false, &format!("{field_path}.items"), errors);
    }
    for (name, property) in properties(schema) {
        validate_nested(property, false, &format!("{field_path}.properties[{name}]"), errors);
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors
                .push(FieldError::forbidden(format!("{field_path}.properties[metadata]"), detail));
        }
    }
    for (name, detail) in [
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
        let is_set = schema
            .get(name)
            .is_some_and(|value| !(is_blank(value) || *value == Value::Bool(false)));
        if is_set {
            errors.push(FieldError::forbidden(format!("{field_path}.{name}"), detail));
        }
    }
}

/// Checks that the structural schema (`skeleton`) specifies each field that the value validation in `values`
/// mentions.
///
/// Upstream: `validateStructuralCompleteness`.
fn validate_completeness(
    values: &Value,
    skeleton: &Value,
    field_path: &str,
    errors: &mut Vec<FieldError>,
) {
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (i, nested) in list(values, junctor).iter().enumerate() {
            validate_nested_completeness(
                nested,
                skeleton,
                field_path,
                &format!("{field_path}.{junctor}[{i}]"),
                errors,
            );
        }
    }
    if let Some(not) = get(values, "not") {
        validate_nested_completeness(
            not,
            skeleton,
            field_path,
            &format!("{field_path}.not"),
            errors,
        );
    }
    for (name, property) in properties(values) {
        validate_completeness(
            property,
            property,
            &format!("{field_path}.properties[{name}]"),
            errors,
        );
    }
    if let Some(items) = values.get("items").filter(|i| i.is_object()) {
        validate_completeness(items, items, &format!("{field_path}.items"), errors);
    }
    if let Some(more) = values.get("additionalProperties").filter(|a| a.is_object()) {
        validate_completeness(more, more, &format!("{field_path}.additionalProperties"), errors);
    }
}

/// Requires that the schema outside of `allOf`, `anyOf`, `oneOf` and `not` also specifies the fields that are
/// specified within.
///
/// Upstream: `validateNestedValueValidationCompleteness`.
fn validate_nested_completeness(
    values: &Value,
    skeleton: &Value,
    schema_path: &str,
    field_path: &str,
    errors: &mut Vec<FieldError>,
) {
    for (name, property) in properties(values) {
        let skeleton_path = format!("{schema_path}.properties[{name}]");
        match get(skeleton, "properties").and_then(|p| p.get(name)) {
            Some(known) => {
                validate_nested_completeness(
                    property,
                    known,
                    &skeleton_path,
                    &format!("{field_path}.properties[{name}]"),
                    errors,
                );
            }
            None => {
                let detail = format!("because it is defined in {field_path}.properties[{name}]");
                errors.push(FieldError::required(skeleton_path, detail));
            }
        }
    }
    if let Some(items) = values.get("items").filter(|i| i.is_object()) {
        let skeleton_path = format!("{schema_path}.items");
        match skeleton.get("items").filter(|i| i.is_object()) {
            Some(known) => validate_nested_completeness(
                items,
                known,
                &skeleton_path,
                &format!("{field_path}.items"),
                errors,
            ),
            None => {
                let detail = format!("because it is defined in {field_path}.items");
                errors.push(FieldError::required(skeleton_path, detail));
            }
        }
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (i, nested) in list(values, junctor).iter().enumerate() {
            validate_nested_completeness(
                nested,
                skeleton,
                schema_path,
                &format!("{field_path}.{junctor}[{i}]"),
                errors,
            );
        }
    }
    if let Some(not) = get(values, "not") {
        validate_nested_completeness(
            not,
            skeleton,
            schema_path,
            &format!("{field_path}.not"),
            errors,
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields_of_errors(schema: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate_structural(schema, "s", &mut errors);
        errors.into_iter().map(|e| e.field).collect()
    }

    #[test]
    fn errors_are_at_the_fields_that_are_not_structural() {
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
            assert_eq!(fields_of_errors(&schema), want, "{schema}");
        }
    }
}
