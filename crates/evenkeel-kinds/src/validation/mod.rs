//! Validation of built-in kinds, with upstream's errors.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis`, in the folder of each group.

mod affinity;
mod apps;
mod autoscaling;
mod core;
mod objects;
mod pod;
mod pod_update;
mod quantity;
mod service;
mod servicecidr;
mod volume;

use evenkeel_api::forms as names;
pub use evenkeel_api::forms::{dns_1035_label, dns_label, dns_subdomain, path_segment};
use evenkeel_apimachinery::validation::{Errors, labels};

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
    match target.group {
        "" => core::create(target.kind, object, errors),
        "apps" | "batch" => apps::create(target.kind, object, errors),
        group => objects::create(group, target.kind, object, errors),
    }
}

/// Validates an update, except metadata.
pub fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    match target.group {
        "" => core::update(target, new, old, errors),
        "apps" | "batch" => apps::update(target, new, old, errors),
        _ => objects::update(target, new, old, errors),
    }
}

#[cfg(test)]
mod tests;
