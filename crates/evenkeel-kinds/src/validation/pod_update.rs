//! Validation of pod updates. Few fields of the spec are mutable.

use super::ValidationTarget;
use super::{pod, pod_annotations, pod_resize, pod_status};
use crate::internal::{diff, quoted};
use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{copy, get, int, is_empty, list, object, remove, set, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Error detail for changes of immutable fields of the spec.
const SPEC_DETAIL: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                          `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                          additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
                          to 1 if it was previously negative)";

/// Validates an update of a pod through one of its paths.
///
/// Upstream: `ValidatePodUpdate`.
pub(crate) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    match target.subresource {
        "status" => pod_status::update(new, old, errors),
        "ephemeralcontainers" => ephemeral(new, old, errors),
        "resize" => pod_resize::resize(new, old, errors),
        _ => spec(new, old, errors),
    }
}

fn spec(new: &Value, old: &Value, errors: &mut Errors) {
    let (metadata, path) = (Path::new("metadata"), Path::new("spec"));
    pod::metadata_and_spec(new, Some(old), errors);
    pod_annotations::changes(new, old, &metadata.field("annotations"), errors);
    let (Some(new), Some(old)) = (new.get("spec"), old.get("spec")) else { return };
    for field in ["containers", "initContainers"] {
        if list(new, field).len() != list(old, field).len() {
            errors.forbidden(&path.field(field), "pod updates may not add or remove containers");
            return;
        }
    }
    if !deadline(new, old, &path, errors) {
        return;
    }
    tolerations(new, old, &path, errors);
    added_gates(new, old, &path, errors);
    if new == old {
        return;
    }
    let has_gates = !list(old, "schedulingGates").is_empty();
    // The new spec, with the fields that may change reset to their old values.
    let mut allowed = new.clone();
    for field in ["containers", "initContainers"] {
        for (index, before) in list(old, field).iter().enumerate() {
            if let Some(after) =
                allowed.get_mut(field).and_then(|containers| containers.get_mut(index))
            {
                copy(after, before, "image");
            }
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(&mut allowed, old, field);
    }
    if has_gates {
        node_selector(new, old, &path.field("nodeSelector"), errors);
        copy(&mut allowed, old, "nodeSelector");
        node_affinity(new, old, &path.field("affinity").field("nodeAffinity"), errors);
        keep_node_affinity(&mut allowed, old);
    }
    if int(old, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0)
        && int(new, "terminationGracePeriodSeconds") == Some(1)
    {
        set(
            &mut allowed,
            "terminationGracePeriodSeconds",
            int(old, "terminationGracePeriodSeconds"),
        );
    }
    if allowed != *old {
        let diff = diff("core.PodSpec", Some(old), Some(&allowed));
        errors.forbidden(&path, &format!("{SPEC_DETAIL}\n{diff}"));
    }
}

/// Requires that an update only sets or shortens `activeDeadlineSeconds`. Returns `false` after errors that end the
/// validation upstream.
fn deadline(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let path = path.field("activeDeadlineSeconds");
    match (int(new, "activeDeadlineSeconds"), int(old, "activeDeadlineSeconds")) {
        (Some(after), _) if !(0..=i64::from(i32::MAX)).contains(&after) => {
            errors.in_range(&path, Some(after), 0, i64::from(i32::MAX));
            false
        }
        (Some(after), Some(before)) if after > before => {
            errors.invalid(&path, after, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(&path, Value::Null, detail);
            true
        }
        _ => true,
    }
}

/// Requires that an update only removes scheduling gates.
fn added_gates(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let before: BTreeSet<&str> =
        list(old, "schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    let scheduling_gates_path = path.field("schedulingGates");
    for (index, gate) in list(new, "schedulingGates").iter().enumerate() {
        if !before.contains(text(gate, "name")) {
            let name = text(gate, "name");
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&scheduling_gates_path.index(index).field("name"), &detail);
        }
    }
}

/// Requires that an update of a pod with scheduling gates only adds labels to the node selector.
///
/// Upstream: `validateNodeSelectorMutation`.
fn node_selector(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (after, before) = (object(new, "nodeSelector"), object(old, "nodeSelector"));
    let keeps = |(key, value): (&String, &Value)| {
        after.and_then(|after| after.get(key)).is_some_and(|after| after == value)
    };
    if !before.into_iter().flatten().all(keeps) {
        let value = get(new, "nodeSelector").cloned().unwrap_or_default();
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(path, value, detail);
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Requires that an update of a pod with scheduling gates only makes its required node affinity stricter.
///
/// Upstream: `validateNodeAffinityMutation`.
fn node_affinity(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let terms = |spec| list(spec, &format!("affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"));
    let (after, before) = (terms(new), terms(old));
    if before.is_empty() {
        return;
    }
    let path = path.field(REQUIRED);
    let path = path.field("nodeSelectorTerms");
    if after.len() != before.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let after = quoted("[]core.NodeSelectorTerm", Some(&Value::from(after)));
        return errors.invalid(&path, after, detail);
    }
    for (index, (after, before)) in after.iter().zip(before).enumerate() {
        let adds_only = |field: &str| list(after, field).starts_with(list(before, field));
        // A term without requirements matches no node. With an added requirement, it could match nodes.
        let is_empty_term = is_empty(before, "matchExpressions") && is_empty(before, "matchFields");
        let changes = after != before;
        if is_empty_term && changes || !adds_only("matchExpressions") || !adds_only("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            let after = quoted("core.NodeSelectorTerm", Some(after));
            errors.invalid(&path.index(index), after, detail);
        }
    }
}

/// Resets the node affinity of a pod's spec to that of `old`. A comparison with `old` then shows changes of other
/// affinities only.
fn keep_node_affinity(spec: &mut Value, old: &Value) {
    let before = get(old, "affinity.nodeAffinity").cloned();
    if before.as_ref() == get(spec, "affinity.nodeAffinity") {
        return;
    }
    match before {
        Some(before) => set(spec, "affinity.nodeAffinity", before),
        None => {
            remove(spec, "affinity.nodeAffinity");
        }
    }
    let is_without_affinity = get(old, "affinity").is_none() && is_empty(spec, "affinity");
    if is_without_affinity {
        remove(spec, "affinity");
    }
}

/// Requires that existing tolerations stay unchanged, except for `tolerationSeconds`. New ones may be added.
///
/// Upstream: `validateOnlyAddedTolerations`.
fn tolerations(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let key = |toleration: &Value| {
        ["key", "operator", "value", "effect"]
            .map(|field| text(toleration, field).to_owned())
            .join("\u{0}")
    };
    let after: BTreeSet<String> = list(new, "tolerations").iter().map(key).collect();
    if !list(old, "tolerations").iter().all(|toleration| after.contains(&key(toleration))) {
        errors.forbidden(
            &path.field("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

/// Requires that an update keeps existing ephemeral containers as they are.
///
/// Upstream: `ValidatePodEphemeralContainersUpdate`.
fn ephemeral(new: &Value, old: &Value, errors: &mut Errors) {
    if pod_annotations::is_mirror(old) {
        let detail = "static pods do not support ephemeral containers";
        return errors.forbidden(&Path::new(""), detail);
    }
    let (metadata, path) = (Path::new("metadata"), Path::new("spec.ephemeralContainers"));
    pod::metadata_and_spec(new, Some(old), errors);
    pod_annotations::changes(new, old, &metadata.field("annotations"), errors);
    let containers = |pod| list(pod, "spec.ephemeralContainers");
    let after: BTreeMap<&str, &Value> =
        containers(new).iter().map(|container| (text(container, "name"), container)).collect();
    for before in containers(old) {
        let name = quote(text(before, "name"));
        match after.get(text(before, "name")) {
            None => {
                let detail = format!("existing ephemeral containers {name} may not be removed\n");
                errors.forbidden(&path, &detail);
            }
            Some(after) if *after != before => {
                let diff = diff("core.EphemeralContainer", Some(before), Some(after));
                let detail =
                    format!("existing ephemeral containers {name} may not be changed\n{diff}");
                errors.forbidden(&path, &detail);
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a pod with a scheduling gate and changed fields, given by path.
    fn pod(changes: &[(&str, Value)]) -> Value {
        let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        let mut pod = json!({"spec": {
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 1,
            "schedulingGates": [{"name": "gate"}],
            "nodeSelector": {"a": "b"},
            "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}},
            "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}],
        }});
        for (path, value) in changes {
            set(&mut pod, path, value.clone());
        }
        pod
    }

    #[test]
    fn an_update_of_a_pod_with_gates_only_adds_scheduling_constraints() {
        let affinity = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
        let (first, second) =
            (json!({"key": "a", "operator": "Exists"}), json!({"key": "b", "operator": "Exists"}));
        let terms = |expressions: Value| json!([{ "matchExpressions": expressions }]);
        let in_first = format!("{affinity}[0]");
        let topology = json!([{"topologyKey": "a"}]);
        let table: [(&str, Value, &[&str]); 8] = [
            ("spec.nodeSelector", json!({"a": "b", "c": "d"}), &[]),
            ("spec.nodeSelector", json!({"c": "d"}), &["spec.nodeSelector"]),
            (&affinity, terms(json!([first, second])), &[]),
            (&affinity, terms(json!([second, first])), &[&in_first]),
            (&affinity, json!([]), &[&affinity, &affinity]),
            ("spec.affinity.podAffinity", json!({ REQUIRED: topology }), &["spec"]),
            ("spec.schedulingGates", json!([]), &[]),
            ("spec.schedulingGates", json!([{"name": "x"}]), &["spec.schedulingGates[0].name"]),
        ];
        for (path, value, expected) in table {
            let new = pod(&[(path, value)]);
            let mut errors = Errors::default();
            spec(&new, &pod(&[]), &mut errors);
            let fields: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(fields, expected, "{new}");
        }
    }
}
