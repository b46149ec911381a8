//! Validation of node.k8s.io.

use super::{immutable, names};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::text;
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "RuntimeClass" {
        runtime_class(new, errors);
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    create(kind, new, errors);
    if kind == "RuntimeClass" {
        immutable(&["handler"], new, old, errors);
    }
}

/// Upstream: `ValidateRuntimeClass`.
fn runtime_class(new: &Value, errors: &mut Errors) {
    let handler = text(new, "handler");
    errors.invalid_all(&Path::new("handler"), handler, &names::dns_label(handler));
}
