//! Validation of built-in kinds, with upstream's errors. A function with the argument `errors` is named after the field or
//! the kind that it validates, and adds an error for each rule that the value breaks.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis`, in the folder of each API group.

mod admissionregistration;
mod affinity;
mod apiregistration;
mod apps;
pub mod authentication;
mod autoscaling;
mod batch;
mod certificates;
mod conditions;
mod container_restart;
mod containers;
mod coordination;
mod core;
mod core_node;
mod discovery;
mod event;
mod flowcontrol;
mod job_policies;
mod job_status;
mod limitrange;
mod networking;
mod node;
mod persistentvolume;
mod persistentvolumeclaim;
mod persistentvolumesource;
mod pod;
pub mod pod_annotations;
mod pod_claims;
mod pod_containers;
mod pod_env;
mod pod_handlers;
mod pod_level;
mod pod_os;
mod pod_resize;
pub(crate) mod pod_security;
mod pod_status;
mod pod_sysctls;
mod pod_update;
mod policy;
mod quantity;
mod rbac;
mod resource;
mod resourcequota;
mod scheduling;
mod service;
mod servicecidr;
mod storage;
mod template_metadata;
mod volume;
mod volume_projected;

pub use resource::{DeviceId, device_id};
pub(crate) use service::cluster_ips_related_fields as service_cluster_ips;
pub use service::is_externally_accessible;

use evenkeel_api::forms as names;
pub use evenkeel_api::forms::{dns_1035_label, dns_label, dns_subdomain, path_segment};
use evenkeel_apimachinery::validation::{Errors, Path, labels};
use evenkeel_apimachinery::value::{get, list};
use serde_json::Value;

/// Kind and request path of a validated object.
#[derive(Clone, Copy, Debug)]
pub struct ValidationTarget<'a> {
    /// API group of the kind. It is empty for the core group.
    pub group: &'a str,
    /// API group of the request. For an Event, it is `events.k8s.io` or the core group.
    pub request_group: &'a str,
    /// Kind in CamelCase, such as `Pod`.
    pub kind: &'a str,
    /// Subresource of the request. It is empty for the object itself.
    pub subresource: &'a str,
}

/// Groups whose kinds may have finalizers that are not fully qualified.
const ANY_FINALIZERS: [&str; 5] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "internal.apiserver.k8s.io",
];

/// Kinds whose updates validate `metadata.name` and `generateName` again by the kind's rule. Updates of other kinds
/// only require that `generateName` is a path segment.
const UPDATE_VALIDATES_NAME: [(&str, &[&str]); 11] = [
    (
        "",
        &[
            "ConfigMap",
            "Endpoints",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "Secret",
            "ServiceAccount",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiregistration.k8s.io", &["APIService"]),
    ("apps", &["ControllerRevision"]),
    ("certificates.k8s.io", &["CertificateSigningRequest"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("flowcontrol.apiserver.k8s.io", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", &["IPAddress", "Ingress", "IngressClass"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("resource.k8s.io", &["ResourceClaim", "ResourceClaimTemplate"]),
    (
        "storage.k8s.io",
        &[
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

/// Returns whether an update through this path validates `metadata.name` and `generateName` by the kind's rule.
///
/// Upstream: the calls of `ValidateObjectMeta` in the kinds' functions `Validate…Update`.
pub fn update_validates_name(target: ValidationTarget<'_>) -> bool {
    let path_validates_name = matches!(
        (target.kind, target.subresource),
        (_, "")
            | ("VolumeAttachment", "status")
            | ("CertificateSigningRequest", "status" | "approval")
    );
    path_validates_name
        && UPDATE_VALIDATES_NAME
            .iter()
            .any(|(group, kinds)| *group == target.group && kinds.contains(&target.kind))
}

/// Validates that each finalizer is fully qualified or is a standard finalizer of Kubernetes.
///
/// Upstream: `validateKubeFinalizerName`.
fn finalizers(target: ValidationTarget<'_>, object: &Value, errors: &mut Errors) {
    if ANY_FINALIZERS.contains(&target.group) || target.kind == "PodDisruptionBudget" {
        return;
    }
    let path = Path::new("metadata");
    let path = path.field("finalizers");
    let finalizers = list(object, "metadata.finalizers").iter().filter_map(Value::as_str);
    for (index, name) in finalizers.enumerate() {
        finalizer(name, &path.index(index), errors);
    }
}

/// Rejects a finalizer that is neither fully qualified nor a standard finalizer of Kubernetes.
fn finalizer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if !name.contains('/') && !["foregroundDeletion", "kubernetes", "orphan"].contains(&name) {
        errors.invalid(
            path,
            name,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

/// Returns whether objects of a kind may have any finalizer, because upstream does not apply its rule for finalizers of
/// built-in kinds.
fn accepts_any_finalizer(target: ValidationTarget<'_>) -> bool {
    target.kind == "RuntimeClass" || target.kind == "Event" && target.request_group.is_empty()
}

/// Validates a new object, except its metadata.
pub fn create(target: ValidationTarget<'_>, object: &Value, errors: &mut Errors) {
    if !accepts_any_finalizer(target) {
        finalizers(target, object, errors);
    }
    create_spec(target, object, errors);
}

/// Validates a new object, except its metadata and finalizers.
fn create_spec(target: ValidationTarget<'_>, object: &Value, errors: &mut Errors) {
    if (target.group, target.kind) == ("", "Event") {
        return event::create(target.request_group, object, errors);
    }
    let create: fn(&str, &Value, &mut Errors) = match target.group {
        "" => core::create,
        "admissionregistration.k8s.io" => admissionregistration::create,
        "apiregistration.k8s.io" => apiregistration::create,
        "apps" => apps::create,
        "batch" => batch::create,
        "autoscaling" => autoscaling::create,
        "certificates.k8s.io" => certificates::create,
        "coordination.k8s.io" => coordination::create,
        "discovery.k8s.io" => discovery::create,
        "flowcontrol.apiserver.k8s.io" => flowcontrol::create,
        "networking.k8s.io" => networking::create,
        "node.k8s.io" => node::create,
        "policy" => policy::create,
        "rbac.authorization.k8s.io" => rbac::create,
        "resource.k8s.io" => resource::create,
        "scheduling.k8s.io" => scheduling::create,
        "storage.k8s.io" => storage::create,
        _ => return,
    };
    create(target.kind, object, errors);
}

/// Validates an update, except the metadata.
pub fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    let kind = target.kind;
    if !accepts_any_finalizer(target) {
        finalizers(target, new, errors);
    }
    match (target.group, target.subresource) {
        ("", _) if kind == "Event" => event::update(target.request_group, new, old, errors),
        ("", _) => core::update(target, new, old, errors),
        ("apps", _) => apps::update(target, new, old, errors),
        ("autoscaling", _) => autoscaling::update(target, new, old, errors),
        ("batch", "status") if kind == "Job" => job_status::update(new, old, errors),
        ("batch", "status") => {}
        ("batch", _) => batch::update(kind, new, old, errors),
        ("certificates.k8s.io", _) => certificates::update(target, new, old, errors),
        ("admissionregistration.k8s.io", "status") => {
            admissionregistration::update_status(kind, new, errors);
        }
        ("flowcontrol.apiserver.k8s.io", "status") => flowcontrol::update_status(new, errors),
        ("networking.k8s.io", "status") => networking::update_status(kind, new, errors),
        ("policy", "status") => policy::update_status(kind, new, errors),
        ("resource.k8s.io", _) => resource::update(target, new, old, errors),
        (_, "status") => {}
        ("admissionregistration.k8s.io", _) => {
            admissionregistration::update(kind, new, old, errors);
        }
        ("discovery.k8s.io", _) => discovery::update(kind, new, old, errors),
        ("flowcontrol.apiserver.k8s.io", _) => flowcontrol::update(kind, new, old, errors),
        ("networking.k8s.io", _) => networking::update(kind, new, old, errors),
        ("node.k8s.io", _) => node::update(kind, new, old, errors),
        ("rbac.authorization.k8s.io", _) => rbac::update(kind, new, old, errors),
        ("scheduling.k8s.io", _) => scheduling::update(kind, new, old, errors),
        ("storage.k8s.io", _) => storage::update(kind, new, old, errors),
        _ => create_spec(target, new, errors),
    }
}

/// Rejects changes of the fields at these paths.
///
/// Upstream: `ValidateImmutableField`.
fn immutable(fields: &[&str], new: &Value, old: &Value, errors: &mut Errors) {
    for field in fields {
        errors.immutable(&Path::new(field), get(new, field), get(old, field));
    }
}

/// Rejects a change of a field that upstream declares immutable. The error contains no value.
///
/// Upstream: `validate.Immutable`.
fn declared_immutable(field: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let quote_nothing = |_: Option<&Value>| Value::Null.into();
    errors.immutable_as(&Path::new(field), get(new, field), get(old, field), quote_nothing);
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod texts;
