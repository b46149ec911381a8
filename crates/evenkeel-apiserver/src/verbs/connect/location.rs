//! Where a connection to a pod leads, and who may make it.

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{list, text};
use http::Method;
use serde_json::Value;

use crate::api::{Api, Context};
use crate::auth::{Attributes, FieldRequirements};
use crate::loopback;
use crate::resource::GroupResource;

fn pods() -> GroupResource {
    GroupResource { group: "".into(), resource: "pods".into() }
}

/// Refuses who may not create the sub-resource: WebSocket comes with GET, for which `get` would be enough.
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
        group: cx.request_group,
        resource: cx.resource.plural(),
        subresource: cx.subresource,
        namespace: cx.namespace,
        name: cx.name,
        path: None,
        field_selector: FieldRequirements::default(),
    };
    if cx.allows(&attributes) {
        return Ok(());
    }
    Err(StatusError::forbidden(&pods(), cx.name, ""))
}

/// Fails unless the pod has a node, and there is that node.
///
/// Upstream: `streamLocation`, `PortForwardLocation`.
pub(super) fn ensure_on_node(api: &Api, pod: &Value) -> Result<(), StatusError> {
    let node = text(pod, "spec.nodeName");
    if node.is_empty() {
        let name = text(pod, "metadata.name");
        let why = format!("pod {name} does not have a host assigned");
        return Err(StatusError::bad_request(why));
    }
    find_node(api, node)
}

/// Fails unless there is the node of a pod.
pub(super) fn find_node(api: &Api, node: &str) -> Result<(), StatusError> {
    match loopback::get(api, "v1", "nodes", "", node)? {
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
