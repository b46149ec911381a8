//! Types of the CEL variables of admission.

use std::sync::LazyLock;

use evenkeel_apiextensions::structural::Structural;
use evenkeel_cel::check::Type;
use serde_json::{Value, json};

/// Type of `request`, without the objects, which are separate variables.
///
/// Upstream: `BuildRequestType`.
static REQUEST: LazyLock<Structural> = LazyLock::new(|| {
    let text = || json!({"type": "string"});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let texts = || json!({"type": "array", "items": text()});
    let kind = || object(json!({"group": text(), "version": text(), "kind": text()}));
    let resource = || object(json!({"group": text(), "version": text(), "resource": text()}));
    Structural::new(&object(json!({
        "kind": kind(), "resource": resource(), "subResource": text(),
        "requestKind": kind(), "requestResource": resource(), "requestSubResource": text(),
        "name": text(), "namespace": text(), "operation": text(),
        "userInfo": object(json!({
            "username": text(), "uid": text(), "groups": texts(),
            "extra": {"type": "object", "additionalProperties": texts()},
        })),
        "dryRun": {"type": "boolean"}, "options": anything(),
    })))
});

/// Type of `namespaceObject`.
///
/// Upstream: `BuildNamespaceType`.
static NAMESPACE: LazyLock<Structural> = LazyLock::new(|| {
    let text = || json!({"type": "string"});
    let time = || json!({"type": "string", "format": "date-time"});
    let number = || json!({"type": "integer"});
    let texts = || json!({"type": "array", "items": text()});
    let map = || json!({"type": "object", "additionalProperties": text()});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let condition = object(json!({
        "status": text(), "type": text(), "lastTransitionTime": time(), "message": text(), "reason": text(),
    }));
    Structural::new(&object(json!({
        "metadata": object(json!({
            "name": text(), "generateName": text(), "namespace": text(), "labels": map(), "annotations": map(),
            "UID": text(), "creationTimestamp": time(), "deletionGracePeriodSeconds": number(),
            "deletionTimestamp": time(), "generation": number(), "resourceVersion": text(), "finalizers": texts(),
        })),
        "spec": object(json!({"finalizers": texts()})),
        "status": object(json!({"conditions": {"type": "array", "items": condition}, "phase": text()})),
    })))
});

pub(super) fn request() -> &'static Structural {
    &REQUEST
}

pub(super) fn namespace() -> &'static Structural {
    &NAMESPACE
}

fn anything() -> Value {
    json!({"x-kubernetes-int-or-string": true})
}

/// Variables of a policy and their schemas, in order of declaration.
#[derive(Default)]
pub(super) struct Variables(serde_json::Map<String, Value>);

impl Variables {
    pub(super) fn declare(&mut self, name: &str, schema: Value) {
        self.0.insert(name.to_owned(), schema);
    }

    /// Returns the schema of `variables` with the declarations so far.
    pub(super) fn schema(&self) -> Structural {
        Structural::new(&json!({"type": "object", "properties": self.0}))
    }
}

/// Returns a schema for values of a type, or a schema for any value if the type has none.
pub(super) fn schema_of(kind: &Type<'_>) -> Value {
    match kind {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int => json!({"type": "integer"}),
        Type::Double => json!({"type": "number"}),
        Type::Str => json!({"type": "string"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Time => json!({"type": "string", "format": "date-time"}),
        Type::Duration => json!({"type": "string", "format": "duration"}),
        Type::List(of) => json!({"type": "array", "items": schema_of(of)}),
        Type::Map(of) => json!({"type": "object", "additionalProperties": schema_of(of)}),
        _ => anything(),
    }
}

/// Copies a type so that it outlives its schema. An object with a schema becomes `dyn`.
pub(super) fn owned(kind: &Type<'_>) -> Type<'static> {
    match kind {
        Type::Null => Type::Null,
        Type::Bool => Type::Bool,
        Type::Int => Type::Int,
        Type::Uint => Type::Uint,
        Type::Double => Type::Double,
        Type::Str => Type::Str,
        Type::Bytes => Type::Bytes,
        Type::Time => Type::Time,
        Type::Duration => Type::Duration,
        Type::List(of) => Type::List(Box::new(owned(of))),
        Type::Map(of) => Type::Map(Box::new(owned(of))),
        Type::Library(name) => Type::Library(name),
        _ => Type::Dyn,
    }
}

/// Returns a type's name for error messages.
pub(super) fn name(kind: &Type<'_>) -> String {
    match kind {
        Type::Null => "null_type".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int => "int".to_owned(),
        Type::Uint => "uint".to_owned(),
        Type::Double => "double".to_owned(),
        Type::Str => "string".to_owned(),
        Type::Bytes => "bytes".to_owned(),
        Type::Time => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::List(of) => format!("list({})", name(of)),
        Type::Map(of) => format!("map(string, {})", name(of)),
        Type::Library(name) => (*name).to_owned(),
        _ => "dyn".to_owned(),
    }
}
