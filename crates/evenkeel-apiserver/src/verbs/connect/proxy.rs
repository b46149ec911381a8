//! Sub-resources that lead to a port: nodes here are simulated and nothing listens, so that connections are refused as
//! upstream says it.

use crate::api::{Answer, Call};
use crate::https::join_host_port;
use crate::loopback;
use crate::resource::GroupResource;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{int, list, text};
use std::net::IpAddr;

/// Serves `proxy` of a pod: nothing listens there.
///
/// Upstream: `ProxyREST.Connect`, `ResourceLocation`.
pub(super) fn pod(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    let Proxied { name, port } = proxied(cx.name, "pod")?;
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, name)? else {
        return Err(StatusError::not_found(&cx.resource.name, name));
    };
    let containers = list(&pod, "spec.containers").iter();
    let first = containers.flat_map(|container| list(container, "ports")).next();
    let first = first.and_then(|port| int(port, "containerPort")).map(|port| port.to_string());
    let ip = text(&pod, "status.podIP");
    if !ip.parse().is_ok_and(is_global_unicast) {
        return Err(StatusError::bad_request("address not allowed"));
    }
    Err(refused(ip, if port.is_empty() { first.as_deref().unwrap_or("80") } else { port }))
}

/// Upstream: `IsGlobalUnicast` of Go's `net`.
fn is_global_unicast(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !is_link_local
}

/// The error of a connection that is refused.
fn refused(ip: &str, port: &str) -> StatusError {
    let address = join_host_port(ip, port);
    StatusError::unavailable(format!(
        "error trying to reach service: dial tcp {address}: connect: connection refused"
    ))
}

/// Serves `proxy` of a node: there is no kubelet's server.
pub(super) fn node(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    let Proxied { name, port } = proxied(cx.name, "node")?;
    let Some(node) = cx.api.read(cx.resource, "", name)? else {
        return Err(StatusError::not_found(&cx.resource.name, name));
    };
    let mut addresses = list(&node, "status.addresses").iter();
    let address = addresses.find(|address| text(address, "type") == "InternalIP");
    let address = address.map_or(name, |address| text(address, "address"));
    let kubelet = int(&node, "status.daemonEndpoints.kubeletEndpoint.Port");
    let kubelet = kubelet.filter(|port| *port != 0).unwrap_or(10250).to_string();
    Err(refused(address, if port.is_empty() { &kubelet } else { port }))
}

/// Serves `proxy` of a Service: nothing listens at its endpoints.
///
/// Upstream: `REST.ResourceLocation` of `registry/core/service`.
pub(super) fn service(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    let Proxied { name, port } = proxied(cx.name, "service")?;
    let mut port_name = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let Some(service) = cx.api.read(cx.resource, cx.namespace, name)? else {
            return Err(StatusError::not_found(&cx.resource.name, name));
        };
        let mut ports = list(&service, "spec.ports").iter();
        let Some(port) = ports.find(|port| int(port, "port") == Some(number)) else {
            let why = format!("no service port {number} found for service {}", quote(name));
            return Err(StatusError::unavailable(why));
        };
        text(port, "name").clone_into(&mut port_name);
    }
    let Some(endpoints) = loopback::one(cx.api, "v1", "endpoints", cx.namespace, name)? else {
        let endpoints = GroupResource { group: "".into(), resource: "endpoints".into() };
        return Err(StatusError::not_found(&endpoints, name));
    };
    let reachable = list(&endpoints, "subsets").iter().find_map(|subset| {
        let mut ports = list(subset, "ports").iter();
        let port = int(ports.find(|port| text(port, "name") == port_name)?, "port")?;
        Some((text(list(subset, "addresses").first()?, "ip"), port.to_string()))
    });
    Err(match reachable {
        Some((ip, port)) => refused(ip, &port),
        None => StatusError::unavailable(format!(
            "no endpoints available for service {}",
            quote(if list(&endpoints, "subsets").is_empty() { name } else { cx.name })
        )),
    })
}

/// What a proxy is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Proxied<'a> {
    name: &'a str,
    /// Name or number; empty for the first one.
    port: &'a str,
}

/// Parses what a proxy is asked for: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
///
/// Upstream: `SplitSchemeNamePort`.
fn proxied<'a>(id: &'a str, kind: &str) -> Result<Proxied<'a>, StatusError> {
    let parts: Vec<&str> = id.split(':').collect();
    match *parts.as_slice() {
        [name] if !name.is_empty() => Ok(Proxied { name, port: "" }),
        [name, port] | ["" | "http" | "https", name, port] if !name.is_empty() => {
            Ok(Proxied { name, port })
        }
        _ => Err(StatusError::bad_request(format!("invalid {kind} request {}", quote(id)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxied_name_may_have_a_scheme_and_a_port() {
        for (id, name) in [
            ("a", Some(("a", ""))),
            ("a:", Some(("a", ""))),
            ("a:80", Some(("a", "80"))),
            (":a:http", Some(("a", "http"))),
            ("http:a:80", Some(("a", "80"))),
            ("https:a:", Some(("a", ""))),
            ("", None),
            (":", None),
            (":80", None),
            ("https::", None),
            ("ftp:a:21", None),
            ("http:a:80:80", None),
            ("[::1]:80", None),
        ] {
            let refusal = StatusError::bad_request(format!("invalid pod request {id:?}"));
            let expected = name.map(|(name, port)| Proxied { name, port }).ok_or(refusal);
            assert_eq!(proxied(id, "pod"), expected, "{id}");
        }
    }
}
