//! Objects of a new server: namespaces, roles, priority classes, flow control and the service `kubernetes`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::aggregation::registration::is_restored_on_start;
use crate::api::Api;
use crate::auth::RequestHeaderOptions;
use crate::loopback::{change, one, put};
use crate::registry;
use crate::resource::{Path, parse_path};
use crate::store::Transaction;
use crate::tracking;
use evenkeel_api::cidr::{Cidr, from_number, number};
use evenkeel_apimachinery::patch::{Writer, update_managed_fields};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{set, text};

const DATA: &str = include_str!("../data/bootstrap-objects.json");

/// Namespace and name of the ConfigMap with authentication options, which extension API servers read.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// Version and name of the resource of APIServices.
const API_SERVICES: (&str, &str) = ("apiregistration.k8s.io/v1", "apiservices");

/// Returns the recorded objects, by the URL path of their resource.
pub(crate) fn objects() -> Result<BTreeMap<String, Vec<Value>>, StatusError> {
    serde_json::from_str(DATA).map_err(StatusError::internal)
}

/// Default range of cluster IPs.
pub(crate) const DEFAULT_SERVICE_RANGE: &str = "10.96.0.0/16";

/// Minimum number of addresses in a range of cluster IPs.
const MIN_ADDRESSES: u128 = 8;

/// Network addresses of the server, for Services and Endpoints.
pub(crate) struct ServiceNetwork {
    /// Address that the server advertises.
    advertised: SocketAddr,
    range: Cidr,
}

impl ServiceNetwork {
    /// Parses an IPv4 range in the syntax of `--service-cluster-ip-range`.
    ///
    /// Upstream: `ServiceIPRange`.
    pub(crate) fn new(advertised: SocketAddr, range: &str) -> Result<Self, String> {
        let range = Cidr::parse(range)
            .ok_or_else(|| format!("{range:?} is not one range in CIDR notation (10.96.0.0/16)"))?;
        if !range.is_ipv4() {
            return Err(format!("{range} is not of IPv4, the only family this server allocates"));
        }
        if number(range.last()) - number(range.first()) + 1 < MIN_ADDRESSES {
            return Err(format!("it must have at least {MIN_ADDRESSES} addresses"));
        }
        Ok(Self { advertised, range })
    }

    /// Returns the cluster IP of the Service `kubernetes`: the first address after the network address.
    pub(crate) fn service_address(&self) -> IpAddr {
        from_number(number(self.range.first()) + 1, true)
    }
}

/// Creates the objects that are missing. Existing objects keep users' changes, except for what extension
/// API servers and discovery rely on.
pub(crate) async fn install(
    api: &Arc<Api>,
    ca: &str,
    network: &ServiceNetwork,
) -> Result<(), StatusError> {
    let mut transaction = Transaction::default();
    put_all(api, ca, network, &mut transaction)?;
    api.store.commit(transaction).await?;
    registry::show_all(api).await?;
    restore_api_services(api).await?;
    keep_authentication(api, ca).await
}

/// Restores the specs of the built-in groups' APIServices.
///
/// Upstream: `autoRegisterController`, `AddAPIServiceToSyncOnStart`.
async fn restore_api_services(api: &Arc<Api>) -> Result<(), StatusError> {
    let Some(services) = api.table.get(API_SERVICES.0, API_SERVICES.1) else { return Ok(()) };
    let recorded = objects()?.remove("/apis/apiregistration.k8s.io/v1/apiservices");
    for recorded in recorded.unwrap_or_default() {
        let name = text(&recorded, "metadata.name");
        let current = one(api, API_SERVICES.0, API_SERVICES.1, "", name)?.unwrap_or_default();
        if !is_restored_on_start(&current, &recorded) {
            continue;
        }
        let edit = |service: &mut Value| {
            let old = service.clone();
            set(service, "spec", recorded["spec"].clone());
            let writer =
                Writer { manager: "kube-apiserver", subresource: "", now: api.clock.now() };
            let schema = services.schema(&services.gvk);
            update_managed_fields(schema.as_ref(), Some(&old), service, &writer);
            Ok(())
        };
        change(api, &services, "", name, false, edit).await?;
    }
    Ok(())
}

/// Updates the authentication options in the ConfigMap that extension API servers read.
///
/// Upstream: `clusterauthenticationtrust.Controller`.
async fn keep_authentication(api: &Arc<Api>, ca: &str) -> Result<(), StatusError> {
    let (namespace, name) = AUTHENTICATION;
    let stored = one(api, "v1", "configmaps", namespace, name)?.unwrap_or_default();
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
    let advertised = network.advertised;
    let rows = api.table.rows();
    // The paths are sorted, so that the server creates namespaces first.
    for (path, list) in objects()? {
        let Path::Resource(target) = parse_path(&path, &rows) else {
            tracing::error!(path, "bootstrap objects of an unknown resource");
            continue;
        };
        for object in list {
            put(api, &target.resource, object, &now, transaction);
        }
    }
    if let Some(configmaps) = rows.get("v1", "configmaps") {
        let metadata = json!({"name": AUTHENTICATION.1, "namespace": AUTHENTICATION.0});
        let map = json!({"metadata": metadata, "data": authentication_data(api, ca)});
        put(api, configmaps, map, &now, transaction);
    }
    if let Some(cidrs) = rows.get("networking.k8s.io/v1", "servicecidrs") {
        put(api, cidrs, service_cidr(&network.range, &now), &now, transaction);
    }
    if let Some(services) = rows.get("v1", "services") {
        put(api, services, kubernetes(network), &now, transaction);
    }
    if let Some(endpoints) = rows.get("v1", "endpoints") {
        put(api, endpoints, endpoints_of(advertised), &now, transaction);
    }
    if let Some(slices) = rows.get("discovery.k8s.io/v1", "endpointslices") {
        put(api, slices, slice_of(advertised), &now, transaction);
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

/// Returns the server's Service, with the first address of the range.
fn kubernetes(network: &ServiceNetwork) -> Value {
    let (ip, port) = (network.service_address().to_string(), network.advertised.port());
    json!({
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": ip,
            "clusterIPs": [ip],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    })
}

/// Returns the default ServiceCIDR of cluster IPs.
fn service_cidr(range: &Cidr, now: &str) -> Value {
    json!({
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [range.to_string()]},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
            "lastTransitionTime": now,
        }]},
    })
}

/// Returns the Endpoints with the server's address. The label makes the mirroring controller skip them.
fn endpoints_of(address: SocketAddr) -> Value {
    json!({
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{
            "addresses": [{"ip": address.ip().to_string()}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
        }],
    })
}

/// Returns the EndpointSlice with the server's address.
fn slice_of(address: SocketAddr) -> Value {
    json!({
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    })
}
