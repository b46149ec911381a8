//! Targets of proxied requests: ports of pods, of Services' endpoints, and of nodes.

use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{int, list, text};
use serde_json::Value;
use std::net::IpAddr;

use crate::api::Context;
use crate::backend;
use crate::https::join_host_port;
use crate::loopback;

/// Default port of kubelets.
const KUBELET_PORT: i64 = 10250;

/// Types of a node's addresses at which its kubelet is reached, preferred ones first. Upstream prefers host names, which
/// need a name server.
const ADDRESS_TYPES: [&str; 5] =
    ["InternalIP", "Hostname", "InternalDNS", "ExternalDNS", "ExternalIP"];

/// Object whose port a proxied request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// Pod with its namespace and name.
    Pod(String, String),
    /// Node with its name.
    Node(String),
}

/// Target of a proxied request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) owner: Owner,
    /// Whether the connection is encrypted.
    pub(super) is_https: bool,
    /// Address or host name.
    pub(super) host: String,
    /// Requested number or name of the port; empty for the scheme's default port.
    pub(super) port: String,
}

impl Location {
    /// Returns host and port as in a URL.
    pub(super) fn authority(&self) -> String {
        match &*self.port {
            "" if self.host.contains(':') => format!("[{}]", self.host),
            "" => self.host.clone(),
            port => join_host_port(&self.host, port),
        }
    }

    /// Returns the number of the port. Of the service names that Go resolves, only `http` and `https` are known.
    pub(super) fn port_number(&self) -> Result<u16, StatusError> {
        match &*self.port {
            "" if self.is_https => Ok(443),
            "https" => Ok(443),
            "" | "http" => Ok(80),
            port => port.parse().map_err(|_| {
                unreachable_service(&format!("dial tcp: lookup tcp/{port}: unknown port"))
            }),
        }
    }
}

/// Returns the error of a request that did not reach its service.
///
/// Upstream: `Transport.RoundTrip` of `util/proxy`.
pub(super) fn unreachable_service(why: &str) -> StatusError {
    StatusError::unavailable(format!("error trying to reach service: {why}"))
}

/// Returns the target of a request for a pod's proxy: by default, the first port of a container.
///
/// Upstream: `ResourceLocation` of `registry/core/pod`.
pub(super) fn pod(cx: &Context<'_>) -> Result<Location, StatusError> {
    let ProxyId { is_https, name, port } = parse_id(cx.name, "pod")?;
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, name)? else {
        return Err(StatusError::not_found(&cx.resource.name, name));
    };
    let containers = list(&pod, "spec.containers").iter();
    let first_port = containers.flat_map(|container| list(container, "ports")).next();
    let default_port = match first_port.and_then(|port| int(port, "containerPort")) {
        Some(number) => number.to_string(),
        None => String::new(),
    };
    let ip = text(&pod, "status.podIP");
    if !ip.parse().is_ok_and(is_global_unicast) {
        return Err(StatusError::bad_request("address not allowed"));
    }
    Ok(Location {
        owner: Owner::Pod(cx.namespace.to_owned(), name.to_owned()),
        is_https,
        host: ip.to_owned(),
        port: if port.is_empty() { default_port } else { port.to_owned() },
    })
}

/// Returns whether an address is a unicast address outside of this machine and its local network links.
///
/// Upstream: `IsGlobalUnicast` of Go's `net`.
pub(super) fn is_global_unicast(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !is_link_local
}

/// Returns the target of a request for a node's proxy: its kubelet, unless the request names another port.
///
/// Upstream: `ResourceLocation` of `registry/core/node`.
pub(super) fn node(cx: &Context<'_>) -> Result<Location, StatusError> {
    let ProxyId { is_https, name, port } = parse_id(cx.name, "node")?;
    let Some(node) = cx.api.read(cx.resource, "", name)? else {
        return Err(StatusError::not_found(&cx.resource.name, name));
    };
    let addresses = list(&node, "status.addresses");
    let of_type = |form: &&str| addresses.iter().find(|address| text(address, "type") == *form);
    let Some(address) = ADDRESS_TYPES.iter().find_map(of_type) else {
        let show = |address| format!("{{{} {}}}", text(address, "type"), text(address, "address"));
        let known: Vec<String> = addresses.iter().map(show).collect();
        return Err(StatusError::plain_internal(format!(
            "no preferred addresses found; known addresses: [{}]",
            known.join(" ")
        )));
    };
    let address = text(address, "address");
    if address.parse().is_ok_and(|ip| !is_global_unicast(ip)) {
        return Err(StatusError::bad_request("address not allowed"));
    }
    let kubelet_port = match int(&node, "status.daemonEndpoints.kubeletEndpoint.Port") {
        None | Some(0) => KUBELET_PORT.to_string(),
        Some(port) => port.to_string(),
    };
    let is_kubelet = port.is_empty() || port == kubelet_port;
    Ok(Location {
        owner: Owner::Node(name.to_owned()),
        is_https: is_https || is_kubelet,
        host: address.to_owned(),
        port: if is_kubelet { kubelet_port } else { port.to_owned() },
    })
}

/// Returns the target of a request for a Service's proxy: one of its ready endpoints.
///
/// Upstream: `REST.ResourceLocation` of `registry/core/service`, `RandomEndpoint`.
pub(super) fn service(cx: &Context<'_>) -> Result<Location, StatusError> {
    let ProxyId { is_https, name, port } = parse_id(cx.name, "service")?;
    let mut port_name = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let Some(service) = cx.api.read(cx.resource, cx.namespace, name)? else {
            return Err(StatusError::not_found(&cx.resource.name, name));
        };
        let Some(found) = backend::port_name(&service, number) else {
            let why = format!("no service port {number} found for service {}", quote(name));
            return Err(StatusError::unavailable(why));
        };
        found.clone_into(&mut port_name);
    }
    let mut slices = loopback::endpoint_slices(cx.api, cx.namespace, name);
    let pods = |namespace: &str, name: &str| {
        loopback::get(cx.api, "v1", "pods", namespace, name).ok().flatten()
    };
    let start = cx.api.random(rand::Rng::random::<u64>);
    backend::rotate(&mut slices, start);
    let endpoint = choose_endpoint(&slices, cx.namespace, &port_name, &pods, start);
    let Some((owner, host, port)) = endpoint else {
        let why = format!("no endpoints available for service {}", quote(name));
        return Err(StatusError::unavailable(why));
    };
    Ok(Location { owner, is_https, host, port })
}

/// Chooses a ready endpoint of a Service that is a pod of its namespace. Returns the pod, its IP and the port. `pods`
/// returns a pod by namespace and name. `start` is a random number.
fn choose_endpoint(
    slices: &[Value],
    namespace: &str,
    port_name: &str,
    pods: &dyn Fn(&str, &str) -> Option<Value>,
    start: u64,
) -> Option<(Owner, String, String)> {
    let pod_name = |endpoint: &Value| text(endpoint, "targetRef.name").to_owned();
    let is_of_pod = |endpoint: &Value, ip: &str| {
        let name = pod_name(endpoint);
        if text(endpoint, "targetRef.namespace") != namespace || name.is_empty() {
            return false;
        }
        // The address must belong to the pod. Otherwise a user who can write EndpointSlices could make the server
        // connect to any address.
        let Some(pod) = pods(namespace, &name) else { return false };
        let is_ip_of_pod = list(&pod, "status.podIPs").iter().any(|own| text(own, "ip") == ip);
        is_ip_of_pod && ip.parse().is_ok_and(is_global_unicast)
    };
    let (endpoint, ip, port) = backend::ready_endpoint(slices, port_name, start, &is_of_pod)?;
    let owner = Owner::Pod(namespace.to_owned(), pod_name(endpoint));
    Some((owner, ip.to_owned(), port.to_string()))
}

/// Name in the path of a proxied request, with its scheme and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProxyId<'a> {
    is_https: bool,
    name: &'a str,
    /// Name or number of the port; empty for the default port.
    port: &'a str,
}

/// Parses `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
///
/// Upstream: `SplitSchemeNamePort`.
fn parse_id<'a>(id: &'a str, kind: &str) -> Result<ProxyId<'a>, StatusError> {
    let parts: Vec<&str> = id.split(':').collect();
    match *parts.as_slice() {
        [name] if !name.is_empty() => Ok(ProxyId { is_https: false, name, port: "" }),
        [name, port] if !name.is_empty() => Ok(ProxyId { is_https: false, name, port }),
        [scheme @ ("" | "http" | "https"), name, port] if !name.is_empty() => {
            Ok(ProxyId { is_https: scheme == "https", name, port })
        }
        _ => Err(StatusError::bad_request(format!("invalid {kind} request {}", quote(id)))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_proxied_name_may_have_a_scheme_and_a_port() {
        for (id, name) in [
            ("a", Some((false, "a", ""))),
            ("a:", Some((false, "a", ""))),
            ("a:80", Some((false, "a", "80"))),
            (":a:http", Some((false, "a", "http"))),
            ("http:a:80", Some((false, "a", "80"))),
            ("https:a:", Some((true, "a", ""))),
            ("", None),
            (":", None),
            (":80", None),
            ("https::", None),
            ("ftp:a:21", None),
            ("http:a:80:80", None),
            ("[::1]:80", None),
        ] {
            let refusal = StatusError::bad_request(format!("invalid pod request {id:?}"));
            let expected = name.map(|(is_https, name, port)| ProxyId { is_https, name, port });
            assert_eq!(parse_id(id, "pod"), expected.ok_or(refusal), "{id}");
        }
    }

    #[test]
    fn addresses_of_the_machine_and_its_link_are_refused() {
        for (ip, allowed) in [
            ("10.0.0.1", true),
            ("8.8.8.8", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("::1", false),
            ("fe80::1", false),
            ("::ffff:127.0.0.1", false),
        ] {
            assert_eq!(is_global_unicast(ip.parse().expect("an address")), allowed, "{ip}");
        }
    }

    #[test]
    fn an_endpoint_is_ready_and_a_pods_own() {
        let slice = |endpoints: Value| json!({"ports": [{"name": "web", "port": 80}, {"name": "", "port": 81}, {"port": 82}], "endpoints": endpoints});
        let endpoint_of = |pod: &str, ip: &str, ready: Value| json!({"addresses": [ip], "conditions": {"ready": ready}, "targetRef": {"namespace": "ns", "name": pod}});
        let pods = |_: &str, name: &str| {
            let ip = match name {
                "a" => "10.0.0.1",
                "b" => "10.0.0.2",
                "local" => "127.0.0.1",
                _ => return None,
            };
            Some(json!({"status": {"podIPs": [{"ip": ip}]}}))
        };
        let slices = [
            slice(json!([])),
            slice(json!([
                endpoint_of("b", "10.0.0.2", json!(false)),
                endpoint_of("b", "10.9.9.9", json!(true)),
                endpoint_of("gone", "10.0.0.3", json!(true)),
                endpoint_of("local", "127.0.0.1", json!(true)),
                {"addresses": ["10.0.0.4"]},
                endpoint_of("a", "10.0.0.1", Value::Null),
            ])),
        ];
        for start in 0..12 {
            let found = |port| choose_endpoint(&slices, "ns", port, &pods, start);
            let a = |port: &str| {
                let owner = Owner::Pod("ns".to_owned(), "a".to_owned());
                Some((owner, "10.0.0.1".to_owned(), port.to_owned()))
            };
            assert_eq!((found("web"), found("")), (a("80"), a("81")));
            assert_eq!(found("none"), None);
            assert_eq!(choose_endpoint(&slices, "other", "web", &pods, start), None);
        }
        assert_eq!(choose_endpoint(&[], "ns", "", &pods, 5), None);
    }
}
