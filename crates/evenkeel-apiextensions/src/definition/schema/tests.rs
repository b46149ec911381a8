//! Tests of the errors about schemas.

use serde_json::json;

use super::*;

/// Returns the errors of a schema whose field `a` has this schema.
fn errors_of(field: &Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"a": field}});
    errors_of_root(&schema).iter().map(|error| error.replace("s.openAPIV3Schema", "")).collect()
}

fn errors_of_root(schema: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    validate_schema(&json!({"schema": {"openAPIV3Schema": schema}}), "s", &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_satisfy_their_schema_and_rules() {
    let with_rule = |rule: &Value| json!({"type": "string", "default": "x", "x-kubernetes-validations": [rule]});
    for (field, wanted) in [
        (
            json!({"type": "object", "properties": {"b": {"type": "string", "default": "x"}}, "required": ["b"], "default": {}}),
            vec![".properties[a].default.b: Required value"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "default": {"b": 1}}),
            vec![
                ".properties[a].default.b: Invalid value: \"integer\": .b in body must be of type string: \"integer\"",
            ],
        ),
        (json!({"x-kubernetes-int-or-string": true, "default": {}}), vec![]),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}, "default": [{"b": 1}, {"c": 1}]}),
            vec![
                ".properties[a].default: Invalid value: [{\"b\":1},{\"c\":1}]: must not have unknown fields",
                ".properties[a].default.[0].b: Invalid value: \"integer\": [0].b in body must be of type string: \"integer\"",
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true, "default": {}}),
            vec![
                ".properties[a].default.apiVersion: Required value",
                ".properties[a].default.kind: Required value",
            ],
        ),
        (
            with_rule(&json!({"rule": "self == 'y'", "message": "m"})),
            vec![".properties[a].default: Invalid value: \"x\": m"],
        ),
        (with_rule(&json!({"rule": "oldSelf == self"})), vec![]),
        (
            with_rule(&json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true})),
            vec![".properties[a].default: Invalid value: \"x\": failed rule: oldSelf.hasValue()"],
        ),
    ] {
        assert_eq!(errors_of(&field), wanted, "{field}");
    }
    let root =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}});
    assert_eq!(
        errors_of_root(&root),
        [
            "s.openAPIV3Schema.default: Invalid value: {\"b\":1}: must not have unknown fields",
            "s.openAPIV3Schema.default.apiVersion: Required value",
            "s.openAPIV3Schema.default.kind: Required value"
        ]
    );
}

#[test]
fn fields_that_prevent_a_structural_schema_are_the_only_errors() {
    let items = ".properties[a].items: Forbidden: items must be a schema object and not an array";
    for (field, wanted) in [
        (json!({"type": "array", "items": [{}]}), items),
        (
            json!({"type": "array", "items": []}),
            ".properties[a].items: Required value: must be specified",
        ),
        (json!({"id": "x"}), ".properties[a].id: Forbidden: id is not supported"),
        (
            json!({"type": "string", "pattern": "["}),
            ".properties[a].pattern: Invalid value: \"[\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[`",
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": ""}]}),
            ".properties[a].x-kubernetes-validations[0].reason: Unsupported value: \"\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
    ] {
        assert_eq!(errors_of(&field), [wanted], "{field}");
    }
}
