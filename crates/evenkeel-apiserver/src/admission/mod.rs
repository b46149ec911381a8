//! Admission: what upstream's default plug-ins change in new objects, or refuse.

pub(crate) mod attributes;
mod certificates;
mod limit_range;
mod mutated;
pub(crate) mod noderestriction;
mod objects;
mod owner_references;
pub(crate) mod plugins;
mod pod_security;
mod pods;
pub(crate) mod policy;
pub(crate) mod quota;
mod resize;
mod runtime_class;
mod service_accounts;
pub(crate) mod topology;
pub(crate) mod webhook;

use crate::api::Context;
use crate::loopback;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{self, list, set, text};
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Runs the plug-ins that look at this kind, in upstream's order.
pub(crate) fn admit(
    cx: &Context<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    if cx.resource.custom.is_some() {
        return Ok(());
    }
    match (cx.resource.group(), cx.resource.kind(), cx.subresource) {
        ("", "Pod", "") => {
            if let Some(old) = old {
                pods::preserve_priority(object, old);
            } else {
                limit_range::complete(cx, object)?;
                set(object, "status.qosClass", evenkeel_kinds::pod::qos_class(object));
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
        ("", "Pod", "resize") => limit_range::complete(cx, object),
        ("", "Pod", "ephemeralcontainers") => service_accounts::admit_ephemeral(cx, object),
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
        ("storage.k8s.io", "VolumeAttributesClass", "") if old.is_none() => {
            add_finalizer(object, "kubernetes.io/vac-protection");
            Ok(())
        }
        ("networking.k8s.io", "Ingress", "") if old.is_none() => {
            default_ingress_class(cx, object);
            Ok(())
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "") if old.is_none() => {
            certificates::admit(cx, object)
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "approval" | "status") => {
            old.map_or(Ok(()), |old| certificates::may_decide(cx, object, old))
        }
        ("certificates.k8s.io", "PodCertificateRequest", "status") => {
            old.map_or(Ok(()), |old| certificates::may_issue(cx, object, old))
        }
        ("certificates.k8s.io", "ClusterTrustBundle", "") => {
            certificates::may_attest(cx, object, old)
        }
        _ => Ok(()),
    }
}

/// What looks at an object after it was found valid: it may refuse, and says how it changes
/// what is used of quotas.
pub(crate) fn accept(
    cx: &Context<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<quota::QuotaUpdates, StatusError> {
    if cx.api.plugins.owner_references {
        owner_references::validate(cx, object, old)?;
    }
    if cx.resource.group().is_empty() {
        limit_range::check(cx, object, old)?;
        if cx.resource.plural() == "pods" {
            pod_security::admit(cx, object, old)?;
        }
        resize::check(cx, object, old)?;
    }
    quota::evaluate(cx, object, old)
}

/// Returns what plug-ins warn of in an object that is admitted.
pub(crate) fn warnings(cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    if cx.resource.custom.is_some() {
        return Vec::new();
    }
    pod_security::warnings(cx, object, old)
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

/// DefaultStorageClass: a claim that names no class gets the default one.
fn default_storage_class(cx: &Context<'_>, claim: &mut Value) {
    if value::get(claim, "spec.storageClassName").is_some() {
        return;
    }
    let classes = loopback::all(cx.api, "storage.k8s.io/v1", "storageclasses", "");
    if let Some(class) = default_of(&classes, "storageclass.kubernetes.io/is-default-class") {
        set(claim, "spec.storageClassName", class);
    }
}

/// DefaultIngressClass: an Ingress that names no class, not even in the annotation of old, gets the default one.
fn default_ingress_class(cx: &Context<'_>, ingress: &mut Value) {
    let annotated = value::object(ingress, "metadata.annotations")
        .is_some_and(|all| all.contains_key("kubernetes.io/ingress.class"));
    if annotated || value::get(ingress, "spec.ingressClassName").is_some() {
        return;
    }
    let classes = loopback::all(cx.api, "networking.k8s.io/v1", "ingressclasses", "");
    if let Some(class) = default_of(&classes, "ingressclass.kubernetes.io/is-default-class") {
        set(ingress, "spec.ingressClassName", class);
    }
}

/// The name of the newest class that is marked as the default, of equally old ones the first by name.
fn default_of<'a>(classes: &'a [Value], mark: &str) -> Option<&'a str> {
    let marked = classes.iter().filter(|class| {
        value::object(class, "metadata.annotations")
            .and_then(|all| all.get(mark))
            .is_some_and(|value| value == "true")
    });
    let rank = |class: &&Value| {
        (
            text(class, "metadata.creationTimestamp").to_owned(),
            Reverse(text(class, "metadata.name").to_owned()),
        )
    };
    marked.max_by_key(rank).map(|class| text(class, "metadata.name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_default_is_taken_and_of_equals_the_first_by_name() {
        let class = |name: &str, made: &str, mark: &str| json!({"metadata": {"name": name, "creationTimestamp": made, "annotations": {"m": mark}}});
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let table: [(&[Value], Option<&str>); 5] = [
            (&[], None),
            (&[class("a", early, "false")], None),
            (&[class("a", early, "true"), class("b", late, "true")], Some("b")),
            (&[class("b", late, "true"), class("a", late, "true")], Some("a")),
            (&[class("a", early, "true"), class("b", late, "false")], Some("a")),
        ];
        for (classes, expected) in table {
            assert_eq!(default_of(classes, "m"), expected, "{classes:?}");
        }
    }
}
