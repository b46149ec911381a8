//! `matchLabelKeys` and `mismatchLabelKeys` of a new pod's affinity terms and topology spread constraints. The server
//! converts these keys to requirements of the label selectors.

use evenkeel_apimachinery::value::{Object, get, get_mut, list, object};
use serde_json::{Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Adds a requirement to the label selectors for each label key. The value is that of the pod's own label.
///
/// Upstream: `mutatePodAffinity`, `mutateTopologySpreadConstraints`.
pub(crate) fn apply(pod: &mut Value) {
    if get(pod, "spec.affinity").is_none() && list(pod, "spec.topologySpreadConstraints").is_empty()
    {
        return;
    }
    let labels = object(pod, "metadata.labels").cloned().unwrap_or_default();
    for field in ["podAffinity", "podAntiAffinity"] {
        let path = format!("spec.affinity.{field}");
        for term in items_mut(pod, &format!("{path}.{REQUIRED}")) {
            add_requirements(term, &labels);
        }
        for weighted in items_mut(pod, &format!("{path}.{PREFERRED}")) {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                add_requirements(term, &labels);
            }
        }
    }
    for constraint in items_mut(pod, "spec.topologySpreadConstraints") {
        add_requirements(constraint, &labels);
    }
}

/// Returns the items of the list at `path`.
fn items_mut<'a>(pod: &'a mut Value, path: &str) -> &'a mut [Value] {
    get_mut(pod, path).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

/// Adds requirements for the label keys of an affinity term or a spread constraint to its label selector.
///
/// Upstream: `applyMatchLabelKeysAndMismatchLabelKeys`.
fn add_requirements(term: &mut Value, labels: &Object) {
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list(term, field).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    // A term without a selector matches no pod. A requirement would not change that.
    let Some(Value::Object(selector)) = get_mut(term, "labelSelector") else { return };
    let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
    if expressions.is_null() {
        *expressions = json!([]);
    }
    if let Value::Array(expressions) = expressions {
        expressions.extend(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_pods_own_labels_become_requirements() {
        let term = json!({"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["tier", "absent"],
            "mismatchLabelKeys": ["zone"]});
        let mut pod = json!({"metadata": {"labels": {"tier": "front", "zone": "z"}}, "spec": {
            "affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]},
                "podAffinity": {REQUIRED: [{"matchLabelKeys": ["tier"]}]}},
            "topologySpreadConstraints": [{"labelSelector": {}, "matchLabelKeys": ["tier"]}]}});
        apply(&mut pod);
        let front = json!({"key": "tier", "operator": "In", "values": ["front"]});
        let zone = json!({"key": "zone", "operator": "NotIn", "values": ["z"]});
        let expressions = |pointer: &str| pod["spec"].pointer(pointer).cloned();
        let preferred = format!(
            "/affinity/podAntiAffinity/{PREFERRED}/0/podAffinityTerm/labelSelector/matchExpressions"
        );
        assert_eq!(expressions(&preferred), Some(json!([front, zone])));
        let constraint = "/topologySpreadConstraints/0/labelSelector/matchExpressions";
        assert_eq!(expressions(constraint), Some(json!([front])));
        let required = format!("/affinity/podAffinity/{REQUIRED}/0/labelSelector");
        assert_eq!(expressions(&required), None, "a term without a selector keeps none");
    }
}
