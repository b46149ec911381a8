//! NodeRestriction: a kubelet writes nothing but its own node and what belongs to the node's pods.
//!
//! The Node authorizer (`auth::nodes`) lets through what only the object tells; this plugin looks at the object.
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

use serde_json::Value;

use crate::api::Context;
use crate::auth::node_of;
use crate::loopback;
use crate::policy::Operation;
use crate::resource::GroupResource;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::value::{same_meaning, set, text};

const LEASES: &str = "kube-node-lease";

/// Why the plugin refuses.
enum Refusal {
    /// 403 with this reason.
    Forbidden(String),
    /// An answer of its own.
    Other(StatusError),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Self {
        Self::Forbidden(why.into())
    }
}

/// A write by a node.
struct Write<'a> {
    cx: &'a Context<'a>,
    node: &'a str,
    operation: Operation,
    /// The object as it is to be; null when it goes.
    object: &'a Value,
    /// As it was; null when it is new.
    old: &'a Value,
}

/// Refuses what a node may not write. Users who are no nodes pass.
///
/// Upstream: `Plugin.Admit`
pub(crate) fn admit(
    cx: &Context<'_>,
    operation: Operation,
    object: &Value,
    old: &Value,
) -> Result<(), StatusError> {
    let Some(node) = node_of(cx.user) else { return Ok(()) };
    let write = Write { cx, node, operation, object, old };
    write.admit().map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => StatusError::forbidden(&cx.resource.name, cx.name, why),
        Refusal::Other(error) => error,
    })
}

impl Write<'_> {
    fn admit(&self) -> Result<(), Refusal> {
        let part = self.cx.subresource;
        if self.node.is_empty() {
            let user = quote(&self.cx.user.name);
            return Err(format!("could not determine node from user {user}").into());
        }
        match (self.cx.resource.group(), self.cx.resource.plural()) {
            ("", "pods") => pods::admit(self),
            ("", "nodes") => nodes::admit(self),
            ("", "persistentvolumeclaims") => claim(self),
            ("", "serviceaccounts") if part == "token" => tokens::admit(self),
            ("coordination.k8s.io", "leases") => lease(self),
            ("storage.k8s.io", "csinodes") => csi_node(self),
            ("resource.k8s.io", "resourceslices") => slice(self),
            ("certificates.k8s.io", "certificatesigningrequests") => certificates::signing(self),
            ("certificates.k8s.io", "podcertificaterequests") => certificates::pod(self),
            _ => Ok(()),
        }
    }

    /// The node's name in quotes.
    fn quoted(&self) -> String {
        quote(self.node)
    }

    /// `unexpected operation "UPDATE"`.
    fn unexpected(&self) -> String {
        format!("unexpected operation {}", quote(self.operation.as_str()))
    }

    /// A stored object of the core group; refused as upstream's listers word it where it is not there.
    fn stored(
        &self,
        plural: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Refusal> {
        let found = loopback::one(self.cx.api, "v1", plural, namespace, name);
        found.map_err(Refusal::Other)?.ok_or_else(|| {
            let kind = GroupResource { group: "".into(), resource: kind.into() };
            Refusal::Other(StatusError::not_found(&kind, name))
        })
    }

    /// A stored pod of the request's namespace.
    fn pod(&self, name: &str) -> Result<Value, Refusal> {
        self.stored("pods", "pod", self.cx.namespace, name)
    }
}

/// A node changes of a claim's status what a resize of its volume changes.
///
/// Upstream: `admitPVCStatus`
fn claim(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.subresource != "status" {
        return Err("may only update PVC status".into());
    }
    if write.operation != Operation::Update {
        return Err(write.unexpected().into());
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
    let node = write.quoted();
    Err(format!(
        "node {node} is not allowed to update fields other than status.quantity and status.conditions"
    )
    .into())
}

/// Upstream: `admitLease`
fn lease(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace").into());
    }
    if write.cx.name != write.node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

/// Upstream: `admitCSINode`
fn csi_node(write: &Write<'_>) -> Result<(), Refusal> {
    if write.cx.name != write.node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

/// The authorizer compares the stored slice; what is new, and each of a collection, is compared here.
///
/// Upstream: `admitResourceSlice`
fn slice(write: &Write<'_>) -> Result<(), Refusal> {
    let (slice, verb) = match write.operation {
        Operation::Create => (write.object, "create"),
        Operation::Delete => (write.old, "delete"),
        Operation::Update => return Ok(()),
    };
    if text(slice, "spec.nodeName") != write.node {
        return Err(format!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        )
        .into());
    }
    Ok(())
}
