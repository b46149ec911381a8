//! Validation of `pods/resize`: only the amounts of CPU and memory can change.

use super::{pod, pod_annotations};
use crate::pod_resources;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{
    copy, get, is_empty, list, object, remove, same, same_meaning, set, text,
};
use serde_json::Value;

/// Validates a resize of a pod.
///
/// Upstream: `ValidatePodResize`.
pub(super) fn resize(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let none = Value::Null;
    let (new_spec, old_spec) = (new.get("spec").unwrap_or(&none), old.get("spec").unwrap_or(&none));
    if pod_annotations::is_mirror(old) {
        return errors.forbidden(&Path::new(""), "static pods cannot be resized");
    }
    if text(old_spec, "os.name") == "windows" {
        return errors.forbidden(&Path::new(""), "windows pods cannot be resized");
    }
    let mut resize_errors = Errors::default();
    pod::metadata_and_spec(new, Some(old), &mut resize_errors);
    let class = match text(old, "status.qosClass") {
        "" => pod_resources::qos_class(old),
        class => class,
    };
    if class != pod_resources::qos_class(new) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        resize_errors.invalid(&path, text(new, "status.qosClass"), detail);
    }
    if !node_supports_resize(old) {
        resize_errors.forbidden(&path, "Pod running on node without support for resize");
    }
    let mut masked = new_spec.clone();
    pod_level(new_spec, old_spec, &mut masked, &path, &mut resize_errors);
    if !same_order(new_spec, old_spec, &path, &mut resize_errors) {
        return errors.extend(resize_errors);
    }
    for field in ["initContainers", "containers"] {
        let list_path = path.field(field);
        for (index, (new, old)) in
            list(new_spec, field).iter().zip(list(old_spec, field)).enumerate()
        {
            let path = list_path.index(index);
            let path = path.field("resources");
            for part in ["requests", "limits"] {
                if removes(new, old, &format!("resources.{part}")) {
                    let detail = format!("resource {part} cannot be removed");
                    resize_errors.forbidden(&path.field(part), &detail);
                }
            }
        }
    }
    immutable_parts(new_spec, old_spec, &mut masked, &path, &mut resize_errors);
    if !same(new_spec.get("volumes"), old_spec.get("volumes")) {
        let detail = "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature \
                      gate is disabled";
        resize_errors.forbidden(&path.field("volumes"), detail);
    }
    if resize_errors.is_empty() && !same_meaning(&masked, old_spec) {
        resize_errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
    errors.extend(resize_errors);
}

/// Returns whether the node of a pod can resize the pod. A node that can also reports the resources of running
/// containers.
///
/// Upstream: `isPodResizeRequestSupported`.
fn node_supports_resize(pod: &Value) -> bool {
    let statuses = list(pod, "status.containerStatuses");
    let running = statuses.iter().find(|status| get(status, "state.running").is_some());
    running.is_none_or(|status| get(status, "resources").is_some())
}

/// Validates a resize of pod-level resources: only CPU and memory may change, and nothing may be removed. Resets
/// allowed changes in `masked`.
///
/// Upstream: `validatePodLevelResourcesResize`.
fn pod_level(new: &Value, old: &Value, masked: &mut Value, path: &Path<'_>, errors: &mut Errors) {
    let is_set =
        |spec: &Value| !is_empty(spec, "resources.requests") || !is_empty(spec, "resources.limits");
    if !is_set(new) && !is_set(old) {
        return;
    }
    let resources = path.field("resources");
    if old.get("resources").is_some() {
        if new.get("resources").is_none() {
            return errors.forbidden(&resources, "pod-level resources cannot be removed");
        }
        for part in ["requests", "limits"] {
            if removes(new, old, &format!("resources.{part}")) {
                let detail = format!("pod-level resource {part} cannot be removed");
                errors.forbidden(&resources.field(part), &detail);
            }
        }
    }
    reset_cpu_and_memory(masked, old);
    if old.get("resources").is_none() && is_empty(masked, "resources.claims") && !is_set(masked) {
        remove(masked, "resources");
    }
    if !same(masked.get("resources"), old.get("resources")) {
        errors.forbidden(path, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Requires that only the amounts of CPU and memory of containers change.
fn immutable_parts(
    new: &Value,
    old: &Value,
    masked: &mut Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in ["containers", "initContainers"] {
        let list_path = path.field(field);
        for (index, before) in list(old, field).iter().enumerate() {
            let Some(container) =
                masked.get_mut(field).and_then(|containers| containers.get_mut(index))
            else {
                continue;
            };
            reset_cpu_and_memory(container, before);
            let changes = !same_meaning(container, before);
            if field == "containers" {
                if changes {
                    errors.forbidden(path, "only cpu and memory resources are mutable");
                }
                continue;
            }
            let path = list_path.index(index);
            if changes {
                let detail =
                    "only cpu and memory resources for init or sidecar containers are mutable";
                errors.forbidden(&path, detail);
            }
            let after = list(new, field).get(index).unwrap_or(&Value::Null);
            if text(after, "restartPolicy") != "Always" && !same_meaning(after, before) {
                for policy in list(after, "resizePolicy") {
                    if text(policy, "restartPolicy") == "RestartContainer" {
                        let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot \
                                      be resized";
                        errors.forbidden(&path, detail);
                    }
                }
            }
        }
    }
}

/// Sets the requests and limits of `holder`, a pod's spec or a container, for CPU and memory to those of `old`. A
/// comparison with `old` then only shows other changes.
///
/// Upstream: `dropCPUMemoryUpdates`.
fn reset_cpu_and_memory(holder: &mut Value, old: &Value) {
    if holder.get("resources").is_none() && old.get("resources").is_none() {
        return;
    }
    for field in ["resources.requests", "resources.limits"] {
        let before = object(old, field);
        let mut map = object(holder, field).cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            map.remove(name);
            if let Some(amount) = before.and_then(|before| before.get(name)) {
                map.insert(name.to_owned(), amount.clone());
            }
        }
        if map.is_empty() {
            copy(holder, old, field);
        } else {
            set(holder, field, map);
        }
    }
}

/// Returns whether the map of resources at `field` lost a resource.
///
/// Upstream: `resourcesRemoved`.
fn removes(new: &Value, old: &Value, field: &str) -> bool {
    let before = object(old, field).into_iter().flatten();
    let after = object(new, field);
    before.map(|(name, _)| name).any(|name| !after.is_some_and(|after| after.contains_key(name)))
}

/// Requires that the containers keep their names and order. Returns whether they do.
///
/// Upstream: `validatePodResizeContainerOrdering`.
fn same_order(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let mut is_same = true;
    for field in ["containers", "initContainers"] {
        let (after, before) = (list(new, field), list(old, field));
        let path = path.field(field);
        if after.len() != before.len() {
            errors.forbidden(&path, &format!("{field} may not be added or removed on resize"));
            is_same = false;
            continue;
        }
        for (index, (after, before)) in after.iter().zip(before).enumerate() {
            if text(after, "name") != text(before, "name") {
                let detail = format!("{field} may not be renamed or reordered on resize");
                errors.forbidden(&path.index(index).field("name"), &detail);
                is_same = false;
            }
        }
    }
    is_same
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(cpu: &str, memory: &str) -> Value {
        json!({"status": {"qosClass": "Burstable"}, "spec": {
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}})
    }

    fn refused(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut new = pod("2", "1Gi");
        change(&mut new);
        let mut errors = Errors::default();
        resize(&new, &pod("1", "1Gi"), &mut errors);
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_amounts_of_cpu_and_memory_change() {
        assert_eq!(refused(|_| {}), Vec::<String>::new());
        let container = "/spec/containers/0";
        let changes: [(&str, Value, &str); 5] = [
            ("/spec/containers", json!([]), "containers may not be added or removed on resize"),
            ("/spec/containers/0/name", json!("d"), "containers may not be renamed or reordered"),
            ("/spec/containers/0/image", json!("j"), "only cpu and memory resources are mutable"),
            (
                "/spec/containers/0/resources/requests",
                json!({"cpu": "2"}),
                "resource requests cannot be removed",
            ),
            (
                "/spec/containers/0/resources",
                json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
                "Pod QOS Class may not change",
            ),
        ];
        for (pointer, value, expected) in changes {
            let errors = refused(|new| *new.pointer_mut(pointer).expect(container) = value.clone());
            assert!(errors.iter().any(|error| error.contains(expected)), "{pointer}: {errors:?}");
        }
        let errors = refused(|new| new["spec"]["nodeName"] = json!("n"));
        assert_eq!(errors, ["spec: Forbidden: only cpu and memory resources are mutable"]);
    }
}
