//! Validation of a pod's affinity.

use super::{labels, names, pod_level};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;

/// Validates `spec.affinity` of a pod.
///
/// Upstream: `validateAffinity`.
pub(super) fn affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = get(affinity, "nodeAffinity") {
        node_affinity(node, &path.field("nodeAffinity"), errors);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = get(affinity, field) else { continue };
        let path = path.field(field);
        let required = path.field("requiredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in
            list(pods, "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
        {
            pod_term(term, &required.index(index), errors);
        }
        let preferred = path.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, weighted) in
            list(pods, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
        {
            let path = preferred.index(index);
            weight(weighted, &path, errors);
            let term = get(weighted, "podAffinityTerm").unwrap_or(&Value::Null);
            pod_term(term, &path.field("podAffinityTerm"), errors);
        }
    }
}

fn weight(weighted: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = int(weighted, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.field("weight"), weight, "must be in the range 1-100");
    }
}

/// Validates a term of pod affinity or anti-affinity: selectors, namespaces, label keys and the topology key.
///
/// Upstream: `validatePodAffinityTerm`.
fn pod_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = get(term, field) {
            labels::selector(selector, &path.field(field), errors);
        }
    }
    // Upstream's errors name the field in the singular.
    let namespaces = path.field("namespace");
    for name in list(term, "namespaces").iter().filter_map(Value::as_str) {
        errors.invalid_for_each(&namespaces, name, &names::dns_label(name));
    }
    pod_level::label_keys(term, path, errors);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(&path.field("topologyKey"), "can not be empty");
    }
    errors.invalid_for_each(&path.field("topologyKey"), key, &names::qualified_name(key));
}

/// Validates the required and preferred node affinity.
///
/// Upstream: `validateNodeAffinity`.
fn node_affinity(node: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(required) = get(node, "requiredDuringSchedulingIgnoredDuringExecution") {
        let path = path.field("requiredDuringSchedulingIgnoredDuringExecution");
        node_selector(required, &path, errors);
    }
    let preferred = path.field("preferredDuringSchedulingIgnoredDuringExecution");
    for (index, weighted) in
        list(node, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
    {
        let path = preferred.index(index);
        weight(weighted, &path, errors);
        let term = get(weighted, "preference").unwrap_or(&Value::Null);
        node_term(term, true, &path.field("preference"), errors);
    }
}

/// Validates that the values in a pod's required node affinity are valid label values. Accepts invalid values if the
/// `old` spec has any.
pub(super) fn required_values(
    spec: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    let Some(selector) = get(spec, required) else { return };
    if old.and_then(|old| get(old, required)).is_some_and(has_invalid_value) {
        return;
    }
    let path = path.field(required);
    let terms = path.field("nodeSelectorTerms");
    for (index, term) in list(selector, "nodeSelectorTerms").iter().enumerate() {
        let path = terms.index(index);
        let match_expressions_path = path.field("matchExpressions");
        for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
            label_values(expression, &match_expressions_path.index(index), errors);
        }
    }
}

fn label_values(expression: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("values");
    let values = list(expression, "values").iter().filter_map(Value::as_str);
    for (index, value) in values.enumerate() {
        errors.invalid_for_each(&path.index(index), value, &names::label_value(value));
    }
}

/// Validates a node selector of a pod.
fn node_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_node_selector(selector, true, path, errors);
}

/// Validates the node selector of a required node affinity or a persistent volume. With `allow_invalid_values`, accepts
/// values that are not valid label values.
///
/// Upstream: `ValidateNodeSelector`.
pub(super) fn validate_node_selector(
    selector: &Value,
    allow_invalid_values: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.field("nodeSelectorTerms");
    let terms = list(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(term, allow_invalid_values, &path.index(index), errors);
    }
}

/// Returns whether a node selector has a value that is invalid as a label value.
///
/// Upstream: `HasInvalidLabelValueInNodeSelectorTerms`.
pub(super) fn has_invalid_value(selector: &Value) -> bool {
    let expressions =
        list(selector, "nodeSelectorTerms").iter().flat_map(|term| list(term, "matchExpressions"));
    let mut values = expressions.flat_map(|expression| list(expression, "values"));
    values.any(|value| value.as_str().is_some_and(|value| !names::label_value(value).is_empty()))
}

/// Validates a term of a node selector: operators and values of its label and field requirements.
///
/// Upstream: `ValidateNodeSelectorTerm`.
fn node_term(term: &Value, allow_invalid_values: bool, path: &Path<'_>, errors: &mut Errors) {
    let match_expressions_path = path.field("matchExpressions");
    for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
        let path = match_expressions_path.index(index);
        let value_count = list(expression, "values").len();
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if value_count == 0 {
                    errors.required(
                        &path.field("values"),
                        "must be specified when `operator` is 'In' or 'NotIn'",
                    );
                }
            }
            "Exists" | "DoesNotExist" => {
                if value_count > 0 {
                    let detail =
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.forbidden(&path.field("values"), detail);
                }
            }
            "Gt" | "Lt" => {
                if value_count != 1 {
                    errors.required(
                        &path.field("values"),
                        "must be specified single value when `operator` is 'Lt' or 'Gt'",
                    );
                }
            }
            other => {
                errors.invalid(&path.field("operator"), other, "not a valid selector operator");
            }
        }
        let key = text(expression, "key");
        errors.invalid_for_each(&path.field("key"), key, &names::qualified_name(key));
        if !allow_invalid_values {
            label_values(expression, &path, errors);
        }
    }
    let match_fields_path = path.field("matchFields");
    for (index, expression) in list(term, "matchFields").iter().enumerate() {
        let path = match_fields_path.index(index);
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if list(expression, "values").len() != 1 {
                    errors.required(&path.field("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector");
                }
            }
            other => {
                errors.invalid(&path.field("operator"), other, "not a valid selector operator");
            }
        }
        let key = text(expression, "key");
        if key != "metadata.name" {
            errors.invalid(&path.field("key"), key, "not a valid field selector key");
            continue;
        }
        let path = path.field("values");
        let values = list(expression, "values").iter().filter_map(Value::as_str);
        for (index, name) in values.enumerate() {
            errors.invalid_for_each(&path.index(index), name, &names::dns_subdomain(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn match_fields_only_support_names_of_nodes() {
        for (expression, expected) in [
            (json!({"key": "metadata.name", "operator": "In", "values": ["n1"]}), vec![]),
            (json!({"key": "metadata.name", "operator": "In", "values": ["N"]}), vec!["values[0]"]),
            (json!({"key": "a", "operator": "In", "values": ["N"]}), vec!["key"]),
            (json!({"key": "metadata.name", "operator": "Exists", "values": []}), vec!["operator"]),
        ] {
            let mut errors = Errors::default();
            let selector = json!({"nodeSelectorTerms": [{"matchFields": [expression]}]});
            validate_node_selector(&selector, false, &Path::new("s"), &mut errors);
            let fields: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            let expected: Vec<String> = expected
                .iter()
                .map(|end| format!("s.nodeSelectorTerms[0].matchFields[0].{end}"))
                .collect();
            assert_eq!(fields, expected, "{expression}");
        }
    }

    #[test]
    fn pod_affinity_terms_need_a_topology_key_and_valid_namespaces() {
        let mut errors = Errors::default();
        let required = json!([{"namespaces": ["A"]}]);
        let pods =
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        affinity(&pods, &Path::new("a"), &mut errors);
        let term_path = "a.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
        let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let expected = [
            format!("{term_path}.namespace: Invalid value: \"A\""),
            format!("{term_path}.topologyKey: Required value: can not be empty"),
            format!("{term_path}.topologyKey: Invalid value: \"\": name part must be non-empty"),
            format!("{term_path}.topologyKey: Invalid value: \"\": name part must consist"),
        ];
        let is_same = found.iter().zip(&expected).all(|(found, start)| found.starts_with(start));
        assert!(is_same && found.len() == expected.len(), "{found:#?}");
    }
}
