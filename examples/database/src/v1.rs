//! Version v1 of databases, which is stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Desired state of a database.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "data.example.com",
    version = "v1",
    kind = "Database",
    namespaced,
    status = "DatabaseStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSpec {
    /// Version of the database's image.
    pub version: String,
    /// Number of instances. Default: 1, set by a webhook.
    #[serde(default)]
    pub instances: i32,
    /// Size of each instance's volume, a quantity such as `10Gi`. It does not change.
    pub storage: String,
    /// Schedule of the backups, as of a CronJob. Default: no backups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_schedule: Option<String>,
}

/// Observed state of a database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseStatus {
    /// Number of instances that are ready.
    pub ready_instances: i32,
    /// Time of the last backup that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<String>,
    /// Conditions of the database.
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
