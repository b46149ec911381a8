//! Objects that the server creates when it starts: namespaces, roles, priority classes, flow control and the Service
//! `kubernetes`.

mod policy;
mod recorded;

pub use policy::{BootstrapGrant, BootstrapRule, bootstrap_grants};

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use self::recorded::CONFIG_PRODUCER;
use crate::aggregation::controller::restore_spec;
use crate::aggregation::registration::is_restored_on_start;
use crate::api::Api;
use crate::auth::RequestHeaderOptions;
use crate::loopback::{self, change, create_if_absent};
use crate::registry;
use crate::resource::ResourceType;
use crate::service_network::{DEFAULT_SERVICE_CIDR, ServiceNetwork};
use crate::store::Transaction;
use crate::tracking;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{list, text};

/// Namespace of the ConfigMap [`AUTHENTICATION_NAME`].
const AUTHENTICATION_NAMESPACE: &str = "kube-system";
/// Name of the ConfigMap from which extension API servers read their authentication options.
const AUTHENTICATION_NAME: &str = "extension-apiserver-authentication";

/// `apiVersion` of APIServices.
const API_SERVICE_VERSION: &str = "apiregistration.k8s.io/v1";
/// Resource name of APIServices.
const API_SERVICES: &str = "apiservices";

/// Returns the objects of a resource that each new server has.
pub(crate) fn objects(resource: &ResourceType) -> Result<Vec<Value>, StatusError> {
    recorded::of(resource)
}

/// Creates the missing objects. Existing objects keep users' changes, except in fields that extension API servers and
/// discovery rely on. `ca` is the PEM of the client certificate authorities.
pub(crate) async fn install(
    api: &Arc<Api>,
    ca: &str,
    network: &ServiceNetwork,
) -> Result<(), StatusError> {
    let is_new = api.store.revision() == 0;
    let put_all = |transaction: &mut Transaction| put_all(api, ca, network, transaction);
    loopback::commit_missing(api, put_all).await?;
    registry::create_missing_ip_addresses(api).await?;
    add_second_range(api, network).await?;
    if !is_new {
        restore_api_services(api).await?;
    }
    update_authentication(api, ca).await
}

/// Restores the specs of the built-in groups' APIServices.
///
/// Upstream: `autoRegisterController`, `AddAPIServiceToSyncOnStart`.
async fn restore_api_services(api: &Arc<Api>) -> Result<(), StatusError> {
    let Some(services) = api.table.get(API_SERVICE_VERSION, API_SERVICES) else { return Ok(()) };
    for recorded in objects(&services)? {
        let name = text(&recorded, "metadata.name");
        let current = loopback::get(api, API_SERVICE_VERSION, API_SERVICES, "", name)?;
        let current = current.unwrap_or_default();
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
    let (api_version, resource) = ("networking.k8s.io/v1", "servicecidrs");
    let Some(cidrs) = api.table.get(api_version, resource) else { return Ok(()) };
    let stored =
        loopback::get(api, api_version, resource, "", DEFAULT_SERVICE_CIDR)?.unwrap_or_default();
    let configured = network.cidrs();
    if list(&stored, "spec.cidrs") == configured {
        return Ok(());
    }
    let has_only_first = match (list(&stored, "spec.cidrs"), &configured[..]) {
        ([stored], [first, _second]) => stored == first,
        _ => false,
    };
    if !has_only_first {
        let stored = &stored["spec"]["cidrs"];
        tracing::warn!(%stored, ?configured, "the default ServiceCIDR differs from --service-cluster-ip-range");
        return Ok(());
    }
    let dry_run = false;
    let edit = |cidr: &mut Value| {
        cidr["spec"]["cidrs"] = configured.clone().into();
        Ok(())
    };
    change(api, &cidrs, "", DEFAULT_SERVICE_CIDR, dry_run, edit).await.map(drop)
}

/// Updates the authentication options in the ConfigMap that extension API servers read.
///
/// Upstream: `clusterauthenticationtrust.Controller`.
async fn update_authentication(api: &Arc<Api>, ca: &str) -> Result<(), StatusError> {
    let (namespace, name) = (AUTHENTICATION_NAMESPACE, AUTHENTICATION_NAME);
    let stored = loopback::get(api, "v1", "configmaps", namespace, name)?.unwrap_or_default();
    let Some(configmaps) = api.table.get("v1", "configmaps") else { return Ok(()) };
    let desired = authentication_data(api, ca);
    if desired.iter().all(|(key, value)| stored["data"][key].as_str() == Some(value)) {
        return Ok(());
    }
    let dry_run = false;
    let edit = |map: &mut Value| {
        for (key, value) in &desired {
            map["data"][key] = value.as_str().into();
        }
        Ok(())
    };
    change(api, &configmaps, namespace, name, dry_run, edit).await.map(drop)
}

/// Returns the data of the ConfigMap with authentication options: the client certificate authorities, and the options
/// for front proxies.
fn authentication_data(api: &Api, ca: &str) -> BTreeMap<&'static str, String> {
    let front_proxy =
        api.authenticator.front_proxy.iter().flat_map(RequestHeaderOptions::config_map);
    front_proxy.chain([("client-ca-file", ca.to_owned())]).collect()
}

/// Adds the creation of all missing objects to a transaction.
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
        let metadata = json!({"name": AUTHENTICATION_NAME, "namespace": AUTHENTICATION_NAMESPACE});
        let map = json!({"metadata": metadata, "data": authentication_data(api, ca)});
        create_if_absent(api, configmaps, map, &now, transaction);
    }
    let advertised = [network.advertised_address().to_string()];
    for (api_version, resource, object) in [
        ("networking.k8s.io/v1", "servicecidrs", network.service_cidr(&now)),
        ("v1", "services", network.service()),
        ("v1", "endpoints", network.endpoints(&advertised)),
        ("discovery.k8s.io/v1", "endpointslices", network.endpoint_slice(&advertised)),
    ] {
        if let Some(resource) = rows.get(api_version, resource) {
            create_if_absent(api, resource, object, &now, transaction);
        }
    }
    tracking::install(api, transaction);
    Ok(())
}

/// Creates this APIService, of an API that another part of the process serves.
pub(crate) async fn register(api: &Arc<Api>, service: Value) -> Result<(), StatusError> {
    let now = seconds(api.clock.now());
    if let Some(services) = api.table.get(API_SERVICE_VERSION, API_SERVICES) {
        let add = |transaction: &mut Transaction| {
            create_if_absent(api, &services, service.clone(), &now, transaction);
            Ok(())
        };
        loopback::commit_missing(api, add).await?;
    }
    Ok(())
}
