//! Admission: upstream's default plug-ins, which change or refuse objects, and the policies and webhooks that users
//! configure.

pub(crate) mod attributes;
mod certificates;
mod limit_range;
mod mutated;
mod mutating;
pub(crate) mod noderestriction;
mod objects;
mod owner_references;
pub(crate) mod plugins;
mod pod_resize;
mod pod_security;
mod pods;
pub(crate) mod policy;
pub(crate) mod quota;
mod reinvocation;
mod resize;
mod runtime_class;
mod service_accounts;
pub(crate) mod topology;
mod versioned;
pub(crate) mod webhook;

use self::attributes::Operation;
use crate::api::Context;
use crate::loopback;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{self, list, set, text};
pub(crate) use mutating::Mutating;
use plugins::Plugin;
pub use plugins::admission_plugins;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Operation that a plug-in of the mutating phase handles, with the plug-in's function.
enum Step {
    /// Creation of an object. NodeRestriction checks updates and deletions where the object is as the client sent it.
    Create(fn(&Context<'_>, &mut Value) -> Result<(), StatusError>),
    /// Update of an object. The last argument is the stored object.
    Update(fn(&Context<'_>, &mut Value, &Value) -> Result<(), StatusError>),
}

/// Pattern of the group, kind and subresource that a plug-in handles. `*` matches any.
type Target = [&'static str; 3];

/// Pattern of a plug-in that handles all objects.
const EVERYTHING: Target = ["*", "*", "*"];

/// Plug-ins of the mutating phase in upstream's order, each with the objects that it handles.
///
/// Upstream: `AllOrderedPlugins`.
const STEPS: [(Plugin, Target, Step); 16] = {
    use Plugin::*;
    use Step::*;
    [
        (LimitRanger, ["", "Pod", ""], Create(limit_range::set_defaults)),
        (
            LimitRanger,
            ["", "Pod", "resize"],
            Update(|cx, pod, _| limit_range::set_defaults(cx, pod)),
        ),
        (ServiceAccount, ["", "Pod", ""], Create(service_accounts::admit)),
        (
            NodeRestriction,
            EVERYTHING,
            Create(|cx, object| {
                noderestriction::admit(cx, Operation::Create, object, &Value::Null)
            }),
        ),
        (TaintNodesByCondition, ["", "Node", ""], Create(not_ready_taint)),
        (Priority, ["", "Pod", ""], Create(pods::priority)),
        (Priority, ["", "Pod", ""], Update(|_, pod, old| pods::preserve_priority(pod, old))),
        (
            DefaultTolerationSeconds,
            ["", "Pod", ""],
            Create(|_, pod| pods::default_tolerations(pod)),
        ),
        (
            DefaultTolerationSeconds,
            ["", "Pod", ""],
            Update(|_, pod, _| pods::default_tolerations(pod)),
        ),
        (DefaultStorageClass, ["", "PersistentVolumeClaim", ""], Create(default_storage_class)),
        (
            StorageObjectInUseProtection,
            ["", "PersistentVolumeClaim", ""],
            Create(|_, claim| add_finalizer(claim, "kubernetes.io/pvc-protection")),
        ),
        (
            StorageObjectInUseProtection,
            ["", "PersistentVolume", ""],
            Create(|_, volume| add_finalizer(volume, "kubernetes.io/pv-protection")),
        ),
        (
            StorageObjectInUseProtection,
            ["storage.k8s.io", "VolumeAttributesClass", ""],
            Create(|_, class| add_finalizer(class, "kubernetes.io/vac-protection")),
        ),
        (RuntimeClass, ["", "Pod", ""], Create(runtime_class::admit)),
        (DefaultIngressClass, ["networking.k8s.io", "Ingress", ""], Create(default_ingress_class)),
        (PodTopologyLabels, ["", "Pod", ""], Create(topology::admit)),
    ]
};

/// Operation that a validating plug-in handles, with the plug-in's function.
enum Check {
    /// Creation of an object.
    Create(fn(&Context<'_>, &Value) -> Result<(), StatusError>),
    /// Update of an object. The last argument is the stored object.
    Update(fn(&Context<'_>, &Value, &Value) -> Result<(), StatusError>),
    /// Creation or update. The last argument is the stored object of an update.
    Write(fn(&Context<'_>, &Value, Option<&Value>) -> Result<(), StatusError>),
}

/// Validating plug-ins that precede policies and webhooks, in upstream's order, each with the objects that it handles.
///
/// Upstream: `AllOrderedPlugins`.
const CHECKS: [(Plugin, Target, Check); 14] = {
    use Check::*;
    use Plugin::*;
    const CERTIFICATES: &str = "certificates.k8s.io";
    const SIGNING: &str = "CertificateSigningRequest";
    [
        (LimitRanger, ["", "*", "*"], Write(limit_range::check)),
        (
            ServiceAccount,
            ["", "Pod", "ephemeralcontainers"],
            Update(|cx, pod, _| service_accounts::check_ephemeral(cx, pod)),
        ),
        (PodSecurity, ["", "Pod", "*"], Write(pod_security::admit)),
        (PodSecurity, ["", "Namespace", ""], Write(pod_security::admit_namespace)),
        (Priority, ["scheduling.k8s.io", "PriorityClass", ""], Write(pods::check_default_class)),
        (OwnerReferencesPermissionEnforcement, EVERYTHING, Write(owner_references::validate)),
        (PersistentVolumeClaimResize, ["", "PersistentVolumeClaim", ""], Write(resize::check)),
        (RuntimeClass, ["", "Pod", ""], Create(runtime_class::check)),
        (
            CertificateApproval,
            [CERTIFICATES, SIGNING, "approval"],
            Update(certificates::may_decide),
        ),
        (CertificateSigning, [CERTIFICATES, SIGNING, "status"], Update(certificates::may_decide)),
        (
            CertificateSigning,
            [CERTIFICATES, "PodCertificateRequest", "status"],
            Update(certificates::may_issue),
        ),
        (
            ClusterTrustBundleAttest,
            [CERTIFICATES, "ClusterTrustBundle", ""],
            Write(certificates::may_attest),
        ),
        (CertificateSubjectRestriction, [CERTIFICATES, SIGNING, ""], Create(certificates::admit)),
        (PodResizeValidator, ["", "Pod", "resize"], Update(pod_resize::check)),
    ]
};

/// Returns whether a plug-in is enabled and handles the object of a request. A custom resource may have the kind of a
/// built-in one, so that only a plug-in for all objects handles it.
fn runs(cx: &Context<'_>, plugin: Plugin, target: &Target) -> bool {
    let names = [cx.resource.group(), cx.resource.kind(), cx.subresource];
    let matches =
        target.iter().zip(names).all(|(pattern, name)| *pattern == "*" || *pattern == name);
    let may_match = cx.resource.custom.is_none() || *target == EVERYTHING;
    matches && may_match && cx.api.plugins.has(plugin)
}

/// Runs the enabled plug-ins of [`STEPS`] that handle this object. `old` is the stored object of an update.
fn admit(
    cx: &Context<'_>,
    operation: Operation,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    for (_, _, step) in STEPS.iter().filter(|(plugin, target, _)| runs(cx, *plugin, target)) {
        match (step, old) {
            (Step::Create(admit), None) if operation == Operation::Create => admit(cx, object)?,
            (Step::Update(admit), Some(old)) => admit(cx, object, old)?,
            _ => {}
        }
    }
    Ok(())
}

/// Runs the enabled plug-ins of [`CHECKS`] that handle this kind. The object has passed validation.
pub(crate) fn validate(
    cx: &Context<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    for (_, _, check) in CHECKS.iter().filter(|(plugin, target, _)| runs(cx, *plugin, target)) {
        match (check, old) {
            (Check::Create(check), None) => check(cx, object)?,
            (Check::Update(check), Some(old)) => check(cx, object, old)?,
            (Check::Write(check), _) => check(cx, object, old)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the plug-ins' warnings to the client about an admitted object.
pub(crate) fn warnings(cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    if cx.resource.custom.is_some() || !cx.api.plugins.has(Plugin::PodSecurity) {
        return Vec::new();
    }
    pod_security::warnings(cx, object, old)
}

/// Keeps pods off a new node until the node reports that it is ready. Plug-in: TaintNodesByCondition.
fn not_ready_taint(_: &Context<'_>, node: &mut Value) -> Result<(), StatusError> {
    let key = "node.kubernetes.io/not-ready";
    let mut taints = list(node, "spec.taints").to_vec();
    if taints.iter().any(|taint| text(taint, "key") == key && text(taint, "effect") == "NoSchedule")
    {
        return Ok(());
    }
    taints.push(json!({"key": key, "effect": "NoSchedule"}));
    set(node, "spec.taints", taints);
    Ok(())
}

/// Adds the finalizer that delays the deletion of an object while it is in use. Plug-in: StorageObjectInUseProtection.
fn add_finalizer(object: &mut Value, finalizer: &str) -> Result<(), StatusError> {
    let mut finalizers = list(object, "metadata.finalizers").to_vec();
    if !finalizers.iter().any(|name| name == finalizer) {
        finalizers.push(Value::from(finalizer));
        set(object, "metadata.finalizers", finalizers);
    }
    Ok(())
}

/// Sets the default class on a claim that names none. Plug-in: DefaultStorageClass.
fn default_storage_class(cx: &Context<'_>, claim: &mut Value) -> Result<(), StatusError> {
    if value::get(claim, "spec.storageClassName").is_some() {
        return Ok(());
    }
    let classes = loopback::list(cx.api, "storage.k8s.io/v1", "storageclasses", "");
    if let Some(class) = default_class(&classes, "storageclass.kubernetes.io/is-default-class") {
        set(claim, "spec.storageClassName", class);
    }
    Ok(())
}

/// Sets the default class on an Ingress that names none in its spec or in the old annotation. Plug-in:
/// DefaultIngressClass.
fn default_ingress_class(cx: &Context<'_>, ingress: &mut Value) -> Result<(), StatusError> {
    let has_annotation = value::object(ingress, "metadata.annotations")
        .is_some_and(|annotations| annotations.contains_key("kubernetes.io/ingress.class"));
    if has_annotation || value::get(ingress, "spec.ingressClassName").is_some() {
        return Ok(());
    }
    let classes = loopback::list(cx.api, "networking.k8s.io/v1", "ingressclasses", "");
    if let Some(class) = default_class(&classes, "ingressclass.kubernetes.io/is-default-class") {
        set(ingress, "spec.ingressClassName", class);
    }
    Ok(())
}

/// Returns the name of the newest class whose annotation `default_annotation` is `true`. Of classes of the same age,
/// the first by name is the default.
fn default_class<'a>(classes: &'a [Value], default_annotation: &str) -> Option<&'a str> {
    let defaults = classes.iter().filter(|class| {
        value::object(class, "metadata.annotations")
            .and_then(|annotations| annotations.get(default_annotation))
            .is_some_and(|value| value == "true")
    });
    let rank = |class: &&Value| {
        (
            text(class, "metadata.creationTimestamp").to_owned(),
            Reverse(text(class, "metadata.name").to_owned()),
        )
    };
    defaults.max_by_key(rank).map(|class| text(class, "metadata.name"))
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
            assert_eq!(default_class(classes, "m"), expected, "{classes:?}");
        }
    }
}
