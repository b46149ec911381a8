//! Strategy of `pods/resize`: which fields of a pod a resize can change.

use evenkeel_apimachinery::reset::{reset_field, reset_metadata_for_status};
use evenkeel_apimachinery::value::{get, list, remove, set, text};
use serde_json::Value;

use crate::pod_resources;

const CONTAINERS: [&str; 2] = ["spec.containers", "spec.initContainers"];

/// Resets all fields except the resources and the resize policies of containers, and the resources of the pod. If
/// containers are added or removed, does not change the pod. Validation then rejects it.
///
/// Upstream: `podResizeStrategy`, `dropNonResizeUpdates`.
pub(crate) fn prepare(new: &mut Value, old: &Value) {
    if CONTAINERS.iter().any(|field| list(new, field).len() != list(old, field).len()) {
        return;
    }
    let containers = CONTAINERS.map(|field| resize_containers(list(new, field), list(old, field)));
    let resources = get(new, "spec.resources").or_else(|| get(old, "spec.resources")).cloned();
    reset_field(new, old, "spec");
    reset_field(new, old, "status");
    reset_metadata_for_status(new, old);
    for (field, containers) in CONTAINERS.iter().zip(containers) {
        if !containers.is_empty() {
            set(new, field, containers);
        }
    }
    if let Some(resources) = resources {
        set(new, "spec.resources", resources);
    }
    pod_resources::default(new);
}

/// Returns the old containers with the new resources and resize policies. If a container is renamed or moved, returns
/// the new containers as they are.
fn resize_containers(new: &[Value], old: &[Value]) -> Vec<Value> {
    if new.iter().zip(old).any(|(new, old)| text(new, "name") != text(old, "name")) {
        return new.to_vec();
    }
    let mut containers = old.to_vec();
    for (container, new) in containers.iter_mut().zip(new) {
        for field in ["resources", "resizePolicy"] {
            match new.get(field) {
                Some(value) => set(container, field, value.clone()),
                None => {
                    remove(container, field);
                }
            }
        }
    }
    containers
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_resize_changes_nothing_but_resources() {
        let old = json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "status": {"phase": "Running"},
            "spec": {"nodeName": "n", "serviceAccountName": "s", "volumes": [{"name": "v"}],
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
        let new = json!({"metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"x": "y"}},
            "status": {"phase": "Failed"},
            "spec": {"nodeName": "other", "serviceAccountName": "admin", "hostNetwork": true, "volumes": [],
                "containers": [{"name": "c", "image": "evil", "resources": {"requests": {"cpu": "2"}},
                    "resizePolicy": [{"resourceName": "cpu"}]}]}});
        let mut prepared = new.clone();
        prepare(&mut prepared, &old);
        let mut expected = old.clone();
        expected["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
        expected["spec"]["containers"][0]["resizePolicy"] = json!([{"resourceName": "cpu"}]);
        assert_eq!(prepared, expected);

        let mut added = new.clone();
        added["spec"]["containers"] = json!([{"name": "c"}, {"name": "d"}]);
        let before = added.clone();
        prepare(&mut added, &old);
        assert_eq!(added, before, "validation refuses it");
    }
}
