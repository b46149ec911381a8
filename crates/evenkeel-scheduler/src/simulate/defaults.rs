//! Defaults that an API server would set on hand-written objects. Only fields that scheduling reads are set.

use serde_json::Value;

/// System PriorityClasses with their values.
const SYSTEM_PRIORITY_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Returns whether a value is an empty string or not a string.
fn is_absent(value: &Value) -> bool {
    value.as_str().is_none_or(str::is_empty)
}

/// Sets the namespace and a uid, if absent.
pub(super) fn set_metadata_defaults(object: &mut Value) {
    if is_absent(&object["metadata"]["namespace"]) {
        object["metadata"]["namespace"] = "default".into();
    }
    if is_absent(&object["metadata"]["uid"]) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let namespace = text("namespace");
        let name = text("name");
        let uid = match object["kind"].as_str() {
            None | Some("Pod") => format!("{namespace}/{name}"),
            Some(kind) => format!("{kind} {namespace}/{name}"),
        };
        object["metadata"]["uid"] = uid.into();
    }
}

/// Sets metadata, the scheduler name, and requests from limits, if absent.
pub(super) fn set_pod_defaults(pod: &mut Value) {
    set_metadata_defaults(pod);
    if is_absent(&pod["spec"]["schedulerName"]) {
        pod["spec"]["schedulerName"] = crate::DEFAULT_SCHEDULER.into();
    }
    for field in ["containers", "initContainers"] {
        for container in pod["spec"][field].as_array_mut().into_iter().flatten() {
            let Some(limits) = container["resources"]["limits"].as_object().cloned() else {
                continue;
            };
            for (name, limit) in limits {
                let request = &mut container["resources"]["requests"][name];
                if request.is_null() {
                    *request = limit;
                }
            }
        }
    }
}

/// Sets a pod's priority and preemption policy from its PriorityClass, if absent.
pub(super) fn set_priority(pod: &mut Value, classes: &[Value]) {
    if !pod["spec"]["priority"].is_null() {
        return;
    }
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
    let class = classes.iter().find(|class| match name {
        "" => class["globalDefault"] == true,
        name => class["metadata"]["name"] == *name,
    });
    let system_class = SYSTEM_PRIORITY_CLASSES.iter().find(|(class, _)| *class == name);
    let value = class
        .and_then(|class| class["value"].as_i64())
        .or(system_class.map(|(_, priority)| *priority));
    if let Some(value) = value {
        pod["spec"]["priority"] = value.into();
    }
    let policy = class.map_or(&Value::Null, |class| &class["preemptionPolicy"]);
    if is_absent(&pod["spec"]["preemptionPolicy"]) && !is_absent(policy) {
        pod["spec"]["preemptionPolicy"] = policy.clone();
    }
}
