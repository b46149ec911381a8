//! Resource lists: names, amounts, and requests within limits.

use super::names;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{list, object, text};
use serde_json::Value;

const STANDARD: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "storage"];

/// Amounts of a map such as `status.capacity`: not negative, and whole where the resource is counted.
pub(super) fn amounts(
    map: Option<&evenkeel_apimachinery::value::Object>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (name, quantity) in map.into_iter().flatten() {
        amount(name, quantity, &path.field(name), errors);
    }
}

/// One amount of a resource.
pub(super) fn amount(name: &str, quantity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(parsed) = Amount::of(quantity) else { return };
    if parsed.is_negative() {
        errors.invalid(path, quantity.clone(), "must be greater than or equal to 0");
    }
    if is_counted(name) && !parsed.is_whole() {
        errors.invalid(path, quantity.clone(), "must be an integer");
    }
}

/// Whether a resource comes in whole units only.
pub(super) fn is_counted(name: &str) -> bool {
    name.starts_with("hugepages-")
        || (name.contains('/') && !name.starts_with("requests.") && !name.starts_with("limits."))
        || is_object_count(name)
}

/// Whether a quota of this name counts objects of a built-in kind.
pub(super) fn is_object_count(name: &str) -> bool {
    matches!(
        name,
        "pods"
            | "services"
            | "replicationcontrollers"
            | "resourcequotas"
            | "secrets"
            | "configmaps"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    )
}

/// A name that a container may ask for.
fn container_resource(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let messages = names::qualified_name(name);
    errors.invalid_all(path, name, &messages);
    if !messages.is_empty() {
        return;
    }
    if !name.contains('/') && !STANDARD.contains(&name) && !name.starts_with("hugepages-") {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
        errors.invalid(path, name, "must be a standard resource for containers");
    }
}

fn can_overcommit(name: &str) -> bool {
    !name.contains('/') && !name.starts_with("hugepages-")
}

/// `resources` of a container.
pub(super) fn requirements(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (limits, requests) = (object(resources, "limits"), object(resources, "requests"));
    for (map, field) in [(limits, "limits"), (requests, "requests")] {
        let path = path.field(field);
        for (name, quantity) in map.into_iter().flatten() {
            let path = path.key(name);
            container_resource(name, &path, errors);
            amount(name, quantity, &path, errors);
        }
    }
    let path = path.field("requests");
    for (name, request) in requests.into_iter().flatten() {
        let limit = limits.and_then(|limits| limits.get(name));
        let pair = limit.and_then(Amount::of).zip(Amount::of(request));
        match pair {
            Some((limit, request_amount)) if request_amount > limit && can_overcommit(name) => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(&path, request.clone(), &detail);
            }
            Some((limit, request_amount)) if request_amount != limit && !can_overcommit(name) => {
                errors.invalid(
                    &path,
                    request.clone(),
                    &format!("must be equal to {name} limit of {limit}"),
                );
            }
            None if limit.is_none() && !can_overcommit(name) => {
                errors.invalid(
                    &path,
                    request.clone(),
                    "Limit must be set for non overcommitable resources",
                );
            }
            _ => {}
        }
    }
    let claims = path.field("claims");
    for (index, claim) in list(resources, "claims").iter().enumerate() {
        if text(claim, "name").is_empty() {
            errors.required(&claims.index(index).field("name"), "");
        }
    }
}
