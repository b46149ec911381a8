//! Objects of a new server: namespaces, roles, priority classes, flow control and the service `kubernetes`.

mod recorded;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Api;
use crate::loopback::{change, one, put};
use crate::registry;
use crate::resource::ResourceType;
use crate::store::Transaction;
use crate::tracking;
use evenkeel_api::cidr::{Cidr, from_number, number};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;

/// Namespace and name of the ConfigMap with the CA of clients, which extension API servers read.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// Returns the objects of a resource that each new server has.
pub(crate) fn objects(resource: &ResourceType) -> Result<Vec<Value>, StatusError> {
    recorded::of(resource)
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
    keep_client_ca(api, ca).await
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
    let advertised = network.advertised;
    let rows = api.table.rows();
    recorded::put_all(api, transaction)?;
    if let Some(configmaps) = rows.get("v1", "configmaps") {
        put(api, configmaps, authentication(ca), &now, transaction);
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
