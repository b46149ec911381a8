//! Admission: what upstream's default plug-ins change in new objects, or refuse.

mod certificates;
mod pods;
mod runtime_class;
mod service_accounts;
pub(super) mod topology;

use super::rows::Row;
use super::value::{self, list, set, text};
use super::writes;
use crate::api::Context;
use crate::status::StatusError;
use serde_json::{Value, json};

/// Runs the plug-ins that look at this kind, in upstream's order.
pub(super) fn admit(
    row: &Row,
    cx: &Context<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    match (row.group, row.kind, cx.subresource) {
        ("", "Pod", "") => {
            if old.is_none() {
                service_accounts::admit(cx, object)?;
                pods::priority(cx, object)?;
                let node = text(object, "spec.nodeName").to_owned();
                topology::label(cx.api, &node, object);
            }
            pods::default_tolerations(object);
            if old.is_none() {
                runtime_class::admit(cx, object)?;
            }
            Ok(())
        }
        ("", "Node", "") if old.is_none() => {
            not_ready_taint(object);
            Ok(())
        }
        ("", "PersistentVolumeClaim", "") if old.is_none() => {
            default_storage_class(cx, object);
            add_finalizer(object, "kubernetes.io/pvc-protection");
            Ok(())
        }
        ("", "PersistentVolume", "") if old.is_none() => {
            add_finalizer(object, "kubernetes.io/pv-protection");
            Ok(())
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "") if old.is_none() => {
            certificates::admit(cx, object)
        }
        _ => Ok(()),
    }
}

/// TaintNodesByCondition: a new node takes no pods until it says that it is ready.
fn not_ready_taint(node: &mut Value) {
    let key = "node.kubernetes.io/not-ready";
    let mut taints = list(node, "spec.taints").to_vec();
    if taints.iter().any(|taint| text(taint, "key") == key && text(taint, "effect") == "NoSchedule")
    {
        return;
    }
    taints.push(json!({"key": key, "effect": "NoSchedule"}));
    set(node, "spec.taints", taints);
}

/// StorageObjectInUseProtection.
fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers = list(object, "metadata.finalizers").to_vec();
    if !finalizers.iter().any(|name| name == finalizer) {
        finalizers.push(Value::from(finalizer));
        set(object, "metadata.finalizers", finalizers);
    }
}

/// DefaultStorageClass: a claim that names no class gets the newest of those marked as the default.
fn default_storage_class(cx: &Context<'_>, claim: &mut Value) {
    if value::at(claim, "spec.storageClassName").is_some() {
        return;
    }
    let is_default = |class: &Value| {
        value::object(class, "metadata.annotations")
            .and_then(|all| all.get("storageclass.kubernetes.io/is-default-class"))
            .is_some_and(|value| value == "true")
    };
    let mut classes = writes::all(cx.api, "storage.k8s.io/v1", "storageclasses", "");
    classes.retain(is_default);
    let newest = classes.iter().max_by(|a, b| {
        let key = |class: &Value| text(class, "metadata.creationTimestamp").to_owned();
        key(a).cmp(&key(b)).then_with(|| text(b, "metadata.name").cmp(text(a, "metadata.name")))
    });
    if let Some(class) = newest {
        set(claim, "spec.storageClassName", text(class, "metadata.name"));
    }
}
