//! Validation of built-in kinds, with upstream's errors.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis`, in the folder of each group.

mod affinity;
mod apiregistration;
mod apps;
mod autoscaling;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod flowcontrol;
mod networking;
mod node;
mod pod;
mod pod_update;
mod policy;
mod quantity;
mod rbac;
mod resource;
mod scheduling;
mod service;
mod servicecidr;
mod storage;
mod volume;

use evenkeel_api::forms as names;
pub use evenkeel_api::forms::{dns_1035_label, dns_label, dns_subdomain, path_segment};
use evenkeel_apimachinery::validation::{Errors, Path, labels};
use evenkeel_apimachinery::value::get;
use serde_json::Value;

/// The kind and the path of a validated object.
#[derive(Clone, Copy, Debug)]
pub struct ValidationTarget<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Kind, such as `Pod`.
    pub kind: &'a str,
    /// Sub-resource of the request; empty for the object itself.
    pub subresource: &'a str,
}

/// Validates a new object, except its metadata.
pub fn create(target: ValidationTarget<'_>, object: &Value, errors: &mut Errors) {
    let create: fn(&str, &Value, &mut Errors) = match target.group {
        "" => core::create,
        "apiregistration.k8s.io" => apiregistration::create,
        "apps" | "batch" => apps::create,
        "autoscaling" => autoscaling::create,
        "certificates.k8s.io" => certificates::create,
        "coordination.k8s.io" => coordination::create,
        "discovery.k8s.io" => discovery::create,
        "flowcontrol.apiserver.k8s.io" => flowcontrol::create,
        "networking.k8s.io" => networking::create,
        "node.k8s.io" => node::create,
        "policy" => policy::create,
        "rbac.authorization.k8s.io" => rbac::create,
        "scheduling.k8s.io" => scheduling::create,
        "storage.k8s.io" => storage::create,
        _ => return,
    };
    create(target.kind, object, errors);
}

/// Validates an update, except metadata.
pub fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    let kind = target.kind;
    match (target.group, target.subresource) {
        ("", _) => core::update(target, new, old, errors),
        ("apps" | "batch", _) => apps::update(target, new, old, errors),
        ("certificates.k8s.io", _) => certificates::update(target, new, old, errors),
        ("networking.k8s.io", "status") => networking::update_status(kind, new, errors),
        ("policy", "status") => policy::update_status(kind, new, errors),
        (_, "status") => {}
        ("discovery.k8s.io", _) => discovery::update(kind, new, old, errors),
        ("networking.k8s.io", _) => networking::update(kind, new, old, errors),
        ("node.k8s.io", _) => node::update(kind, new, old, errors),
        ("rbac.authorization.k8s.io", _) => rbac::update(kind, new, old, errors),
        ("resource.k8s.io", _) => resource::update(kind, new, old, errors),
        ("scheduling.k8s.io", _) => scheduling::update(kind, new, old, errors),
        ("storage.k8s.io", _) => storage::update(kind, new, old, errors),
        _ => create(target, new, errors),
    }
}

/// Refuses changes of fields, given by their paths.
///
/// Upstream: `ValidateImmutableField`.
fn immutable(fields: &[&str], new: &Value, old: &Value, errors: &mut Errors) {
    for field in fields {
        errors.immutable(&Path::new(field), get(new, field), get(old, field));
    }
}

#[cfg(test)]
mod tests;
