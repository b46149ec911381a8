//! Operator of web sites: each `Site` gets a Deployment, a Service and a name in a DNS.

use evenkeel_runtime::prelude::*;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{CustomResource, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Mutex};

/// Desired state of a site.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
#[kube(printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.ready"}"#)]
pub struct SiteSpec {
    /// Image of the web server.
    pub image: String,
    /// Number of replicas.
    pub replicas: i32,
}

/// Observed state of a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteStatus {
    /// Number of replicas that are ready.
    pub ready: i32,
}

/// Names outside of the cluster: a real operator would call a DNS service.
#[derive(Clone, Debug, Default)]
pub struct Dns(pub Arc<Mutex<BTreeSet<String>>>);

async fn reconcile(site: Arc<Site>, cx: Context<Dns>) -> Result<Outcome> {
    cx.state().0.lock().expect("no holder panics").insert(cx.key().to_string());
    let labels = json!({"site": site.name_any()});
    let containers = json!([{"name": "web", "image": site.spec.image}]);
    let deployment = json!({
        "replicas": site.spec.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    });
    let deployment = cx.apply(&part::<Deployment>(&site, &deployment)?).await?;
    let service = json!({"selector": labels, "ports": [{"port": 80}]});
    cx.apply(&part::<Service>(&site, &service)?).await?;

    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let before = site.status.as_ref().map_or(0, |status| status.ready);
    cx.status(&*site).set(|status| status.ready = ready).patch_if_changed().await?;
    if before < site.spec.replicas && ready >= site.spec.replicas {
        cx.event(&*site, "Ready", "all replicas are ready");
    }
    Ok(Outcome::Settled)
}

/// Returns an object with the name of the site. The garbage collector deletes it with the site.
fn part<K: ApiObject>(site: &Site, spec: &Value) -> Result<K> {
    let object = json!({"metadata": {"name": site.name_any()}, "spec": spec});
    let mut object: K = serde_json::from_value(object)?;
    object.controlled_by(site)?;
    Ok(object)
}

async fn clean_up(_: Arc<Site>, cx: Context<Dns>) -> Result<()> {
    cx.state().0.lock().expect("no holder panics").remove(&cx.key().to_string());
    Ok(())
}

/// Builds the operator.
///
/// # Errors
/// Fails if a port cannot be bound.
pub fn operator(kube: impl Into<Transport>, setup: Setup, dns: Dns) -> anyhow::Result<Manager> {
    let manager = Manager::builder(kube)
        .component("site-operator")
        .setup(setup)
        .leader_election_id("site-operator.example.com")
        .probes(8081)
        .metrics(Metrics::secure(8443))
        .build()?;
    let sites = manager.controller::<Site>().when(generation_changed());
    let sites = sites.owns::<Deployment>().owns::<Service>().state(dns);
    sites.finalizer("example.com/dns", clean_up).reconcile(reconcile);
    Ok(manager)
}
