//! Validation of Nodes.

use super::{names, quantity};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{int, list, object, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates a new node: taints, resources, swap, declared features and pod CIDRs.
///
/// Upstream: `ValidateNode`.
pub(super) fn create(new: &Value, errors: &mut Errors) {
    taints(new, errors);
    resources(new, errors);
    swap(new, errors);
    declared_features(new, errors);
    let path = Path::new("spec");
    let path = path.field("podCIDRs");
    let cidrs: Vec<&str> = list(new, "spec.podCIDRs").iter().filter_map(Value::as_str).collect();
    for (index, cidr) in cidrs.iter().enumerate() {
        errors.invalid_for_each(&path.index(index), cidr, &names::cidr(cidr));
    }
    if cidrs.len() > 1 {
        let mut families = BTreeSet::new();
        for (index, cidr) in cidrs.iter().enumerate() {
            match names::parse_cidr(cidr) {
                Some((ip, _)) => families.insert(ip.is_ipv4()),
                None => {
                    let detail = format!(
                        "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {cidr})"
                    );
                    errors.internal(&path, &detail);
                    families.clear();
                    break;
                }
            };
        }
        if families.len() < 2 || cidrs.len() > 2 {
            let detail = "may specify no more than one CIDR for each IP family";
            errors.invalid(&path, json!(cidrs), detail);
        }
    }
}

/// Requires a positive swap capacity in the node's status.
///
/// Upstream: `validateNodeSwapStatus`.
fn swap(new: &Value, errors: &mut Errors) {
    // As in upstream, the path of the error is not the path of the field, `status.nodeInfo.swap`.
    let path = Path::new("metadata");
    let path = path.field("nodeSwapStatus");
    if let Some(capacity) = int(new, "status.nodeInfo.swap.capacity").filter(|bytes| *bytes <= 0) {
        errors.invalid(&path.field("capacity"), capacity, "must be greater than zero");
    }
}

/// Validates the names and the order of a node's declared features.
///
/// Upstream: `validateNodeDeclaredFeatures`.
fn declared_features(new: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    let path = path.field("declaredFeatures");
    let mut previous: Option<&str> = None;
    let features = list(new, "status.declaredFeatures").iter().filter_map(Value::as_str);
    for (index, feature) in features.enumerate() {
        let path = path.index(index);
        match previous {
            Some(previous) if previous == feature => errors.duplicate(&path, feature),
            Some(previous) if previous > feature => {
                errors.invalid(&path, feature, "list must be sorted alphabetically");
            }
            _ => {}
        }
        previous = Some(feature);
        let is_camel_case = |segment: &str| {
            segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
                && segment.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        };
        if feature.len() > 253 {
            let detail =
                format!("invalid feature name {feature:?}: must be no more than 253 characters");
            errors.invalid(&path, feature, &detail);
        } else if !feature.split('/').all(is_camel_case)
            || !feature.starts_with(|first: char| first.is_ascii_uppercase())
        {
            let detail = format!(
                "invalid feature name {feature:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            );
            errors.invalid(&path, feature, &detail);
        }
    }
}

/// Validates keys, values and effects of taints, and rejects two taints with the same key and effect.
///
/// Upstream: `validateNodeTaints`.
fn taints(new: &Value, errors: &mut Errors) {
    // As in upstream, the path of the errors is not the path of the field, `spec.taints`.
    let path = Path::new("metadata");
    let path = path.field("taints");
    let mut seen = BTreeSet::new();
    for (index, taint) in list(new, "spec.taints").iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) =
            (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.invalid_for_each(&path.field("key"), key, &names::qualified_name(key));
        errors.invalid_for_each(&path.field("value"), value, &names::label_value(value));
        if effect.is_empty() {
            errors.required(&path.field("effect"), "");
        } else {
            errors.one_of(&path.field("effect"), effect, TAINT_EFFECTS);
        }
        if !seen.insert((key, effect)) {
            errors.duplicate(&path, quoted("core.Taint", Some(taint)));
        }
    }
}

fn resources(new: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    for field in ["capacity", "allocatable"] {
        quantity::validate_quantities(
            object(new, &format!("status.{field}")),
            &path.field(field),
            errors,
        );
    }
}

/// Validates an update of a node through its own path.
///
/// Upstream: `nodeStrategy.ValidateUpdate`.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    create(new, errors);
    update_status(new, old, errors);
}

/// Validates an update of a node through its own path or its `/status`.
///
/// Upstream: `ValidateNodeUpdate`.
pub(super) fn update_status(new: &Value, old: &Value, errors: &mut Errors) {
    resources(new, errors);
    declared_features(new, errors);
    let path = Path::new("status");
    let path = path.field("addresses");
    let addresses = list(new, "status.addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            // Upstream's error quotes the Go struct, whose field names begin with capital letters.
            let go_struct =
                json!({"Type": text(address, "type"), "Address": text(address, "address")});
            errors.duplicate(&path.index(index), go_struct);
        }
    }
    let path = Path::new("spec");
    let before = list(old, "spec.podCIDRs");
    if !before.is_empty() && before != list(new, "spec.podCIDRs") {
        errors.forbidden(
            &path.field("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        );
    }
    taints(new, errors);
    if text(new, "spec.externalID") != text(old, "spec.externalID") {
        errors.forbidden(&path.field("externalID"), "may not be updated");
    }
    let (before, after) = (text(old, "spec.providerID"), text(new, "spec.providerID"));
    if !before.is_empty() && before != after {
        let detail = match after {
            "" => "field cannot be cleared once set",
            _ => "field cannot be modified once set",
        };
        errors.invalid(&path.field("providerID"), Value::Null, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that each error's message starts with the expected string.
    #[track_caller]
    fn check(validate: impl FnOnce(&mut Errors), expected: &[&str]) {
        let mut errors = Errors::default();
        validate(&mut errors);
        let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let is_same = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, start)| found.starts_with(start));
        assert!(is_same, "{found:#?}, not {expected:#?}");
    }

    #[test]
    fn pod_cidrs_of_a_node_are_valid_and_one_per_family() {
        for (cidrs, expected) in [
            (json!(["10.0.0.0/24", "fd00::/64"]), vec![]),
            (json!(["a"]), vec!["spec.podCIDRs[0]: Invalid value: \"a\""]),
            (
                json!(["10.0.0.0/24", "10.1.0.0/24"]),
                vec![
                    "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one CIDR",
                ],
            ),
            (
                json!(["10.0.0.0/24", "a"]),
                vec![
                    "spec.podCIDRs[1]: Invalid value: \"a\"",
                    "spec.podCIDRs: Internal error: invalid PodCIDRs",
                    "spec.podCIDRs: Invalid value",
                ],
            ),
        ] {
            let node = json!({"spec": {"podCIDRs": cidrs}});
            check(|errors| create(&node, errors), &expected);
        }
    }

    #[test]
    fn declared_features_are_sorted_and_have_valid_names() {
        for (features, expected) in [
            (json!(["A", "MyFeature/mySubFeature"]), vec![]),
            (
                json!(["B", "A"]),
                vec!["status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted"],
            ),
            (json!(["A", "A"]), vec!["status.declaredFeatures[1]: Duplicate value: \"A\""]),
            (
                json!(["a"]),
                vec![
                    "status.declaredFeatures[0]: Invalid value: \"a\": invalid feature name \"a\": must start",
                ],
            ),
            (json!(["A//b"]), vec!["status.declaredFeatures[0]: Invalid value: \"A//b\""]),
        ] {
            let node = json!({"status": {"declaredFeatures": features}});
            check(|errors| create(&node, errors), &expected);
        }
    }

    #[test]
    fn an_update_keeps_pod_cidrs_and_provider_id_and_has_no_duplicate_addresses() {
        let node = |cidr: &str, provider: &str| json!({"spec": {"podCIDRs": [cidr], "providerID": provider}});
        let old = node("10.0.0.0/24", "a");
        check(|errors| update(&old, &old, errors), &[]);
        check(
            |errors| update(&node("10.1.0.0/24", "b"), &old, errors),
            &[
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR",
                "spec.providerID: Invalid value: null: field cannot be modified once set",
            ],
        );
        check(
            |errors| update(&node("10.0.0.0/24", ""), &old, errors),
            &["spec.providerID: Invalid value: null: field cannot be cleared once set"],
        );
        let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
        let twice = json!({"status": {"addresses": [address, address]}});
        check(
            |errors| update_status(&twice, &json!({}), errors),
            &["status.addresses[1]: Duplicate value: {"],
        );
    }
}
