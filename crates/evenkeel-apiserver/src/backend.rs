//! Resolves a Service to the address of a ready endpoint, or to its external name. The server cannot connect to cluster
//! IPs, because no kube-proxy forwards them in this process.
//!
//! Upstream: `ResolveEndpoint`, `ResolveCluster` and `RandomEndpoint` of `apiserver/pkg/util/proxy`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;

use crate::api::Api;
use crate::https::join_host_port;
use crate::loopback;

/// Returns the `HOST:PORT` of an endpoint behind a port of a Service, or of its external name. Errors have upstream's
/// message.
pub(crate) fn address(api: &Api, namespace: &str, name: &str, port: i64) -> Result<String, String> {
    let entry = api.store.get("/services", &format!("{namespace}/{name}"));
    let entry = entry.ok_or_else(|| format!("service \"{name}\" not found"))?;
    let service = entry.decode().map_err(|error| error.to_string())?;
    if text(&service, "spec.type") == "ExternalName" {
        return Ok(join_host_port(text(&service, "spec.externalName"), port));
    }
    let port_name = port_name(&service, port)
        .ok_or_else(|| format!("no service port {port} found for service \"{name}\""))?;
    let mut slices = loopback::endpoint_slices(api, namespace, name);
    let family = list(&service, "spec.ipFamilies").first().and_then(Value::as_str);
    let start = api.random(rand::Rng::random::<u64>);
    rotate(&mut slices, start);
    slices.sort_by_key(|slice| family.is_some_and(|family| text(slice, "addressType") != family));
    let found = ready_endpoint(&slices, port_name, start, &|_, _| true);
    let (_, ip, port) =
        found.ok_or_else(|| format!("no endpoints available for service \"{name}\""))?;
    Ok(join_host_port(ip, port))
}

/// Returns the name of the Service port with this number. The name may be empty. Returns `None` if the Service has no
/// such port.
pub(crate) fn port_name(service: &Value, port: i64) -> Option<&str> {
    let mut ports = list(service, "spec.ports").iter();
    ports.find(|candidate| int(candidate, "port") == Some(port)).map(|port| text(port, "name"))
}

/// Rotates a list so that it begins at a random element. `start` is any random number.
pub(crate) fn rotate<T>(items: &mut [T], start: u64) {
    let start = start.checked_rem(items.len() as u64).and_then(|start| usize::try_from(start).ok());
    items.rotate_left(start.unwrap_or_default());
}

/// Returns a ready endpoint that `is_valid` accepts, with its IP and port. The search in each slice begins at a random
/// endpoint: `start` is any random number.
pub(crate) fn ready_endpoint<'a>(
    slices: &'a [Value],
    port_name: &str,
    start: u64,
    is_valid: &dyn Fn(&Value, &str) -> bool,
) -> Option<(&'a Value, &'a str, i64)> {
    slices.iter().find_map(|slice| {
        let mut ports = list(slice, "ports").iter();
        let port =
            ports.find(|port| port.get("name").and_then(Value::as_str) == Some(port_name))?;
        let port = int(port, "port")?;
        let endpoints = list(slice, "endpoints");
        let skip = usize::try_from(start.checked_rem(endpoints.len() as u64)?).ok()?;
        let mut endpoints = endpoints.iter().cycle().skip(skip).take(endpoints.len());
        endpoints.find_map(|endpoint| {
            let ready = get(endpoint, "conditions.ready").and_then(Value::as_bool);
            let ip = list(endpoint, "addresses").first()?.as_str()?;
            // An unknown readiness counts as ready.
            let is_usable = ready != Some(false) && is_valid(endpoint, ip);
            is_usable.then_some((endpoint, ip, port))
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_start_leads_to_a_ready_endpoint_of_the_named_port() {
        let slice = |name: Value, port: u64, ips: &[(&str, Value)]| {
            let endpoints: Vec<Value> = ips
                .iter()
                .map(|(ip, ready)| json!({"addresses": [ip], "conditions": {"ready": ready}}))
                .collect();
            json!({"ports": [{"name": name, "port": port}], "endpoints": endpoints})
        };
        let slices = [
            slice(json!("a"), 1, &[]),
            slice(json!("a"), 2, &[("10.0.0.1", json!(false)), ("10.0.0.2", Value::Null)]),
            slice(json!("b"), 3, &[("10.0.0.3", json!(true)), ("10.0.0.4", json!(true))]),
            slice(Value::Null, 4, &[("10.0.0.5", json!(true))]),
        ];
        for start in 0..8 {
            let found = |name: &str| {
                ready_endpoint(&slices, name, start, &|_, _| true).map(|(_, ip, port)| (ip, port))
            };
            assert_eq!(found("a"), Some(("10.0.0.2", 2)));
            assert_eq!(found("b"), Some((["10.0.0.3", "10.0.0.4"][start as usize % 2], 3)));
            assert_eq!((found(""), found("c")), (None, None));
            let only = ready_endpoint(&slices, "b", start, &|_, ip| ip == "10.0.0.4");
            assert_eq!(only.map(|(_, ip, _)| ip), Some("10.0.0.4"));
        }
        rotate::<u8>(&mut [], 3);
    }
}
