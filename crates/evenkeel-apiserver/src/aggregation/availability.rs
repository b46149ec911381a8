//! Decision about the availability of an extension API server.
//!
//! | upstream | where |
//! |---|---|
//! | Conditions that follow from the Service and its EndpointSlices | `decide` |
//! | Five requests for the discovery document; one must succeed | `condition_of_probe`, `probe.rs` |
//! | `hasAvailableEndpoint` | `has_available_endpoint` |
//! | Checks again after 30 s, and after failures with backoff | `schedule.rs` |
//!
//! Upstream: `AvailableConditionController.sync`.

use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

use super::condition::Condition;
use super::remotes::ServiceReference;
use crate::backend;

/// Service of an APIService, with its EndpointSlices.
pub(super) struct Observed {
    /// Stored Service; `None` if it does not exist.
    pub(super) service: Option<Value>,
    pub(super) slices: Vec<Value>,
}

/// Returns the condition that follows from the Service and its EndpointSlices alone; `None` if the extension API
/// server must be probed.
pub(super) fn decide(reference: &ServiceReference, observed: &Observed) -> Option<Condition> {
    let ServiceReference { namespace, name, port } = reference;
    let service_text = format!("service/{name} in {}", quote(namespace));
    let unavailable = |reason, message| Some(Condition::unavailable(reason, message));
    let Some(service) = &observed.service else {
        return unavailable("ServiceNotFound", format!("{service_text} is not present"));
    };
    // Only a Service of type ClusterIP is known to listen on the port itself.
    if text(service, "spec.type") != "ClusterIP" {
        return None;
    }
    let Some(port_name) = backend::port_name(service, *port) else {
        return unavailable(
            "ServicePortError",
            format!("{service_text} is not listening on port {port}"),
        );
    };
    if observed.slices.is_empty() {
        let message = format!("cannot find endpointslices for {service_text}");
        return unavailable("EndpointsNotFound", message);
    }
    if !observed.slices.iter().any(|slice| has_available_endpoint(slice, port_name)) {
        let port_name = quote(port_name);
        let message = format!(
            "endpointslices for {service_text} have no addresses with port name {port_name}"
        );
        return unavailable("MissingEndpoints", message);
    }
    None
}

/// Returns whether a slice has a ready endpoint and a port with this name. An endpoint without the condition `ready`
/// counts as ready.
fn has_available_endpoint(slice: &Value, port_name: &str) -> bool {
    let is_ready =
        |endpoint: &Value| get(endpoint, "conditions.ready") != Some(&Value::Bool(false));
    let is_named = |port: &Value| {
        get(port, "name").and_then(Value::as_str) == Some(port_name) && get(port, "port").is_some()
    };
    list(slice, "endpoints").iter().any(is_ready) && list(slice, "ports").iter().any(is_named)
}

/// Returns the condition for the result of a probe. An error is the message of the last failed attempt.
pub(super) fn condition_of_probe(result: Result<(), String>) -> Condition {
    match result {
        Ok(()) => Condition::passed(),
        Err(message) => Condition::unavailable("FailedDiscoveryCheck", message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_service_and_its_slices_determine_the_condition() {
        let reference =
            ServiceReference { namespace: "ns".to_owned(), name: "s".to_owned(), port: 443 };
        let service = |kind: &str, port: u64, name: &str| json!({"spec": {"type": kind, "ports": [{"port": 80, "name": "web"}, {"port": port, "name": name}]}});
        let slice = |name: Value, endpoints: Value| json!({"ports": [{"name": name, "port": 8443}], "endpoints": endpoints});
        let ready = json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]);
        let unready = json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false}}]);
        let unknown = json!([{"addresses": ["10.0.0.1"]}]);
        let cluster_ip = Some(service("ClusterIP", 443, "https"));
        let missing = (
            "MissingEndpoints",
            "endpointslices for service/s in \"ns\" have no addresses with port name \"https\"",
        );
        for (service, slices, expected) in [
            (None, vec![], Some(("ServiceNotFound", "service/s in \"ns\" is not present"))),
            (
                Some(service("ClusterIP", 444, "https")),
                vec![],
                Some(("ServicePortError", "service/s in \"ns\" is not listening on port 443")),
            ),
            (
                cluster_ip.clone(),
                vec![],
                Some(("EndpointsNotFound", "cannot find endpointslices for service/s in \"ns\"")),
            ),
            (cluster_ip.clone(), vec![slice(json!("https"), json!([]))], Some(missing)),
            (cluster_ip.clone(), vec![slice(json!("https"), unready.clone())], Some(missing)),
            (cluster_ip.clone(), vec![slice(json!("http"), ready.clone())], Some(missing)),
            (cluster_ip.clone(), vec![slice(Value::Null, ready.clone())], Some(missing)),
            (
                cluster_ip.clone(),
                vec![slice(json!("https"), unready), slice(json!("https"), ready)],
                None,
            ),
            (cluster_ip, vec![slice(json!("https"), unknown)], None),
            (Some(service("ExternalName", 1, "")), vec![], None),
            (Some(service("NodePort", 1, "")), vec![], None),
        ] {
            let shown = format!("{service:?} {slices:?}");
            let expected = expected
                .map(|(reason, message)| Condition::unavailable(reason, message.to_owned()));
            assert_eq!(decide(&reference, &Observed { service, slices }), expected, "{shown}");
        }
        let failed = Condition::unavailable("FailedDiscoveryCheck", "why".to_owned());
        assert_eq!(condition_of_probe(Err("why".to_owned())), failed);
        assert_eq!(condition_of_probe(Ok(())), Condition::passed());
    }
}
