//! Custom resource of external secrets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Desired state of an external secret.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "secrets.example.com",
    version = "v1",
    kind = "ExternalSecret",
    namespaced,
    status = "ExternalSecretStatus",
    shortname = "es",
    printcolumn = r#"{"name": "Key", "type": "string", "jsonPath": ".spec.key"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ExternalSecretSpec {
    /// Key of the secret in the vault, such as `shop/database`.
    #[schemars(regex(pattern = r"^[a-z0-9-]+(/[a-z0-9-]+)*$"), length(max = 200))]
    pub key: String,
    /// Minutes after which the vault is read again. Default: 60.
    #[serde(default = "refresh_minutes")]
    #[schemars(range(min = 1, max = 10080))]
    pub refresh_minutes: u32,
}

/// Returns the default of `refreshMinutes`.
fn refresh_minutes() -> u32 {
    60
}

/// Observed state of an external secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalSecretStatus {
    /// Number of entries that the vault holds under the key.
    pub entries: usize,
    /// Conditions of the external secret: `Ready`.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
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
