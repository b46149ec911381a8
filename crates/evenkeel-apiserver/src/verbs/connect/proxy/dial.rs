//! Connections to proxied services: to a simulated kubelet or pod in this process, or over the network.

use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_apimachinery::status::StatusError;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::location::{Location, Owner, is_global_unicast, unreachable_service};
use crate::api::Api;
use crate::https::{self, Trust, client_config};
use crate::kubelet::{PodConnection, PodRef};
use crate::proxy::{Link, Stream, within_dial_timeout};

/// Connects to the location of a proxied request. With simulated nodes, all ports of pods and nodes are simulated, too.
pub(super) async fn dial(api: &Api, location: &Location) -> Result<Link, StatusError> {
    let port = location.port_number()?;
    match api.kubelets.get() {
        Some(kubelet) => {
            let connection = match &location.owner {
                Owner::Pod(namespace, name) => kubelet.connect(PodRef { namespace, name }, port),
                Owner::Node(name) => kubelet.connect_node(name).filter(|_| is_kubelet(location)),
            };
            let Some(PodConnection { stream, server }) = connection else {
                return Err(unreachable_service(&refused(location, port)));
            };
            // Simulated servers speak only HTTP. A kubelet's HTTPS needs no certificate, because it is part of this
            // process.
            if location.is_https && matches!(location.owner, Owner::Pod(..)) {
                let why = "http: server gave HTTP response to HTTPS client";
                return Err(unreachable_service(why));
            }
            Ok(Link { stream: Box::new(stream), server })
        }
        None => {
            let address = location.authority();
            let stream = within_dial_timeout(&address, dial_over_network(location, port)).await;
            stream.map(Link::over_network).map_err(|why| unreachable_service(&why))
        }
    }
}

/// Returns whether the location is the port of a node's kubelet, the only program on a simulated node.
fn is_kubelet(location: &Location) -> bool {
    location.is_https && matches!(location.owner, Owner::Node(_))
}

/// Returns Go's message for a port that no program listens on.
fn refused(location: &Location, port: u16) -> String {
    let address = crate::https::join_host_port(&location.host, port);
    format!("dial tcp {address}: connect: connection refused")
}

/// Connects over the network. Returns an error if an address is not a global unicast address.
async fn dial_over_network(location: &Location, port: u16) -> Result<Box<dyn Stream>, String> {
    let host = &*location.host;
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> = addresses.map_err(|error| error.to_string())?.collect();
    // Connect to the addresses that are checked here, because another lookup of the name may return others.
    if addresses.is_empty() || !addresses.iter().all(|address| is_global_unicast(address.ip())) {
        return Err("address not allowed".to_owned());
    }
    let stream = https::dial(&*addresses, &https::join_host_port(host, port)).await?;
    if !location.is_https {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    // Trust any certificate, because the server does not know the certificate authorities of services. Upstream:
    // `ProxyTransport`, with `InsecureSkipVerify`.
    let connector = TlsConnector::from(Arc::new(client_config(Trust::Any, None)?));
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    Ok(Box::new(stream))
}
