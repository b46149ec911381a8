//! The `binding` sub-resource: gives a pod its node, once.

use super::conditions;
use crate::admission::plugins::Plugin;
use crate::admission::topology;
use crate::api::{Answer, Call};
use crate::loopback;
use crate::resource::GroupResource;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{is_empty, list, object, object_mut, set, text};
use http::StatusCode;
use serde_json::{Value, json};

/// Serves POST on a pod's `binding`.
pub(super) async fn bind(call: &Call<'_>) -> Result<Answer, StatusError> {
    let binding = &call.body;
    if text(binding, "metadata.name") != call.cx.name {
        return Err(StatusError::bad_request("name in URL does not match name in Binding object"));
    }
    let kind = text(binding, "target.kind");
    if !matches!(kind, "" | "Node") {
        let message = format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        );
        return Err(StatusError::plain_internal(message));
    }
    if text(binding, "target.name").is_empty() {
        return Err(StatusError::plain_internal("target.name: Required value"));
    }
    let now = seconds(call.cx.now);
    let edit = |pod: &mut Value| {
        assign(pod, binding, &now)?;
        if call.cx.api.plugins.has(Plugin::PodTopologyLabels) {
            topology::label(call.cx.api, text(binding, "target.name"), pod)?;
        }
        Ok(())
    };
    loopback::change(
        call.cx.api,
        call.cx.resource,
        call.cx.namespace,
        call.cx.name,
        call.cx.dry_run,
        edit,
    )
    .await?;
    Ok(created())
}

/// What bindings and evictions answer.
pub(super) fn created() -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Answer::Object(StatusCode::CREATED, status)
}

fn assign(pod: &mut Value, binding: &Value, now: &str) -> Result<(), StatusError> {
    let name = text(pod, "metadata.name").to_owned();
    let conflict = |why: String| {
        let resource = GroupResource { group: "".into(), resource: "pods/binding".into() };
        Err(StatusError::conflict(&resource, &name, why))
    };
    for field in ["uid", "resourceVersion"] {
        let path = format!("metadata.{field}");
        let (expected, own) = (text(binding, &path), text(pod, &path));
        if !expected.is_empty() && expected != own {
            let field = if field == "uid" { "UID" } else { "ResourceVersion" };
            return conflict(format!(
                "Precondition failed: {field} in precondition: {expected}, {field} in object meta: {own}"
            ));
        }
    }
    if !is_empty(pod, "metadata.deletionTimestamp") {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = text(pod, "spec.nodeName");
    if !node.is_empty() {
        return conflict(format!("pod {name} is already assigned to node {node:?}"));
    }
    if !list(pod, "spec.schedulingGates").is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    set(pod, "spec.nodeName", text(binding, "target.name"));
    evenkeel_apimachinery::value::remove(pod, "status.nominatedNodeName");
    for field in ["metadata.annotations", "metadata.labels"] {
        let Some(given) = object(binding, field).filter(|given| !given.is_empty()) else {
            continue;
        };
        if let Some(own) = object_mut(pod, field) {
            own.extend(given.clone());
        }
    }
    conditions::pod(pod, "PodScheduled", "True", "", "", now);
    Ok(())
}
