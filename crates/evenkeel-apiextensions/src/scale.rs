//! The `scale` sub-resource of custom objects: their replicas stand where the definition says.

use serde_json::{Map, Value, json};

use evenkeel_apimachinery::group_version::GroupKind;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::value::{at, set, text};

/// Where a kind has its replicas. Paths begin with a dot.
#[derive(Debug, Clone)]
pub struct Paths {
    spec: Box<str>,
    status: Box<str>,
    selector: Box<str>,
}

/// The same without the dot.
fn bare(path: &str) -> &str {
    path.strip_prefix('.').unwrap_or(path)
}

impl Paths {
    /// Of `subresources.scale` of a version.
    pub fn of(scale: &Value) -> Self {
        Self {
            spec: text(scale, "specReplicasPath").into(),
            status: text(scale, "statusReplicasPath").into(),
            selector: text(scale, "labelSelectorPath").into(),
        }
    }

    /// The Scale of an object.
    pub fn read(&self, object: &Value) -> Result<Value, StatusError> {
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let Some(replicas) = at(object, bare(&self.spec)).and_then(Value::as_i64) else {
            return Err(StatusError::internal(format!(
                "the spec replicas field \"{}\" does not exist",
                self.spec
            )));
        };
        let mut status = json!({"replicas": at(object, bare(&self.status)).and_then(Value::as_i64).unwrap_or(0)});
        let selector =
            if self.selector.is_empty() { "" } else { text(object, bare(&self.selector)) };
        if !selector.is_empty() {
            set(&mut status, "selector", selector);
        }
        let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
        Ok(
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
        )
    }

    /// An empty Scale of an object that has no replicas yet, for a patch to be laid over.
    pub fn read_or_empty(&self, object: &Value) -> Value {
        let mut counted = object.clone();
        if at(object, bare(&self.spec)).is_none() {
            set(&mut counted, bare(&self.spec), 0);
        }
        self.read(&counted).unwrap_or_default()
    }

    /// Writes a Scale's replicas into the object.
    pub fn write(
        &self,
        kind: &GroupKind,
        object: &mut Value,
        part: &Value,
    ) -> Result<(), StatusError> {
        let replicas = at(part, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            let error =
                FieldError::invalid(&*self.spec, replicas, "should be a non-negative integer");
            return Err(StatusError::invalid(kind, text(part, "metadata.name"), &[error]));
        }
        set(object, bare(&self.spec), replicas);
        Ok(())
    }

    /// What is wrong with the replicas that are asked for.
    pub fn check_spec(&self, object: &Value, errors: &mut Vec<FieldError>) {
        check_count(object, &self.spec, errors);
    }

    /// What is wrong with the replicas that are there, and with the selector.
    pub fn check_status(&self, object: &Value, errors: &mut Vec<FieldError>) {
        check_count(object, &self.status, errors);
        if self.selector.is_empty() {
            return;
        }
        if let Err(why) = find(object, &self.selector, "string", Value::is_string) {
            errors.push(FieldError::invalid(&*self.selector, "", why));
        }
    }
}

fn check_count(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match find(object, path, "int64", |v| v.is_i64() || v.is_u64()) {
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

/// A value by its path, or what stands in the way (upstream: `unstructured.NestedInt64`).
fn find<'a>(
    object: &'a Value,
    path: &str,
    wanted: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for name in bare(path).split('.') {
        let Some(fields) = value.as_object() else {
            if value.is_null() {
                return Ok(None);
            }
            let (shown, kind) = go(value);
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
    if fits(value) {
        return Ok(Some(value));
    }
    let (shown, kind) = go(value);
    Err(format!("{walked} accessor error: {shown} is of the type {kind}, expected {wanted}"))
}

/// A value and its type as Go prints them.
fn go(value: &Value) -> (String, &'static str) {
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
