//! The `scale` subresource of custom objects.
//!
//! Upstream: `ScaleREST` of `registry/customresource`.

use serde_json::{Map, Value, json};

use evenkeel_apimachinery::group_version::GroupKind;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::value::{get, set, text};

/// Paths of `subresources.scale`, each with a leading dot.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    spec: Box<str>,
    status: Box<str>,
    selector: Box<str>,
}

/// Returns the path without its leading dot.
fn without_dot(path: &str) -> &str {
    path.strip_prefix('.').unwrap_or(path)
}

impl ScalePaths {
    /// Reads the paths from `subresources.scale` of a version.
    pub fn new(scale: &Value) -> Self {
        Self {
            spec: text(scale, "specReplicasPath").into(),
            status: text(scale, "statusReplicasPath").into(),
            selector: text(scale, "labelSelectorPath").into(),
        }
    }

    /// Returns the Scale of an object. Upstream: `scaleFromCustomResource`.
    ///
    /// # Errors
    /// When the object has no integer at `specReplicasPath`.
    pub fn scale_of(&self, object: &Value) -> Result<Value, StatusError> {
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let Some(replicas) = get(object, without_dot(&self.spec)).and_then(Value::as_i64) else {
            return Err(StatusError::internal(format!(
                "the spec replicas field \"{}\" does not exist",
                self.spec
            )));
        };
        let observed = get(object, without_dot(&self.status)).and_then(Value::as_i64);
        let mut status = json!({"replicas": observed.unwrap_or(0)});
        let selector =
            if self.selector.is_empty() { "" } else { text(object, without_dot(&self.selector)) };
        if !selector.is_empty() {
            set(&mut status, "selector", selector);
        }
        // Go omits 0 replicas in the spec (`omitempty`), but not in the status.
        let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
        Ok(
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
        )
    }

    /// Returns the Scale of an object for a patch, with 0 replicas if the object does not specify them yet.
    pub fn scale_or_zero(&self, object: &Value) -> Value {
        let mut with_replicas = object.clone();
        if get(object, without_dot(&self.spec)).is_none() {
            set(&mut with_replicas, without_dot(&self.spec), 0);
        }
        self.scale_of(&with_replicas).unwrap_or_default()
    }

    /// Sets the object's replicas to those of a Scale. Upstream: `scaleUpdatedObjectInfo`.
    ///
    /// # Errors
    /// When the Scale has negative replicas.
    pub fn set_replicas(
        &self,
        kind: &GroupKind,
        object: &mut Value,
        scale: &Value,
    ) -> Result<(), StatusError> {
        let replicas = get(scale, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            let error =
                FieldError::invalid(&*self.spec, replicas, "should be a non-negative integer");
            return Err(StatusError::invalid(kind, text(scale, "metadata.name"), &[error]));
        }
        set(object, without_dot(&self.spec), replicas);
        Ok(())
    }

    /// Validates the desired replicas.
    ///
    /// Upstream: `ValidateScaleSpec`.
    pub fn validate_spec(&self, object: &Value, errors: &mut Vec<FieldError>) {
        validate_count(object, &self.spec, errors);
    }

    /// Validates the observed replicas and the selector.
    ///
    /// Upstream: `ValidateScaleStatus`.
    pub fn validate_status(&self, object: &Value, errors: &mut Vec<FieldError>) {
        validate_count(object, &self.status, errors);
        if self.selector.is_empty() {
            return;
        }
        if let Err(why) = nested_value(object, &self.selector, "string", Value::is_string) {
            errors.push(FieldError::invalid(&*self.selector, "", why));
        }
    }
}

fn validate_count(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match nested_value(object, path, "int64", |v| v.is_i64() || v.is_u64()) {
        Err(why) => errors.push(FieldError::invalid(path, 0, why)),
        Ok(Some(value)) => {
            let count = value.as_i64().unwrap_or(i64::MAX);
            if count < 0 {
                errors.push(FieldError::invalid(path, count, "should be a non-negative integer"));
            } else if count > i64::from(i32::MAX) {
                let why = "should be less than or equal to 2147483647";
                errors.push(FieldError::invalid(path, count, why));
            }
        }
        Ok(None) => {}
    }
}

/// Returns the value at a path, or `None` if it is absent. If a value on the path is not an object, or the value at
/// its end does not satisfy `has_type`, returns upstream's message with the name of the `expected` type.
///
/// Upstream: `NestedInt64`.
fn nested_value<'a>(
    object: &'a Value,
    path: &str,
    expected: &str,
    has_type: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for name in without_dot(path).split('.') {
        let Some(fields) = value.as_object() else {
            if value.is_null() {
                return Ok(None);
            }
            let (shown, kind) = go_type(value);
            return Err(format!(
                "{walked} accessor error: {shown} is of the type {kind}, expected map[string]interface{{}}"
            ));
        };
        walked.push('.');
        walked.push_str(name);
        match fields.get(name) {
            None => return Ok(None),
            Some(next) => value = next,
        }
    }
    if has_type(value) {
        return Ok(Some(value));
    }
    let (shown, kind) = go_type(value);
    Err(format!("{walked} accessor error: {shown} is of the type {kind}, expected {expected}"))
}

/// Returns text and type of a value as Go prints them.
fn go_type(value: &Value) -> (String, &'static str) {
    match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(b) => (b.to_string(), "bool"),
        Value::Number(n) if n.is_f64() => (n.to_string(), "float64"),
        Value::Number(n) => (n.to_string(), "int64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    }
}
