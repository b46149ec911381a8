//! Operator of web applications: each `WebApp` gets a Deployment, a Service and a status.

use evenkeel_runtime::prelude::*;
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, ResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeSet, sync::Mutex};

/// Desired state of a web application.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "WebApp", namespaced, status = "WebAppStatus")]
pub struct WebAppSpec {
    /// Image of the web server.
    pub image: String,
    /// Number of replicas.
    pub replicas: i32,
}

/// Observed state of a web application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStatus {
    /// Number of replicas that are ready.
    pub ready_replicas: i32,
    /// Conditions of the application.
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

/// Names that are published outside of the cluster. A real operator would call a DNS service.
#[derive(Debug, Default, Clone)]
pub struct Dns(Arc<Mutex<BTreeSet<String>>>);

impl Dns {
    /// Returns the published names.
    pub fn names(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Builds the operator.
///
/// # Errors
/// Fails if the manager cannot be built.
pub fn operator(kube: kube::Client, setup: Setup, dns: Dns) -> anyhow::Result<Manager> {
    let manager = Manager::builder(kube)
        .component("webapp-operator")
        .setup(setup)
        .leader_election_id("webapp.example.com")
        .probes(8081)
        .metrics(Metrics::secure(8443))
        .build()?;
    manager
        .controller::<WebApp>()
        .when(generation_changed())
        .owns::<Deployment>()
        .owns::<Service>()
        .state(dns)
        .finalizer("example.com/dns", async |app: Arc<WebApp>, cx: Context<Dns>| {
            cx.state().lock().remove(&app.name_any());
            Ok(())
        })
        .reconcile(reconcile);
    Ok(manager)
}

async fn reconcile(app: Arc<WebApp>, cx: Context<Dns>) -> Result<Outcome> {
    cx.state().lock().insert(app.name_any());
    let deployment = cx.apply(&deployment(&app)?).await?;
    cx.apply(&service(&app)?).await?;
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let message = format!("{ready} of {} replicas are ready", app.spec.replicas);
    let is_ready = ready >= app.spec.replicas; // a rollout has more of them for a while
    let condition = conditions::of(&*app, "Ready", is_ready, "Replicas", message);
    let status = cx.status(&*app).set(|status| status.ready_replicas = ready).condition(condition);
    status.patch_if_changed().await?;
    let before = app.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if is_ready && !conditions::is_true(before, "Ready") {
        cx.event(&*app, "Ready", "all replicas are ready");
    }
    Ok(Outcome::Settled)
}

fn deployment(app: &WebApp) -> Result<Deployment> {
    let labels = json!({"app": app.name_any()});
    let mut deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": app.name_any()},
        "spec": {
            "replicas": app.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": app.spec.image}]},
            },
        },
    }))?;
    deployment.controlled_by(app)?;
    Ok(deployment)
}

fn service(app: &WebApp) -> Result<Service> {
    let mut service: Service = serde_json::from_value(json!({
        "metadata": {"name": app.name_any()},
        "spec": {"selector": {"app": app.name_any()}, "ports": [{"port": 80}]},
    }))?;
    service.controlled_by(app)?;
    Ok(service)
}
