//! Validation of pod-level resources, and of the label keys in affinity terms and spread constraints.

use super::{names, pod_claims, quantity};
use crate::pod_resources::{self, aggregate};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Validates the resources that a pod states for all of its containers together.
///
/// Upstream: `validatePodResources`.
pub(super) fn resources(spec: &Value, spec_path: &Path<'_>, errors: &mut Errors) {
    let Some(stated) = get(spec, "resources") else { return };
    let path = spec_path.field("resources");
    if text(spec, "os.name") == "windows" {
        return errors.forbidden(&path, "may not be set for a windows pod");
    }
    if get(stated, "claims").is_some() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.forbidden(&path.field("claims"), detail);
    }
    pod_claims::container_claims(spec, &pod_claims::claim_names(spec), spec_path, errors);
    quantity::pod_requirements(stated, &path, errors);
    consistency(spec, stated, &path, errors);
}

/// Requires that pod-level requests and huge page limits are at least the aggregate of the containers, and that no
/// container's limit exceeds the pod's.
///
/// Upstream: `validatePodResourceConsistency`.
fn consistency(spec: &Value, stated: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["requests", "limits"] {
        let path = path.field(field);
        let pod_amounts = object(stated, field);
        for (name, total) in aggregate(spec, field) {
            if field == "limits" && !name.starts_with("hugepages-") {
                continue;
            }
            let value =
                pod_amounts.and_then(|amounts| amounts.get(name)).and_then(pod_resources::quantity);
            if let Some(value) = value.filter(|value| total > *value) {
                let detail = format!(
                    "must be greater than or equal to aggregate container {field} of {total}"
                );
                errors.invalid(&path.key(name), value.to_string(), &detail);
            }
        }
    }
    let limits = object(stated, "limits");
    let containers_path = path.field("containers");
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (name, limit) in object(container, "resources.limits").into_iter().flatten() {
            let pod_limit =
                limits.and_then(|limits| limits.get(name)).and_then(pod_resources::quantity);
            let pair = pod_resources::quantity(limit).zip(pod_limit);
            if let Some((limit, pod_limit)) = pair.filter(|(limit, pod_limit)| limit > pod_limit) {
                let path = containers_path.index(index);
                let detail = format!("must be less than or equal to pod limits of {pod_limit}");
                errors.invalid(&path.key(name).field("limits"), limit.to_string(), &detail);
            }
        }
    }
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys` of a pod affinity term or a topology spread constraint.
///
/// Upstream: `ValidateMatchLabelKeysAndMismatchLabelKeys`.
pub(super) fn label_keys(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let keys = |field: &str| list(term, field).iter().filter_map(Value::as_str).collect::<Vec<_>>();
    let (matched, mismatched) = (keys("matchLabelKeys"), keys("mismatchLabelKeys"));
    let selector = get(term, "labelSelector");
    for (field, keys) in [("matchLabelKeys", &matched), ("mismatchLabelKeys", &mismatched)] {
        let path = path.field(field);
        if keys.is_empty() {
            continue;
        }
        if selector.is_none() {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            errors.invalid_for_each(&path.index(index), key, &names::qualified_name(key));
        }
    }
    if let Some(selector) = selector {
        // When a pod is created, the server adds an expression for each key of `matchLabelKeys`. Only a key that occurs
        // once more was in the selector of the user.
        let mut seen: BTreeSet<&str> = object(selector, "matchLabels")
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        for expression in list(selector, "matchExpressions") {
            let key = text(expression, "key");
            let index = matched.iter().rposition(|matched| *matched == key);
            if let Some(index) = index.filter(|_| seen.contains(key)) {
                let detail = "exists in both matchLabelKeys and labelSelector";
                errors.invalid(&path.index(index), key, detail);
            }
            seen.insert(key);
        }
    }
    let path = path.field("matchLabelKeys");
    for (index, key) in matched.iter().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.invalid(&path.index(index), *key, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_states_at_least_what_its_containers_need() {
        let container =
            json!({"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}});
        let cases: [(Value, &[&str]); 4] = [
            (json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}), &[]),
            (json!({"requests": {"cpu": "1"}}), &["spec.resources.requests[cpu]"]),
            (
                json!({"limits": {"memory": "1Mi"}}),
                &[
                    "spec.resources.containers[0][memory].limits",
                    "spec.resources.containers[1][memory].limits",
                ],
            ),
            (json!({"limits": {"a/b": "1"}}), &["spec.resources.limits[a/b]"]),
        ];
        for (stated, expected) in cases {
            let spec = json!({"containers": [container, container], "resources": stated});
            let mut errors = Errors::default();
            resources(&spec, &Path::new("spec"), &mut errors);
            let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
            assert_eq!(fields, expected, "{stated}");
        }
    }

    #[test]
    fn label_keys_need_a_selector_that_lacks_them() {
        let cases: [(Value, &[&str]); 5] = [
            (json!({"matchLabelKeys": ["a"]}), &["t.matchLabelKeys"]),
            (json!({"labelSelector": {}, "matchLabelKeys": ["a b"]}), &["t.matchLabelKeys[0]"]),
            (
                json!({"labelSelector": {"matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, "matchLabelKeys": ["a"]}),
                &["t[0]"],
            ),
            (
                json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                    "matchLabelKeys": ["a"]}),
                &[],
            ),
            (
                json!({"labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]}),
                &["t.matchLabelKeys[0]"],
            ),
        ];
        for (term, expected) in cases {
            let mut errors = Errors::default();
            label_keys(&term, &Path::new("t"), &mut errors);
            let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
            assert_eq!(fields, expected, "{term}");
        }
    }
}
