//! Operator: each `{{kind}}` gets a ConfigMap with its text.

use evenkeel_runtime::prelude::*;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{CustomResource, ResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Desired state.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "{{group}}",
    version = "v1",
    kind = "{{kind}}",
    plural = "{{kind | downcase}}s",
    namespaced,
    status = "{{kind}}Status"
)]
pub struct {{kind}}Spec {
    /// The text of the ConfigMap.
    pub text: String,
}

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct {{kind}}Status {
    /// `Ready`: the ConfigMap is written.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// Returns the schema of conditions: a list with one entry of each type.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string"},
                "status": {"type": "string"},
                "reason": {"type": "string"},
                "message": {"type": "string"},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"},
            },
        },
    })
}

/// Builds the operator.
///
/// # Errors
/// When the manager cannot be built.
pub fn operator(kube: impl Into<Transport>, setup: Setup) -> anyhow::Result<Manager> {
    let manager = Manager::builder(kube)
        .component("{{project-name}}")
        .setup(setup)
        .leader_election_id("{{project-name}}.{{group}}")
        .build()?;
    manager
        .controller::<{{kind}}>()
        .when(generation_changed())
        .owns::<ConfigMap>()
        .reconcile(reconcile);
    Ok(manager)
}

async fn reconcile(object: Arc<{{kind}}>, cx: Context) -> Result<Outcome> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(object.name_any());
    map.metadata.namespace = object.namespace();
    map.data = Some([("text".to_owned(), object.spec.text.clone())].into());
    map.controlled_by(&*object)?;
    cx.apply(&map).await?;
    let condition = conditions::of(&*object, "Ready", true, "Written", "the ConfigMap is written");
    if cx.status(&*object).condition(condition).patch_if_changed().await?.is_some() {
        cx.event(&*object, "Written", "the ConfigMap is written");
    }
    Ok(Outcome::Settled)
}
