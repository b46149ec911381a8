//! Validation of embedded resources: `apiVersion`, `kind` and metadata of objects within custom objects.
//!
//! Upstream: `pkg/apiserver/schema/objectmeta`.

use serde_json::Value;

use super::structural::Structural;
use crate::validation::child_path;
use evenkeel_api::forms::path_segment;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::text;

/// Validates the embedded resources within `value`, but not the root object's metadata.
///
/// Upstream: `objectmeta.Validate`.
pub fn validate(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                validate_embedded_resource(value, path, errors);
            }
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    validate(value, child, &child_path(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for (i, item) in items.iter().enumerate() {
                validate(item, child, &format!("{path}[{i}]"), errors);
            }
        }
        _ => {}
    }
}

/// Validates like [`validate`] a value that is a resource itself.
pub(crate) fn validate_resource(
    value: &Value,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if value.is_object() && !schema.embedded_resource {
        validate_embedded_resource(value, path, errors);
    }
    validate(value, schema, path, errors);
}

/// Requires a valid `apiVersion` and `kind` of an embedded resource.
///
/// Upstream: `validateEmbeddedResource`.
fn validate_embedded_resource(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let api_version = text(object, "apiVersion");
    let field = |name: &str| child_path(path, name);
    let required_error = |name: &str| match object.get(name) {
        None => FieldError::required(field(name), ""),
        Some(_) => FieldError::invalid(field(name), "", "must not be empty"),
    };
    if api_version.is_empty() {
        errors.push(required_error("apiVersion"));
    } else if api_version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {api_version}");
        errors.push(FieldError::invalid(field("apiVersion"), api_version, why));
    }
    let kind = text(object, "kind");
    if kind.is_empty() {
        errors.push(required_error("kind"));
    } else {
        let wrong = evenkeel_api::forms::dns_1035_label(&kind.to_lowercase());
        if !wrong.is_empty() {
            let why =
                format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(FieldError::invalid(field("kind"), kind, why));
        }
    }
    let name = text(object, "metadata.name");
    let name_path = field("metadata.name");
    errors.extend(
        path_segment(name).into_iter().map(|why| FieldError::invalid(&*name_path, name, why)),
    );
    errors.extend(evenkeel_apimachinery::schema::validate_metadata(object).into_iter().map(
        |mut error| {
            error.field = child_path(path, &error.field);
            error
        },
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn embedded_resources_need_api_version_and_kind() {
        let schema = Structural::new(
            &json!({"type": "object", "properties": {"o": {"type": "object",
            "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}),
        );
        let object = json!({"o": {"apiVersion": "", "metadata": {"name": "a"}}});
        let mut errors = Vec::new();
        validate(&object, &schema, "", &mut errors);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let expected =
            ["o.apiVersion: Invalid value: \"\": must not be empty", "o.kind: Required value"];
        assert_eq!(messages, expected);
    }
}
