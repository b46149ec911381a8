//! Connections to what is proxied: to a simulated server in this process, or over the network.

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

/// Connects to a service. Where the nodes are simulated, so are all of its ports.
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
            // Simulated kubelets are trusted without a certificate, as they are part of this process.
            if location.is_https && matches!(location.owner, Owner::Pod(..)) {
                let why = "http: server gave HTTP response to HTTPS client";
                return Err(unreachable_service(why));
            }
            Ok(Link { stream: Box::new(stream), server })
        }
        None => {
            let address = location.authority();
            let dialed = within_dial_timeout(&address, over_network(location, port)).await;
            dialed.map(Link::over_network).map_err(|why| unreachable_service(&why))
        }
    }
}

/// Whether a node's port is its kubelet's: no other program runs on a simulated node.
fn is_kubelet(location: &Location) -> bool {
    location.is_https && matches!(location.owner, Owner::Node(_))
}

fn refused(location: &Location, port: u16) -> String {
    let address = crate::https::join_host_port(&location.host, port);
    format!("dial tcp {address}: connect: connection refused")
}

async fn over_network(location: &Location, port: u16) -> Result<Box<dyn Stream>, String> {
    let host = &*location.host;
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.collect();
    // What is checked is what is connected to: a name may have another address the next time.
    if found.is_empty() || !found.iter().all(|address| is_global_unicast(address.ip())) {
        return Err("address not allowed".to_owned());
    }
    let stream = https::dial(&*found, &https::join_host_port(host, port)).await?;
    if !location.is_https {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    // Upstream: `ProxyTransport`, with `InsecureSkipVerify`: nobody says which authority signs the certificates of services.
    let connector = TlsConnector::from(Arc::new(client_config(Trust::Any, None)?));
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    Ok(Box::new(stream))
}
