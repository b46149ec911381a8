//! Objects of a new server: namespaces, roles, priority classes, flow control and the service `kubernetes`.

mod recorded;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Api;
use crate::loopback::{change, one, put};
use crate::registry;
use crate::resource::ResourceType;
use crate::service_network::{DEFAULT_SERVICE_CIDR, ServiceNetwork};
use crate::store::Transaction;
use crate::tracking;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::list;

/// Namespace and name of the ConfigMap with the CA of clients, which extension API servers read.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// Returns the objects of a resource that each new server has.
pub(crate) fn objects(resource: &ResourceType) -> Result<Vec<Value>, StatusError> {
    recorded::of(resource)
}

/// Creates the objects that are missing. Existing objects keep users' changes, except for the client CA.
pub(crate) async fn install(
    api: &Arc<Api>,
    ca: &str,
    network: &ServiceNetwork,
) -> Result<(), StatusError> {
    let mut transaction = Transaction::default();
    put_all(api, ca, network, &mut transaction)?;
    api.store.commit(transaction).await?;
    registry::show_all(api).await?;
    add_second_range(api, network).await?;
    keep_client_ca(api, ca).await
}

/// Adds the second range of cluster IPs to the default ServiceCIDR if it has only the first.
///
/// Upstream: `defaultservicecidr.Controller`.
async fn add_second_range(api: &Arc<Api>, network: &ServiceNetwork) -> Result<(), StatusError> {
    let (version, resource) = ("networking.k8s.io/v1", "servicecidrs");
    let Some(cidrs) = api.table.get(version, resource) else { return Ok(()) };
    let stored = one(api, version, resource, "", DEFAULT_SERVICE_CIDR)?.unwrap_or_default();
    let configured = network.cidrs();
    if list(&stored, "spec.cidrs") == configured {
        return Ok(());
    }
    if !matches!((list(&stored, "spec.cidrs"), &configured[..]), ([only], [first, _]) if only == first)
    {
        let stored = &stored["spec"]["cidrs"];
        tracing::warn!(%stored, ?configured, "the default ServiceCIDR differs from --service-cluster-ip-range");
        return Ok(());
    }
    let edit = |cidr: &mut Value| {
        cidr["spec"]["cidrs"] = configured.clone().into();
        Ok(())
    };
    change(api, &cidrs, "", DEFAULT_SERVICE_CIDR, false, edit).await.map(drop)
}

/// Updates the client CA in the ConfigMap that extension API servers read.
///
/// Upstream: `clusterauthenticationtrust.Controller`.
async fn keep_client_ca(api: &Arc<Api>, ca: &str) -> Result<(), StatusError> {
    let (namespace, name) = AUTHENTICATION;
    let stored = one(api, "v1", "configmaps", namespace, name)?.unwrap_or_default();
    let Some(configmaps) = api.table.get("v1", "configmaps") else { return Ok(()) };
    if stored["data"]["client-ca-file"].as_str() == Some(ca) {
        return Ok(());
    }
    let edit = |map: &mut Value| {
        map["data"]["client-ca-file"] = ca.into();
        Ok(())
    };
    change(api, &configmaps, namespace, name, false, edit).await.map(drop)
}

fn put_all(
    api: &Arc<Api>,
    ca: &str,
    network: &ServiceNetwork,
    transaction: &mut Transaction,
) -> Result<(), StatusError> {
    let now = seconds(api.clock.now());
    let rows = api.table.rows();
    recorded::put_all(api, transaction)?;
    if let Some(configmaps) = rows.get("v1", "configmaps") {
        put(api, configmaps, authentication(ca), &now, transaction);
    }
    for (version, resource, object) in [
        ("networking.k8s.io/v1", "servicecidrs", network.service_cidr(&now)),
        ("v1", "services", network.service()),
        ("v1", "endpoints", network.endpoints()),
        ("discovery.k8s.io/v1", "endpointslices", network.endpoint_slice()),
    ] {
        if let Some(resource) = rows.get(version, resource) {
            put(api, resource, object, &now, transaction);
        }
    }
    tracking::install(api, transaction);
    Ok(())
}

/// Creates the APIService of an API that another part of the process serves.
pub(crate) async fn register(api: &Arc<Api>, service: Value) -> Result<(), StatusError> {
    let now = seconds(api.clock.now());
    if let Some(services) = api.table.get("apiregistration.k8s.io/v1", "apiservices") {
        let mut transaction = Transaction::default();
        put(api, &services, service, &now, &mut transaction);
        api.store.commit(transaction).await?;
    }
    Ok(())
}

/// Returns the ConfigMap with the client CA for extension API servers.
fn authentication(ca: &str) -> Value {
    json!({
        "metadata": {"name": AUTHENTICATION.1, "namespace": AUTHENTICATION.0},
        "data": {"client-ca-file": ca},
    })
}
