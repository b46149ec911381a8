//! Validation of resource lists: the names, the quantities, and that requests do not exceed limits.

use super::names;
use crate::pod_resources;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, object};
use serde_json::Value;

const CONTAINER_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Validates the quantities of a map such as `status.capacity`. No quantity may be negative, and quantities of integer
/// resources must be integers.
pub(super) fn validate_quantities(map: Option<&Object>, path: &Path<'_>, errors: &mut Errors) {
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
    non_negative(quantity, path, errors);
    if is_integer_resource(name) && Amount::of(quantity).is_some_and(|amount| !amount.is_whole()) {
        errors.invalid(path, quantity.clone(), "must be an integer");
    }
}

/// Rejects a quantity below zero.
///
/// Upstream: `ValidateNonnegativeQuantity`.
pub(super) fn non_negative(quantity: &Value, path: &Path<'_>, errors: &mut Errors) {
    if Amount::of(quantity).is_some_and(Amount::is_negative) {
        errors.invalid(path, quantity.clone(), "must be greater than or equal to 0");
    }
}

/// Rejects a negative quantity. Returns whether the quantity is valid.
///
/// Upstream: `validateBasicResource`.
pub(super) fn basic_resource(quantity: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let value = Amount::of(quantity).map(whole_value).unwrap_or_default();
    if value < 0 {
        let value = i64::try_from(value).unwrap_or(i64::MIN);
        errors.invalid(path, value, "must be a valid resource quantity");
    }
    value >= 0
}

/// Returns whether quantities of a resource must be integers.
///
/// Upstream: `IsIntegerResourceName`.
pub(super) fn is_integer_resource(name: &str) -> bool {
    is_extended(name) || is_object_count(name)
}

/// Returns whether a resource is native to Kubernetes, by its name.
///
/// Upstream: `IsNativeResource`.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns whether a name belongs to an extended resource: it is qualified, and not native to Kubernetes.
///
/// Upstream: `IsExtendedResourceName`.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Returns an amount as an integer, rounded away from zero.
///
/// Upstream: `Quantity.Value`.
pub(super) fn whole_value(amount: Amount) -> i128 {
    rounded(amount, 1_000_000_000)
}

/// Returns an amount in thousandths, rounded away from zero.
///
/// Upstream: `Quantity.MilliValue`.
pub(super) fn milli_value(amount: Amount) -> i128 {
    rounded(amount, 1_000_000)
}

/// Returns an amount in multiples of `unit` billionths, rounded away from zero.
fn rounded(amount: Amount, unit: i128) -> i128 {
    let text = amount.to_string();
    let (number, billionths) = match (text.strip_suffix('m'), text.strip_suffix('n')) {
        (Some(number), _) => (number, 1_000_000),
        (_, Some(number)) => (number, 1),
        (None, None) => (text.as_str(), 1_000_000_000),
    };
    let value = number.parse::<i128>().unwrap_or_default().saturating_mul(billionths);
    value / unit + (value % unit).signum()
}

/// Returns whether a quota resource counts objects of a built-in kind.
///
/// Upstream: `integerResources`.
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

/// Returns whether a quota can limit this resource, whose name is not qualified.
///
/// Upstream: `IsStandardQuotaResourceName`.
pub(super) fn is_standard_quota_resource(name: &str) -> bool {
    let bare = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits."));
    matches!(bare.unwrap_or(name), "cpu" | "memory" | "ephemeral-storage")
        || name == "requests.storage"
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || is_object_count(name)
}

/// Validates the name of a resource, and returns whether it is valid.
///
/// Upstream: `validateResourceName`.
pub(super) fn resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let messages = names::qualified_name(name);
    errors.invalid_for_each(path, name, &messages);
    let is_known = name.contains('/') || name == "storage" || is_standard_quota_resource(name);
    if messages.is_empty() && !is_known {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
    messages.is_empty() && is_known
}

/// Validates the resource name of a container's request or limit.
///
/// Upstream: `ValidateContainerResourceName`.
pub(super) fn container_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    resource_name(name, path, errors);
    if !name.contains('/') {
        if !CONTAINER_RESOURCES.contains(&name) && !name.starts_with("hugepages-") {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// Validates the name of a resource that a quota limits.
///
/// Upstream: `ValidateResourceQuotaResourceName`.
pub(super) fn quota_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    resource_name(name, path, errors);
    if !name.contains('/') && !is_standard_quota_resource(name) {
        errors.invalid(path, name, "must be a standard resource for quota");
    }
}

/// Returns whether the request of a resource may differ from its limit.
///
/// Upstream: `IsOvercommitAllowed`.
pub(super) fn can_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// Validates that an amount of huge pages is a multiple of the page size.
///
/// Upstream: `validateResourceQuantityHugePageValue`.
fn huge_pages(name: &str, quantity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(size) = name.strip_prefix("hugepages-") else { return };
    let size = Amount::of(&Value::from(size)).filter(|size| size.is_whole()).map(whole_value);
    let amount = Amount::of(quantity).map(whole_value).unwrap_or_default();
    if size.is_none_or(|size| size <= 0 || amount % size != 0) {
        let text = quantity.as_str().unwrap_or_default();
        let detail = format!("{text} is not positive integer multiple of {name}");
        errors.invalid(path, quantity.clone(), &detail);
    }
}

/// Validates the name of a resource of a whole pod.
///
/// Upstream: `validatePodResourceName`.
fn pod_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if resource_name(name, path, errors) && !pod_resources::is_supported(name) {
        errors.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// Validates `resources` of a container.
///
/// Upstream: `ValidateContainerResourceRequirements`.
pub(super) fn requirements(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    requirements_of(resources, container_resource_name, path, errors);
}

/// Validates the requests and limits of a whole pod.
///
/// Upstream: `validatePodResourceRequirements`.
pub(super) fn pod_requirements(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    requirements_of(resources, pod_resource_name, path, errors);
}

/// Validates limits and requests. A request must not exceed its limit, and must equal it if the resource cannot be
/// overcommitted.
///
/// Upstream: `validateResourceRequirements`.
fn requirements_of(
    resources: &Value,
    validate_name: fn(&str, &Path<'_>, &mut Errors),
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (limits, requests) = (object(resources, "limits"), object(resources, "requests"));
    let (limits_path, requests_path) = (path.field("limits"), path.field("requests"));
    for (name, quantity) in limits.into_iter().flatten() {
        let path = limits_path.key(name);
        validate_name(name, &path, errors);
        validate_quantity(name, quantity, &path, errors);
        huge_pages(name, quantity, &path, errors);
    }
    for (name, quantity) in requests.into_iter().flatten() {
        let path = requests_path.key(name);
        validate_name(name, &path, errors);
        validate_quantity(name, quantity, &path, errors);
        let limit = limits.and_then(|limits| limits.get(name));
        let shown = limit.and_then(Value::as_str).unwrap_or_default();
        if limit.is_none() && !can_overcommit(name) {
            let detail = "Limit must be set for non overcommitable resources";
            errors.required(&limits_path, detail);
        }
        if let Some((limit, request)) = limit.and_then(Amount::of).zip(Amount::of(quantity)) {
            let relation = match can_overcommit(name) {
                false if request != limit => "equal to",
                true if request > limit => "less than or equal to",
                _ => "",
            };
            if !relation.is_empty() {
                let detail = format!("must be {relation} {name} limit of {shown}");
                errors.invalid(&requests_path, quantity.clone(), &detail);
            }
        }
        huge_pages(name, quantity, &path, errors);
    }
    let has = |map: Option<&Object>, is_wanted: fn(&str) -> bool| {
        map.is_some_and(|map| map.keys().any(|name| is_wanted(name)))
    };
    let any = |is_wanted: fn(&str) -> bool| has(limits, is_wanted) || has(requests, is_wanted);
    if any(|name| name.starts_with("hugepages-")) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resource_requirements_of_a_container_are_validated() {
        let table: [(Value, &[&str]); 9] = [
            (json!({"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}), &[]),
            (json!({"limits": {"hugepages-2Mi": "4Mi"}}), &["resources"]),
            (
                json!({"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}),
                &["resources.limits[hugepages-2Mi]"],
            ),
            (json!({"limits": {"storage": "1"}}), &["resources.limits[storage]"]),
            (json!({"limits": {"pods": "1"}}), &["resources.limits[pods]"]),
            (json!({"limits": {"requests.a/b": "1"}}), &["resources.limits[requests.a/b]"]),
            (json!({"limits": {"a/b": "500m"}}), &["resources.limits[a/b]"]),
            (json!({"requests": {"a/b": "1"}}), &["resources.limits"]),
            (json!({"requests": {"a": "1"}}), &["resources.requests[a]"; 2]),
        ];
        for (resources, expected) in table {
            let mut errors = Errors::default();
            requirements(&resources, &Path::new("resources"), &mut errors);
            let found: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(found, expected, "{resources}");
        }
    }

    #[test]
    fn values_are_rounded_away_from_zero() {
        for (quantity, whole, milli) in
            [("1", 1, 1000), ("-500m", -1, -500), ("1500u", 1, 2), ("1Ki", 1024, 1_024_000)]
        {
            let amount = Amount::of(&json!(quantity)).expect("a quantity");
            assert_eq!((whole_value(amount), milli_value(amount)), (whole, milli), "{quantity}");
        }
    }
}
