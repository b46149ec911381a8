//! The `scale` subresource of custom objects.
//!
//! Upstream: `ScaleREST` of `registry/customresource`.

use serde_json::{Map, Value, json};

use evenkeel_api::quote::quote;
use evenkeel_apimachinery::go_text::go;
use evenkeel_apimachinery::group_version::GroupKind;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::value::{get, go_type, set, text};

/// Desired replicas in the Scale of an object that does not specify them, while a write changes it.
///
/// Upstream: `invalidSpecReplicas`.
pub const UNSET: i32 = i32::MIN;

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

    /// Returns the names of the fields that lead to the desired replicas.
    pub fn replicas(&self) -> Vec<&str> {
        without_dot(&self.spec).split('.').collect()
    }

    /// Returns the Scale of an object.
    ///
    /// # Errors
    /// Fails if the object has no integer at `specReplicasPath`, or a value of another type at one of the paths.
    pub fn scale_of(&self, object: &Value) -> Result<Value, StatusError> {
        let replicas = self.desired(object)?.ok_or_else(|| {
            let path = quote(&self.spec);
            StatusError::internal(format!("the spec replicas field {path} does not exist"))
        })?;
        self.scale(object, replicas)
    }

    /// Returns the Scale of an object before a write, with [`UNSET`] replicas if the object does not specify them.
    ///
    /// # Errors
    /// Fails if the object has a value of another type at one of the paths.
    pub fn scale_to_write(&self, object: &Value) -> Result<Value, StatusError> {
        let replicas = self.desired(object)?.unwrap_or(UNSET);
        self.scale(object, replicas)
    }

    /// Returns the desired replicas, if the object specifies them.
    fn desired(&self, object: &Value) -> Result<Option<i32>, StatusError> {
        Ok(integer(object, &self.spec).map_err(StatusError::plain_internal)?.map(wrapped))
    }

    /// Returns the Scale of an object with these desired replicas.
    ///
    /// Upstream: `scaleFromCustomResource`.
    fn scale(&self, object: &Value, replicas: i32) -> Result<Value, StatusError> {
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let observed = integer(object, &self.status).map_err(StatusError::plain_internal)?;
        let mut status = json!({"replicas": observed.map_or(0, wrapped)});
        let selector = self.selector_of(object).map_err(StatusError::plain_internal)?;
        if !selector.is_empty() {
            set(&mut status, "selector", selector);
        }
        // Go omits 0 replicas in the spec (`omitempty`), but not in the status.
        let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
        Ok(
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
        )
    }

    /// Returns the selector of an object; empty without one.
    fn selector_of<'a>(&self, object: &'a Value) -> Result<&'a str, String> {
        if self.selector.is_empty() {
            return Ok("");
        }
        let selector = nested_value(object, &self.selector, "string", Value::is_string)?;
        Ok(selector.and_then(Value::as_str).unwrap_or_default())
    }

    /// Sets the object's replicas to those of a Scale. Upstream: `scaleUpdatedObjectInfo`.
    ///
    /// # Errors
    /// Fails if the Scale has negative replicas, or still has the placeholder of
    /// [`scale_to_write`](Self::scale_to_write).
    pub fn set_replicas(
        &self,
        kind: &GroupKind,
        object: &mut Value,
        scale: &Value,
    ) -> Result<(), StatusError> {
        let replicas = get(scale, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas == i64::from(UNSET) {
            let path = quote(&self.spec);
            let why = format!("the spec replicas field {path} cannot be empty");
            return Err(StatusError::bad_request(why));
        }
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
        if let Err(why) = self.selector_of(object) {
            errors.push(FieldError::invalid(&*self.selector, "", why));
        }
    }
}

fn validate_count(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match integer(object, path) {
        Err(why) => errors.push(FieldError::invalid(path, 0, why)),
        Ok(Some(count)) => {
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

/// Returns the integer at a path.
///
/// Upstream: `NestedInt64`.
fn integer(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let value = nested_value(object, path, "int64", |v| v.is_i64() || v.is_u64())?;
    Ok(value.map(|value| value.as_i64().unwrap_or(i64::MAX)))
}

/// Returns the lowest 32 bits, as Go's conversion to `int32` does.
fn wrapped(count: i64) -> i32 {
    count as i32
}

/// Returns the value at a path, or `None` if it is absent. If a value on the path is not an object, or the value at
/// its end does not satisfy `has_type`, returns upstream's message with the name of the `expected` type.
///
/// Upstream: `NestedFieldNoCopy`.
fn nested_value<'a>(
    object: &'a Value,
    path: &str,
    expected: &str,
    has_type: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    let wrong = |walked: &str, value: &Value, expected: &str| {
        let kind = go_type(value).unwrap_or("<nil>");
        format!("{walked} accessor error: {} is of the type {kind}, expected {expected}", go(value))
    };
    for name in without_dot(path).split('.') {
        walked.push('.');
        walked.push_str(name);
        let Some(fields) = value.as_object() else {
            if value.is_null() {
                return Ok(None);
            }
            return Err(wrong(&walked, value, "map[string]interface{}"));
        };
        match fields.get(name) {
            None => return Ok(None),
            Some(next) => value = next,
        }
    }
    if has_type(value) { Ok(Some(value)) } else { Err(wrong(&walked, value, expected)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_another_type_are_named() {
        let paths = ScalePaths::new(&json!({"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}));
        for (object, wanted) in [
            (
                json!({"spec": {"replicas": "3"}}),
                ".spec.replicas accessor error: 3 is of the type string, expected int64",
            ),
            (
                json!({"spec": "x"}),
                ".spec.replicas accessor error: x is of the type string, expected map[string]interface{}",
            ),
            (
                json!({"spec": {"replicas": null}}),
                ".spec.replicas accessor error: <nil> is of the type <nil>, expected int64",
            ),
            (
                json!({"spec": [1, {"a": 1}]}),
                ".spec.replicas accessor error: [1 map[a:1]] is of the type []interface {}, expected map[string]interface{}",
            ),
            (
                json!({"spec": {"replicas": 1}, "status": {"replicas": 1.5}}),
                ".status.replicas accessor error: 1.5 is of the type float64, expected int64",
            ),
            (
                json!({"spec": {"replicas": 1}, "status": {"selector": 1}}),
                ".status.selector accessor error: 1 is of the type int64, expected string",
            ),
        ] {
            let error = paths.scale_of(&object).expect_err("no Scale");
            assert_eq!((error.message(), error.code().as_u16()), (wanted, 500), "{object}");
            assert_eq!(paths.scale_to_write(&object).expect_err("no Scale").message(), wanted);
        }
        let scale =
            paths.scale_of(&json!({"spec": {"replicas": 5_000_000_000_i64}})).expect("a Scale");
        assert_eq!(scale["spec"]["replicas"], 705_032_704, "as Go converts it to an int32");
        assert_eq!(paths.scale_to_write(&json!({})).expect("a Scale")["spec"]["replicas"], UNSET);
    }
}
