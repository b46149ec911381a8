//! Objects of a new server: namespaces, roles, priority classes, flow control and the service `kubernetes`.

mod recorded;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::aggregation::controller::restore_spec;
use crate::aggregation::registration::is_restored_on_start;
use crate::api::Api;
use crate::auth::RequestHeaderOptions;
use crate::loopback::{self, change, put};
use crate::registry;
use crate::resource::ResourceType;
use crate::service_network::{DEFAULT_SERVICE_CIDR, ServiceNetwork};
use crate::store::Transaction;
use crate::tracking;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{list, text};

/// Namespace and name of the ConfigMap with authentication options, which extension API servers read.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// Version and name of the resource of APIServices.
const API_SERVICES: (&str, &str) = ("apiregistration.k8s.io/v1", "apiservices");

/// Returns the objects of a resource that each new server has.
pub(crate) fn objects(resource: &ResourceType) -> Result<Vec<Value>, StatusError> {
    recorded::of(resource)
}

/// Creates the objects that are missing. Existing objects keep users' changes, except for what extension
/// API servers and discovery rely on.
pub(crate) async fn install(
    api: &Arc<Api>,
    ca: &str,
    network: &ServiceNetwork,
) -> Result<(), StatusError> {
    let is_new = api.store.revision() == 0;
    let mut transaction = Transaction::default();
    put_all(api, ca, network, &mut transaction)?;
    api.store.commit(transaction).await?;
    registry::show_all(api).await?;
    add_second_range(api, network).await?;
    if !is_new {
        restore_api_services(api).await?;
    }
    keep_authentication(api, ca).await
}

/// Restores the specs of the built-in groups' APIServices.
///
/// Upstream: `autoRegisterController`, `AddAPIServiceToSyncOnStart`.
async fn restore_api_services(api: &Arc<Api>) -> Result<(), StatusError> {
    let Some(services) = api.table.get(API_SERVICES.0, API_SERVICES.1) else { return Ok(()) };
    for recorded in objects(&services)? {
        let name = text(&recorded, "metadata.name");
        let current = loopback::get(api, API_SERVICES.0, API_SERVICES.1, "", name)?.unwrap_or_default();
        if !is_restored_on_start(&current, &recorded) {
            continue;
        }
        restore_spec(api, &services, name, &recorded["spec"]).await?;
    }
    Ok(())
}

/// Adds the second range of cluster IPs to the default ServiceCIDR if it has only the first.
///
/// Upstream: `defaultservicecidr.Controller`.
async fn add_second_range(api: &Arc<Api>, network: &ServiceNetwork) -> Result<(), StatusError> {
    let (version, resource) = ("networking.k8s.io/v1", "servicecidrs");
    let Some(cidrs) = api.table.get(version, resource) else { return Ok(()) };
    let stored =
        loopback::get(api, version, resource, "", DEFAULT_SERVICE_CIDR)?.unwrap_or_default();
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

/// Updates the authentication options in the ConfigMap that extension API servers read.
///
/// Upstream: `clusterauthenticationtrust.Controller`.
async fn keep_authentication(api: &Arc<Api>, ca: &str) -> Result<(), StatusError> {
    let (namespace, name) = AUTHENTICATION;
    let stored = loopback::get(api, "v1", "configmaps", namespace, name)?.unwrap_or_default();
    let Some(configmaps) = api.table.get("v1", "configmaps") else { return Ok(()) };
    let desired = authentication_data(api, ca);
    if desired.iter().all(|(key, value)| stored["data"][key].as_str() == Some(value)) {
        return Ok(());
    }
    let edit = |map: &mut Value| {
        for (key, value) in &desired {
            map["data"][key] = value.as_str().into();
        }
        Ok(())
    };
    change(api, &configmaps, namespace, name, false, edit).await.map(drop)
}

/// Returns the authentication options for extension API servers: the client CA, and the front proxies.
fn authentication_data(api: &Api, ca: &str) -> BTreeMap<&'static str, String> {
    let front_proxy =
        api.authenticator.front_proxy.iter().flat_map(RequestHeaderOptions::config_map);
    front_proxy.chain([("client-ca-file", ca.to_owned())]).collect()
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
        let metadata = json!({"name": AUTHENTICATION.1, "namespace": AUTHENTICATION.0});
        let map = json!({"metadata": metadata, "data": authentication_data(api, ca)});
        put(api, configmaps, map, &now, transaction);
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
    if let Some(services) = api.table.get(API_SERVICES.0, API_SERVICES.1) {
        let mut transaction = Transaction::default();
        put(api, &services, service, &now, &mut transaction);
        api.store.commit(transaction).await?;
    }
    Ok(())
}
