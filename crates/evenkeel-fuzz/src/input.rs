//! Structure of inputs: the first line names a kind, and a line of three dashes separates parts.

use std::sync::LazyLock;

use evenkeel_apimachinery::decode::{self, FieldValidation};
use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_apimachinery::schema::Schema;
use evenkeel_apimachinery::validation::{Errors, metadata};
use evenkeel_kinds::registry::STRATEGIES;
use evenkeel_kinds::validation::{self, ValidationTarget};
use serde_json::{Value, json};

/// Group, version and kind of objects whose decoding and merging differ. The last two are a custom resource and a
/// kind without a schema.
const KINDS: [(&str, &str, &str); 26] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "Secret"),
    ("", "v1", "Node"),
    ("", "v1", "Event"),
    ("", "v1", "Namespace"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "ResourceQuota"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "ControllerRevision"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("batch", "v1", "CronJob"),
    ("batch", "v1", "Job"),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("networking.k8s.io", "v1", "Ingress"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("resource.k8s.io", "v1", "ResourceClaim"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("example.com", "v1", CUSTOM),
    ("example.com", "v1", "Untyped"),
];

const CUSTOM: &str = "Widget";

/// Kind of objects, with its schema if it has one.
pub(crate) struct Kind {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) schema: Option<Schema>,
}

static ALL: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let kind = |(group, version, kind): (&str, &str, &str)| {
        let gvk =
            GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
        let schema = match kind {
            CUSTOM => Some(Schema::custom(&gvk, &custom_schema(), true)),
            _ => Schema::of(&gvk),
        };
        Kind { gvk, schema }
    };
    KINDS.into_iter().map(kind).collect()
});

/// Returns a schema with one field of each form that managed fields and pruning treat differently.
fn custom_schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer", "default": 1},
            "either": {"x-kubernetes-int-or-string": true},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "required": ["a"], "properties": {
                    "a": {"type": "string"}, "b": {"type": "integer", "default": 2}, "c": {"type": "string"}}}},
            "atomic": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "named": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }})
}

/// Returns the kind that the first line names, and the rest. A line that names no kind selects one by its length.
pub(crate) fn kind(data: &[u8]) -> (&'static Kind, &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (name, rest) = data.split_at(end);
    let named = ALL.iter().find(|kind| kind.gvk.kind.as_bytes() == name);
    let kind = named.unwrap_or(&ALL[name.len() % KINDS.len()]);
    (kind, rest.get(1..).unwrap_or_default())
}

/// Returns the parts of an input, which lines of three dashes separate.
pub(crate) fn parts(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    const BETWEEN: &[u8] = b"\n---\n";
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let data = rest?;
        let end = data.windows(BETWEEN.len()).position(|window| window == BETWEEN);
        let (part, more) = match end {
            Some(end) => (&data[..end], Some(&data[end + BETWEEN.len()..])),
            None => (data, None),
        };
        rest = more;
        Some(part)
    })
}

impl Kind {
    /// Decodes a JSON body of the kind.
    pub(crate) fn decode(&self, body: &[u8]) -> Option<Value> {
        let validation = FieldValidation::Ignore;
        let schema = self.schema.as_ref();
        let decoded =
            decode::object(schema, &self.gvk, "application/json", body, validation).ok()?;
        Some(decoded.object)
    }

    /// Returns whether validation accepts a new object of the kind. An object of a kind without validation is valid
    /// if it contains no null.
    pub(crate) fn is_valid(&self, object: &Value) -> bool {
        let GroupVersionKind { group, kind, .. } = &self.gvk;
        let target = ValidationTarget { group, request_group: group, kind, subresource: "" };
        let mut errors = Errors::default();
        validation::create(target, object, &mut errors);
        let has_validation =
            STRATEGIES.iter().any(|(_, s)| s.group == &**group && s.kind == &**kind);
        errors.is_empty()
            && metadata::validate(object).is_empty()
            && (has_validation || !has_null(object))
    }

    /// Asserts the invariants of a decoded object: it is not too deep, and its JSON decodes to the same object without
    /// warnings.
    pub(crate) fn assert_decodes_again(&self, object: &Value) {
        assert_depth(object);
        let text = serde_json::to_vec(object).expect("a value is JSON");
        let again = decode::object(
            self.schema.as_ref(),
            &self.gvk,
            "application/json",
            &text,
            FieldValidation::Strict,
        );
        let again = again.expect("an object that was decoded is valid");
        assert_eq!(again.object, *object, "a decoded object stays as it is");
        assert_eq!(again.warnings, Vec::<String>::new());
    }
}

/// Asserts that an object is not deeper than the decoder allows.
pub(crate) fn assert_depth(object: &Value) {
    assert!(evenkeel_apimachinery::depth::check(object).is_ok(), "the object is too deep");
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(entries) => entries.values().any(has_null),
        _ => false,
    }
}
