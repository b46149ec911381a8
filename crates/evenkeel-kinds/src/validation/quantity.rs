//! Validation of resource lists: names, quantities, and requests within limits.

use super::names;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{list, object, text};
use serde_json::Value;

const STANDARD: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "storage"];

/// Validates the quantities of a map such as `status.capacity`: not negative, and integers for integer resources.
pub(super) fn validate_quantities(
    map: Option<&evenkeel_apimachinery::value::Object>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (name, quantity) in map.into_iter().flatten() {
        validate_quantity(name, quantity, &path.field(name), errors);
    }
}

/// Validates one quantity of a resource.
///
/// Upstream: `ValidateResourceQuantityValue`.
pub(super) fn validate_quantity(
    name: &str,
    quantity: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(parsed) = Amount::of(quantity) else { return };
    if parsed.is_negative() {
        errors.invalid(path, quantity.clone(), "must be greater than or equal to 0");
    }
    if is_integer_resource(name) && !parsed.is_whole() {
        errors.invalid(path, quantity.clone(), "must be an integer");
    }
}

/// Whether quantities of a resource are integers.
///
/// Upstream: `IsIntegerResourceName`.
pub(super) fn is_integer_resource(name: &str) -> bool {
    name.starts_with("hugepages-")
        || (name.contains('/') && !name.starts_with("requests.") && !name.starts_with("limits."))
        || is_object_count(name)
}

/// Whether a quota resource counts objects of a built-in kind.
///
/// Upstream: `IsStandardQuotaResourceName`.
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

/// Validates the resource name of a container's request or limit.
///
/// Upstream: `ValidateContainerResourceName`.
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

/// Validates `resources` of a container.
///
/// Upstream: `ValidateContainerResourceRequirements`.
pub(super) fn requirements(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (limits, requests) = (object(resources, "limits"), object(resources, "requests"));
    for (map, field) in [(limits, "limits"), (requests, "requests")] {
        let path = path.field(field);
        for (name, quantity) in map.into_iter().flatten() {
            let path = path.key(name);
            container_resource(name, &path, errors);
            validate_quantity(name, quantity, &path, errors);
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
