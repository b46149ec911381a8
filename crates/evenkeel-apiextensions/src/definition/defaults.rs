//! Validation of the defaults in a version's schema.

use serde_json::Value;

use crate::structural::Structural;
use crate::{cel, objectmeta, pruning, validation};
use evenkeel_apimachinery::status::FieldError;

/// Validates each default by its schema, and that pruning leaves the default unchanged. A map's values have none.
///
/// Upstream: `validate` of `schema/defaulting`.
pub(super) fn validate_defaults(
    schema: &Value,
    structural: &Structural,
    field_path: &str,
    is_root: bool,
    errors: &mut Vec<FieldError>,
) {
    if let Some(default) = &structural.default {
        validate_default(default, structural, &format!("{field_path}.default"), is_root, errors);
    }
    for (name, child) in &structural.properties {
        if is_root && matches!(&**name, "metadata" | "apiVersion" | "kind") {
            continue;
        }
        let schema = &schema["properties"][&**name];
        validate_defaults(
            schema,
            child,
            &format!("{field_path}.properties[{name}]"),
            false,
            errors,
        );
    }
    if let Some(items) = &structural.items {
        validate_defaults(&schema["items"], items, &format!("{field_path}.items"), false, errors);
    }
}

/// Validates a default. That of the root is a whole resource.
fn validate_default(
    default: &Value,
    structural: &Structural,
    field: &str,
    is_root: bool,
    errors: &mut Vec<FieldError>,
) {
    let mut pruned = default.clone();
    if pruning::prune(&mut pruned, structural, is_root) {
        let detail = "must not have unknown fields";
        errors.push(FieldError::invalid(field, default.clone(), detail));
    }
    let errors_before = errors.len();
    if is_root {
        objectmeta::validate_resource(default, structural, field, errors);
    } else {
        objectmeta::validate(default, structural, field, errors);
    }
    // As in upstream, an integer or string may have a default of any type.
    if errors.len() == errors_before && !structural.int_or_string {
        let mut default_errors = Vec::new();
        validation::validate(default, None, structural, "", &mut default_errors);
        for mut error in default_errors {
            validation::move_error(&mut error, field);
            errors.push(error);
        }
    }
    if errors.len() == errors_before {
        cel::validate_default(default, structural, field, errors);
    }
}
