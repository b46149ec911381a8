//! NodeRestriction: limits a kubelet to writes of its own node and of objects that belong to its pods.
//!
//! The Node authorizer (`auth::nodes`) decides without the request's object; this plug-in decides with it.
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

const LEASES: &str = "kube-node-lease";

/// Refuses writes that a node may not make. Other users pass.
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
    decide(&write).map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => StatusError::forbidden(&cx.resource.name, cx.name, why),
        Refusal::Other(error) => error,
    })
}

/// Decides a write by its resource.
fn decide(write: &Write<'_>) -> Result<(), Refusal> {
    let part = write.cx.subresource;
    if write.node.is_empty() {
        let user = quote(&write.cx.user.name);
        return Err(format!("could not determine node from user {user}").into());
    }
    match (write.cx.resource.group(), write.cx.resource.plural()) {
        ("", "pods") => pods::admit(write),
        ("", "nodes") => nodes::admit(write),
        ("", "persistentvolumeclaims") => claim(write),
        ("", "serviceaccounts") if part == "token" => tokens::admit(write),
        ("coordination.k8s.io", "leases") => lease(write),
        ("storage.k8s.io", "csinodes") => csi_node(write),
        ("resource.k8s.io", "resourceslices") => slice(write),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::signing(write),
        ("certificates.k8s.io", "podcertificaterequests") => certificates::pod(write),
        _ => Ok(()),
    }
}

/// Checks that a node changes only the fields of a claim's status that a volume resize changes.
///
/// Upstream: `admitPVCStatus`.
fn claim(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.subresource != "status" {
        return Err("may only update PVC status".into());
    }
    if write.operation != Operation::Update {
        return Err(write.unexpected_operation().into());
    }
    let others = |claim: &Value| {
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
    if same_meaning(&others(write.old), &others(write.object)) {
        return Ok(());
    }
    let node = write.quoted_node();
    Err(format!(
        "node {node} is not allowed to update fields other than status.quantity and status.conditions"
    )
    .into())
}

/// Upstream: `admitLease`.
fn lease(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace").into());
    }
    if write.cx.name != write.node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

/// Upstream: `admitCSINode`.
fn csi_node(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.name != write.node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

/// Checks the node name of created and deleted slices. The authorizer has checked it for updates.
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
