//! Checks of a connection to a pod: the user's permission, the pod's node, and the container.

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{list, text};
use http::Method;
use serde_json::Value;

use crate::api::{Api, Context};
use crate::auth::Attributes;
use crate::loopback;
use crate::resource::GroupResource;

/// Returns the resource that error messages name, also for the node of a pod, as upstream does.
fn pods_resource() -> GroupResource {
    GroupResource { group: "".into(), resource: "pods".into() }
}

/// Refuses a user without the permission `create` on the subresource. A WebSocket connection begins with a GET, for
/// which the authorization stage has only checked `get`.
///
/// Upstream: `ensureAuthorizedForVerb`, of the feature `AuthorizePodWebsocketUpgradeCreatePermission`.
pub(super) fn ensure_authorized_to_create(
    method: &Method,
    cx: &Context<'_>,
) -> Result<(), StatusError> {
    if *method == Method::POST {
        return Ok(());
    }
    let attributes = Attributes {
        verb: "create",
        group: &cx.requested.gvk.group,
        version: &cx.requested.gvk.version,
        resource: cx.resource.plural(),
        subresource: cx.subresource,
        namespace: cx.namespace,
        name: cx.name,
        ..Attributes::default()
    };
    if cx.allows(&attributes) {
        return Ok(());
    }
    Err(StatusError::forbidden(&pods_resource(), cx.name, ""))
}

/// Returns an error unless the pod is assigned to a node that exists.
///
/// Upstream: `streamLocation`, `PortForwardLocation`.
pub(super) fn ensure_on_node(api: &Api, pod: &Value) -> Result<(), StatusError> {
    let node = text(pod, "spec.nodeName");
    if node.is_empty() {
        let name = text(pod, "metadata.name");
        let why = format!("pod {name} does not have a host assigned");
        return Err(StatusError::bad_request(why));
    }
    ensure_node_exists(api, node)
}

/// Returns an error unless a pod's node exists.
pub(super) fn ensure_node_exists(api: &Api, node: &str) -> Result<(), StatusError> {
    match loopback::get(api, "v1", "nodes", "", node)? {
        Some(_) => Ok(()),
        None => Err(StatusError::not_found(&pods_resource(), node)),
    }
}

/// Returns the requested container, or the only one if the request names none.
///
/// Upstream: `validateContainer`.
pub(super) fn choose_container(pod: &Value, requested: &str) -> Result<String, StatusError> {
    let names: Vec<&str> = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"]
        .iter()
        .flat_map(|path| list(pod, path))
        .map(|container| text(container, "name"))
        .collect();
    let name = text(pod, "metadata.name");
    match requested {
        "" if list(pod, "spec.containers").len() > 1 => Err(StatusError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))),
        "" => Ok(names.first().copied().unwrap_or_default().to_owned()),
        _ if names.contains(&requested) => Ok(requested.to_owned()),
        _ => Err(StatusError::bad_request(format!(
            "container {requested} is not valid for pod {name}"
        ))),
    }
}
