//! Sub-resources that lead to a kubelet or a process: nodes here are simulated, so there is nothing behind them but
//! the refusals of upstream.

use crate::api::{Answer, Api, Call};
use crate::loopback;
use crate::request::Query;
use crate::resource::GroupResource;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{list, text};
use serde_json::Value;

fn pods() -> GroupResource {
    GroupResource { group: "".into(), resource: "pods".into() }
}

/// Serves `exec`, `attach`, `portforward` and `proxy` of a pod.
pub(super) fn pod(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    let name = if cx.subresource == "proxy" { proxied(cx.name, "pod")? } else { cx.name };
    let Some(pod) = cx.api.read(cx.resource, cx.namespace, name)? else {
        return Err(StatusError::not_found(&cx.resource.name, name));
    };
    if cx.subresource == "proxy" {
        return Err(StatusError::bad_request("address not allowed"));
    }
    let container = container(&pod, Query(call.query.to_vec()).get("container"))?;
    let node = text(&pod, "spec.nodeName");
    if node.is_empty() {
        return Err(StatusError::bad_request(format!(
            "pod {} does not have a host assigned",
            cx.name
        )));
    }
    find_node(cx.api, node)?;
    Err(StatusError::unavailable(format!(
        "container {container} runs on a simulated node: there is no process in it"
    )))
}

/// Fails unless there is the node of a pod.
pub(super) fn find_node(api: &Api, node: &str) -> Result<(), StatusError> {
    match loopback::one(api, "v1", "nodes", "", node)? {
        Some(_) => Ok(()),
        None => Err(StatusError::not_found(&pods(), node)),
    }
}

/// The container that is meant: the one that is named, or the only one.
///
/// Upstream: `validateContainer`.
pub(super) fn container(pod: &Value, asked: &str) -> Result<String, StatusError> {
    let names: Vec<&str> = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"]
        .iter()
        .flat_map(|path| list(pod, path))
        .map(|container| text(container, "name"))
        .collect();
    let name = text(pod, "metadata.name");
    match asked {
        "" if list(pod, "spec.containers").len() > 1 => Err(StatusError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))),
        "" => Ok(names.first().copied().unwrap_or_default().to_owned()),
        asked if names.contains(&asked) => Ok(asked.to_owned()),
        asked => {
            Err(StatusError::bad_request(format!("container {asked} is not valid for pod {name}")))
        }
    }
}

/// Serves `proxy` of a node.
pub(super) fn node(call: &Call<'_>) -> Result<Answer, StatusError> {
    let cx = &call.cx;
    let name = proxied(cx.name, "node")?;
    match cx.api.read(cx.resource, "", name)? {
        Some(_) => Err(StatusError::unavailable("the node is simulated: it serves nothing")),
        None => Err(StatusError::not_found(&cx.resource.name, name)),
    }
}

/// Serves `proxy` of a Service.
pub(super) fn service(call: &Call<'_>) -> Result<Answer, StatusError> {
    let name = proxied(call.cx.name, "service")?;
    Err(StatusError::unavailable(format!("no endpoints available for service {}", quote(name))))
}

/// The name in what a proxy is asked for: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
///
/// Upstream: `SplitSchemeNamePort`.
fn proxied<'a>(id: &'a str, kind: &str) -> Result<&'a str, StatusError> {
    let parts: Vec<&str> = id.split(':').collect();
    match *parts.as_slice() {
        [name] | [name, _] | ["" | "http" | "https", name, _] if !name.is_empty() => Ok(name),
        _ => Err(StatusError::bad_request(format!("invalid {kind} request {}", quote(id)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxied_name_may_have_a_scheme_and_a_port() {
        for (id, name) in [
            ("a", Some("a")),
            ("a:", Some("a")),
            ("a:80", Some("a")),
            (":a:http", Some("a")),
            ("http:a:80", Some("a")),
            ("https:a:", Some("a")),
            ("", None),
            (":", None),
            (":80", None),
            ("https::", None),
            ("ftp:a:21", None),
            ("http:a:80:80", None),
            ("[::1]:80", None),
        ] {
            let refusal = StatusError::bad_request(format!("invalid pod request {id:?}"));
            assert_eq!(proxied(id, "pod"), name.ok_or(refusal), "{id}");
        }
    }
}
