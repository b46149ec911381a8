//! Subresource `binding`: assigns a node to a pod that has none.

use super::conditions;
use crate::admission::plugins::Plugin;
use crate::admission::topology;
use crate::api::{Answer, Call, Context};
use crate::auth::aggregate;
use crate::loopback;
use crate::resource::GroupResource;
use crate::verbs::precondition::Precondition;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{is_empty, list, object, object_mut, set, text};
use evenkeel_kinds::names::dns_subdomain;
use http::StatusCode;
use serde_json::{Value, json};

/// Serves POST on a pod's `binding`.
pub(super) async fn bind(call: &Call<'_>) -> Result<Answer, StatusError> {
    let binding = &call.body;
    if text(binding, "metadata.name") != call.cx.name {
        return Err(StatusError::bad_request("name in URL does not match name in Binding object"));
    }
    if let Some(errors) = aggregate(validate_target(binding).iter().map(ToString::to_string)) {
        return Err(StatusError::plain_internal(errors));
    }
    if call.cx.name.is_empty() {
        return Err(StatusError::bad_request("Name parameter required."));
    }
    let now = seconds(call.cx.now);
    let edit = |pod: &mut Value| {
        check_preconditions(&call.cx, binding, pod)?;
        assign_node(pod, binding, &now)?;
        if call.cx.api.plugins.has(Plugin::PodTopologyLabels) {
            topology::label(call.cx.api, text(binding, "target.name"), pod);
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
    Ok(created_answer())
}

/// Returns the response to a successful binding or eviction: a Status with code 201.
pub(super) fn created_answer() -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Answer::Object(StatusCode::CREATED, status)
}

/// Returns the errors of a binding's target.
///
/// Upstream: `ValidatePodBinding`.
fn validate_target(binding: &Value) -> Vec<FieldError> {
    let (kind, name) = (text(binding, "target.kind"), text(binding, "target.name"));
    let is_node = matches!(kind, "" | "Node");
    let mut errors = Vec::new();
    if !is_node {
        errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
    }
    if name.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    } else if is_node {
        let reasons = dns_subdomain(name, false).into_iter();
        errors.extend(reasons.map(|why| FieldError::invalid("target.name", name, why)));
    }
    errors
}

/// Refuses a binding with another UID or resource version than the pod's. Both are optional in a binding.
fn check_preconditions(cx: &Context<'_>, binding: &Value, pod: &Value) -> Result<(), StatusError> {
    let precondition = Precondition {
        resource: cx.resource,
        requested: &cx.resource.name,
        namespace: cx.namespace,
        name: cx.name,
        dry_run: cx.dry_run,
    };
    for (field, path) in [("UID", "metadata.uid"), ("ResourceVersion", "metadata.resourceVersion")]
    {
        let (expected, found) = (text(binding, path), text(pod, path));
        if !expected.is_empty() && expected != found {
            return Err(precondition.failed(field, expected, found));
        }
    }
    Ok(())
}

/// Sets the pod's node, and adds the binding's labels and annotations to the pod.
fn assign_node(pod: &mut Value, binding: &Value, now: &str) -> Result<(), StatusError> {
    let name = text(pod, "metadata.name").to_owned();
    let conflict = |why: String| {
        let resource = GroupResource { group: "".into(), resource: "pods/binding".into() };
        Err(StatusError::conflict(&resource, &name, why))
    };
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
        let added = match object(binding, field) {
            Some(added) if !added.is_empty() => added,
            _ => continue,
        };
        if let Some(existing) = object_mut(pod, field) {
            existing.extend(added.clone());
        }
    }
    conditions::set_pod_condition(pod, "PodScheduled", "True", "", "", now);
    Ok(())
}
