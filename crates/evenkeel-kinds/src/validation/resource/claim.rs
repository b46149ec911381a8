//! Validation of resource claims and claim templates, except a claim's status.

use super::super::names as forms;
use super::super::template_metadata::template_metadata;
use super::class::{MAX_CONFIGS, device_configuration};
use super::selector::selectors;
use super::taint::device_toleration;
use super::{ErrorLists, item_text, items, names, set};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of requests of a claim, and of request names in one of its configurations.
pub(super) const MAX_REQUESTS: usize = 32;
/// Maximum number of constraints of a claim.
const MAX_CONSTRAINTS: usize = 32;
/// Maximum number of subrequests in `firstAvailable` of a request.
const MAX_ALTERNATIVES: usize = 8;

/// Validates the requests, constraints and configurations of a claim.
///
/// Upstream: `ValidateResourceClaim`.
pub(super) fn resource_claim(claim: &Value, lists: &mut ErrorLists) {
    let spec = claim.get("spec").unwrap_or(&Value::Null);
    device_claim(spec, &Path::new("spec"), lists);
}

/// Rejects a change of a claim's spec.
///
/// Upstream: `ValidateResourceClaimUpdate`.
pub(super) fn resource_claim_update(new: &Value, old: &Value, lists: &mut ErrorLists) {
    if get(new, "spec") != get(old, "spec") {
        lists.declarative.invalid(&Path::new("spec"), Value::Null, "field is immutable");
    }
}

/// Validates the metadata and the spec that a template has for its claims.
///
/// Upstream: `ValidateResourceClaimTemplate`.
pub(super) fn resource_claim_template(template: &Value, lists: &mut ErrorLists) {
    let path = Path::new("spec");
    if let Some(metadata) = get(template, "spec.metadata") {
        template_metadata(metadata, &path.field("metadata"), &mut lists.handwritten);
    }
    let spec = get(template, "spec.spec").unwrap_or(&Value::Null);
    device_claim(spec, &path.field("spec"), lists);
}

/// Validates an update of a template, whose spec is immutable.
///
/// Upstream: `ValidateResourceClaimTemplateUpdate`.
pub(super) fn resource_claim_template_update(new: &Value, old: &Value, lists: &mut ErrorLists) {
    resource_claim_template(new, lists);
    let quoted = |spec: Option<&Value>| quoted("resource.ResourceClaimTemplateSpec", spec);
    lists.handwritten.immutable_as(&Path::new("spec"), get(new, "spec"), get(old, "spec"), quoted);
}

/// Names of a claim's requests, each with the names of its alternatives.
pub(super) struct RequestNames<'v>(BTreeMap<&'v str, BTreeSet<&'v str>>);

impl<'v> RequestNames<'v> {
    /// Collects the names of the requests in a claim's spec.
    ///
    /// Upstream: `gatherRequestNames`.
    pub(super) fn of(spec: &'v Value) -> Self {
        let requests = list(spec, "devices.requests").iter();
        Self(
            requests
                .map(|request| {
                    let alternatives = list(request, "firstAvailable").iter();
                    (text(request, "name"), alternatives.map(|sub| text(sub, "name")).collect())
                })
                .collect(),
        )
    }

    /// Returns whether `reference` names a request, or a request and one of its alternatives.
    fn has(&self, reference: &str) -> bool {
        match reference.split_once('/') {
            None => self.0.contains_key(reference),
            Some((request, sub)) => {
                !sub.contains('/') && self.0.get(request).is_some_and(|subs| subs.contains(sub))
            }
        }
    }

    /// Validates a reference to a request of the claim, or to one of the request's alternatives.
    ///
    /// Upstream: `validateRequestNameRef`.
    pub(super) fn validate_reference(&self, reference: &str, path: &Path<'_>, errors: &mut Errors) {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        if reference.split('/').count() > 2 {
            return errors.invalid(path, reference, detail);
        }
        for segment in reference.split('/') {
            names::label(segment, path, errors);
        }
        if !self.has(reference) {
            errors.invalid(path, reference, detail);
        }
    }

    /// Validates the field `requests` of a constraint or a configuration.
    pub(super) fn validate_requests(
        &self,
        object: &Value,
        path: &Path<'_>,
        lists: &mut ErrorLists,
    ) {
        let references = list(object, "requests");
        let path = path.field("requests");
        set(references, MAX_REQUESTS, item_text, &path, lists, |reference, path, lists| {
            self.validate_reference(item_text(reference), path, &mut lists.handwritten);
        });
    }
}

/// Validates `devices` of a claim's spec at `path`.
///
/// Upstream: `validateDeviceClaim`.
fn device_claim(spec: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    let request_names = RequestNames::of(spec);
    let path = path.field("devices");
    let requests = list(spec, "devices.requests");
    let name = |request| text(request, "name");
    set(requests, MAX_REQUESTS, name, &path.field("requests"), lists, device_request);
    let constraints = list(spec, "devices.constraints");
    let constraints_path = path.field("constraints");
    items(constraints, MAX_CONSTRAINTS, &constraints_path, lists, |constraint, path, lists| {
        request_names.validate_requests(constraint, path, lists);
        device_constraint(constraint, path, lists);
    });
    let configs = list(spec, "devices.config");
    items(configs, MAX_CONFIGS, &path.field("config"), lists, |config, path, lists| {
        request_names.validate_requests(config, path, lists);
        device_configuration(config, false, path, lists);
    });
}

/// Validates a request for devices. Exactly one of `exactly` and `firstAvailable` must be set.
///
/// Upstream: `validateDeviceRequest`.
fn device_request(request: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    names::label(text(request, "name"), &path.field("name"), &mut lists.handwritten);
    let alternatives = list(request, "firstAvailable");
    let exactly = get(request, "exactly");
    let detail = "exactly one of `exactly` or `firstAvailable` is required";
    match (exactly, alternatives.is_empty()) {
        (None, true) => lists.handwritten.required(path, detail),
        (Some(_), false) => {
            let detail = format!("{detail}, but multiple fields are set");
            lists.handwritten.invalid(path, Value::Null, &detail);
            // Declarative validation continues after this error.
            let mut inner = ErrorLists::default();
            exact_or_alternatives(exactly, alternatives, path, &mut inner);
            lists.declarative.extend(inner.declarative);
        }
        _ => exact_or_alternatives(exactly, alternatives, path, lists),
    }
}

/// Validates `exactly` and `firstAvailable` of a request at `path`.
fn exact_or_alternatives(
    exactly: Option<&Value>,
    alternatives: &[Value],
    path: &Path<'_>,
    lists: &mut ErrorLists,
) {
    if let Some(exactly) = exactly {
        exact_device_request(exactly, &path.field("exactly"), lists);
    }
    let path = path.field("firstAvailable");
    let name = |sub| text(sub, "name");
    set(alternatives, MAX_ALTERNATIVES, name, &path, lists, device_sub_request);
}

/// Validates an alternative in `firstAvailable`: its name, device class and devices.
///
/// Upstream: `validateDeviceSubRequest`.
fn device_sub_request(request: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    names::label(text(request, "name"), &path.field("name"), &mut lists.handwritten);
    let class = text(request, "deviceClassName");
    let class_path = path.field("deviceClassName");
    lists.declarative.required_valid(&class_path, class, forms::dns_subdomain);
    requested_devices(request, path, lists);
}

/// Validates a request with `exactly`: its device class and devices.
///
/// Upstream: `validateExactDeviceRequest`.
fn exact_device_request(request: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    let class = text(request, "deviceClassName");
    let class_path = path.field("deviceClassName");
    lists.handwritten.required_valid(&class_path, class, forms::dns_subdomain);
    requested_devices(request, path, lists);
}

/// Validates the fields that exact requests and alternatives share.
///
/// Upstream: `validateDeviceAllocationMode`.
fn requested_devices(request: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    selectors(list(request, "selectors"), false, &path.field("selectors"), lists);
    let count = int(request, "count").unwrap_or_default();
    let count_path = path.field("count");
    match text(request, "allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            lists.handwritten.invalid(&count_path, count, detail);
        }
        "ExactCount" if count <= 0 => {
            lists.handwritten.invalid(&count_path, count, "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        mode => {
            let path = path.field("allocationMode");
            lists.declarative.not_supported(&path, mode, &["All", "ExactCount"]);
        }
    }
    let path = path.field("tolerations");
    for (index, toleration) in list(request, "tolerations").iter().enumerate() {
        device_toleration(toleration, &path.index(index), lists);
    }
}

/// Validates a constraint: `matchAttribute` or `distinctAttribute` must be set, with a fully qualified name.
///
/// Upstream: `validateDeviceConstraint`.
fn device_constraint(constraint: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    let attribute = |field| get(constraint, field).and_then(Value::as_str);
    let (matching, distinct) = (attribute("matchAttribute"), attribute("distinctAttribute"));
    if matching.is_none() && distinct.is_none() {
        let detail = r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
        lists.handwritten.required(path, detail);
    }
    for (name, field) in [(matching, "matchAttribute"), (distinct, "distinctAttribute")] {
        if let Some(name) = name {
            names::declared_fully_qualified(name, &path.field(field), &mut lists.declarative);
        }
    }
}
