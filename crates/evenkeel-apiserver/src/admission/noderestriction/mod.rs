//! Admission plug-in NodeRestriction: limits a kubelet to writes of its own node and of objects that belong to its
//! pods.
//!
//! The Node authorizer (`auth::nodes`) cannot read the object in a request; this plug-in checks the object.
//!
//! | Resource | Function |
//! |---|---|
//! | pods, their status and their evictions | `pods` |
//! | nodes | `nodes` |
//! | persistentvolumeclaims/status | [`claim`] |
//! | serviceaccounts/token | `tokens` |
//! | leases, csinodes, resourceslices | [`lease`], [`csi_node`], [`slice()`] |
//! | certificatesigningrequests, podcertificaterequests | `certificates` |

mod certificates;
mod nodes;
mod pods;
mod tokens;
mod write;

use serde_json::Value;

use super::plugins::Plugin;
use crate::admission::attributes::Operation;
use crate::api::Context;
use crate::auth::node_of;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{same_meaning, set, text};

use write::{Refusal, Write};

/// Namespace of nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Refuses writes that a node may not make. The writes of other users are not checked.
///
/// Upstream: `Plugin.Admit`.
pub(crate) fn admit(
    cx: &Context<'_>,
    operation: Operation,
    object: &Value,
    old: &Value,
) -> Result<(), StatusError> {
    if !cx.api.plugins.has(Plugin::NodeRestriction) {
        return Ok(());
    }
    let Some(node) = node_of(cx.user) else { return Ok(()) };
    let write = Write { cx, node, operation, object, old };
    check(&write).map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => StatusError::forbidden(&cx.resource.name, cx.name, why),
        Refusal::Other(error) => error,
    })
}

/// Checks a write by the rules for its resource.
fn check(write: &Write<'_>) -> Result<(), Refusal> {
    if write.node.is_empty() {
        let user = quote(&write.cx.user.name);
        return Err(format!("could not determine node from user {user}").into());
    }
    match (write.cx.resource.group(), write.cx.resource.plural()) {
        ("", "pods") => pods::admit(write),
        ("", "nodes") => nodes::admit(write),
        ("", "persistentvolumeclaims") => claim(write),
        ("", "serviceaccounts") if write.cx.subresource == "token" => tokens::admit(write),
        ("coordination.k8s.io", "leases") => lease(write),
        ("storage.k8s.io", "csinodes") => csi_node(write),
        ("resource.k8s.io", "resourceslices") => slice(write),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::signing(write),
        ("certificates.k8s.io", "podcertificaterequests") => certificates::pod(write),
        _ => Ok(()),
    }
}

/// Checks that a node only changes the fields of a claim's status that a resize of the volume changes.
///
/// Upstream: `admitPVCStatus`.
fn claim(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.subresource != "status" {
        return Err("may only update PVC status".into());
    }
    if write.operation != Operation::Update {
        return Err(write.unexpected_operation().into());
    }
    let without_resize_fields = |claim: &Value| {
        let mut claim = claim.clone();
        for field in [
            "metadata.resourceVersion",
            "metadata.managedFields",
            "status.capacity",
            "status.conditions",
            "status.allocatedResourceStatuses",
            "status.allocatedResources",
        ] {
            set(&mut claim, field, Value::Null);
        }
        claim
    };
    if same_meaning(&without_resize_fields(write.old), &without_resize_fields(write.object)) {
        return Ok(());
    }
    let node = write.quoted_node();
    Err(format!(
        "node {node} is not allowed to update fields other than status.quantity and status.conditions"
    )
    .into())
}

/// Checks that a node writes only its own lease.
///
/// Upstream: `admitLease`.
fn lease(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.namespace != LEASE_NAMESPACE {
        return Err(
            format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace").into()
        );
    }
    if write.cx.name != write.node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

/// Checks that a node writes only its own CSINode.
///
/// Upstream: `admitCSINode`.
fn csi_node(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.name != write.node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

/// Checks the node name of created and deleted slices. For updates, the Node authorizer has checked it.
///
/// Upstream: `admitResourceSlice`.
fn slice(write: &Write<'_>) -> Result<(), Refusal> {
    let (slice, verb) = match write.operation {
        Operation::Create => (write.object, "create"),
        Operation::Delete => (write.old, "delete"),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    if text(slice, "spec.nodeName") != write.node {
        return Err(format!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        )
        .into());
    }
    Ok(())
}
