//! Validation: which objects are refused, and in which words.

mod affinity;
mod apps;
mod autoscaling;
mod core;
mod objects;
mod pod;
mod pod_update;
mod quantity;
mod ranges;
mod service;
mod volume;

use evenkeel_api::forms as names;
pub use evenkeel_api::forms::{dns_1035_label, dns_label, dns_subdomain, path_segment};
use evenkeel_apimachinery::validation::{Errors, labels};

use serde_json::Value;

/// What is validated.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Kind, such as `Pod`.
    pub kind: &'a str,
    /// Sub-resource written through, empty for the object itself.
    pub subresource: &'a str,
}

/// What is wrong with an object to be created, beside its metadata.
pub fn create(subject: Subject<'_>, object: &Value, errors: &mut Errors) {
    match subject.group {
        "" => core::create(subject.kind, object, errors),
        "apps" | "batch" => apps::create(subject.kind, object, errors),
        group => objects::create(group, subject.kind, object, errors),
    }
}

/// What is wrong with an update, beside the metadata.
pub fn update(subject: Subject<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    match subject.group {
        "" => core::update(subject, new, old, errors),
        "apps" | "batch" => apps::update(subject, new, old, errors),
        _ => objects::update(subject, new, old, errors),
    }
}

#[cfg(test)]
mod tests;
