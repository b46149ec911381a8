//! Custom resource of policies.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;

/// Rules that the objects of a kind must meet.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.example.com",
    version = "v1",
    kind = "FieldPolicy",
    plural = "fieldpolicies",
    status = "FieldPolicyStatus",
    printcolumn = r#"{"name": "Kind", "type": "string", "jsonPath": ".spec.target.kind"}"#,
    printcolumn = r#"{"name": "Compliant", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Compliant')].status"}"#,
    printcolumn = r#"{"name": "Violations", "type": "integer", "jsonPath": ".status.totalViolations"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct FieldPolicySpec {
    /// Kind of the objects.
    pub target: TargetKind,
    /// Fields that each object must have.
    #[schemars(length(min = 1, max = 16))]
    pub rules: Vec<Rule>,
    /// Namespaces whose objects need not meet the rules. Default: none.
    #[serde(default)]
    pub excluded_namespaces: Vec<String>,
}

/// Kind in any version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetKind {
    /// API group. Default: the core group.
    #[serde(default)]
    pub group: String,
    /// Kind in CamelCase, such as `Deployment`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Field that an object must have.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// JSON pointer of the field, such as `/metadata/labels/team`.
    #[schemars(regex(pattern = r"^(/[^/]+)+$"), length(max = 200))]
    pub field: String,
    /// Values that the field may have, as text. Default: any.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub allowed: Vec<String>,
}

/// Observed state of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldPolicyStatus {
    /// Number of objects that violate the policy.
    pub total_violations: usize,
    /// The first of these objects, by namespace and name.
    #[serde(default)]
    pub violations: Vec<Violation>,
    /// Conditions of the policy: `Watching` and `Compliant`.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// Object that violates a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Violation {
    /// Namespace of the object. Empty for a cluster-scoped one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Reason why it violates the policy.
    pub message: String,
}

/// Returns the schema of conditions: a list with one entry of each type.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    let text = json!({"type": "string"});
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text,
                "status": text,
                "reason": text,
                "message": text,
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"},
            },
        },
    })
}
