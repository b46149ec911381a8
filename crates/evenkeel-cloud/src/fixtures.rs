//! Objects for tests, and a simulated API server with a single object.

use evenkeel_api::{
    Encoding, View,
    views::{Node, Service},
};
use evenkeel_runtime::plan::{Action, EventRecord, Patch, PatchType, Plan};
use serde_json::{Value, json};
use std::sync::Arc;

/// Decodes an object from its JSON.
#[track_caller]
pub(crate) fn object<V: View>(json: &Value) -> V {
    V::decode(json.to_string().as_bytes(), Encoding::Json).unwrap()
}

/// Returns a Service of type `LoadBalancer`, whose name is also its uid.
pub(crate) fn balanced(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
        "spec": {
            "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}],
        },
        "status": {"loadBalancer": {}},
    })
}

pub(crate) fn service(json: &Value) -> Arc<Service> {
    Arc::new(object(json))
}

/// Returns a ready node.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(crate) fn node_view(json: &Value) -> Arc<Node> {
    Arc::new(object(json))
}

/// Summarizes the writes and events of a plan, in order: `patch <resource>`, `delete <name>`, or the event's reason.
pub(crate) fn action_summaries(plan: &Plan) -> Vec<String> {
    let summary = |action: &Action| match action {
        Action::Patch(patch) => format!("patch {}", patch.target.kind.plural),
        Action::Delete(delete) => format!("delete {}", delete.target.name),
        Action::Event(event) => event.reason.to_string(),
        other => panic!("not what these controllers do: {other:?}"),
    };
    plan.actions.iter().map(summary).collect()
}

/// Returns the only event of a plan.
#[track_caller]
pub(crate) fn event(plan: &Plan) -> &EventRecord {
    let events: Vec<&EventRecord> = plan
        .actions
        .iter()
        .filter_map(|action| if let Action::Event(event) = action { Some(event) } else { None })
        .collect();
    let [event] = events[..] else { panic!("not one event: {plan:?}") };
    event
}

/// Applies the patches of a plan to an object, as a server would. Returns the number of patches.
pub(crate) fn apply(plan: &Plan, object: &mut Value) -> usize {
    let patches: Vec<&Patch> = plan
        .actions
        .iter()
        .filter_map(|action| if let Action::Patch(patch) = action { Some(patch) } else { None })
        .collect();
    for patch in &patches {
        let mut body: Value = serde_json::from_slice(&patch.body).unwrap();
        check_precondition(object, &mut body);
        if patch.form == PatchType::Strategic {
            complete_lists(object, &mut body);
        }
        merge(object, &body);
        increment_resource_version(object);
    }
    patches.len()
}

fn check_precondition(object: &Value, body: &mut Value) {
    let Some(metadata) = body["metadata"].as_object_mut() else { return };
    for field in ["uid", "resourceVersion"] {
        if let Some(expected) = metadata.remove(field) {
            assert_eq!(object["metadata"][field], expected, "a precondition does not hold");
        }
    }
}

/// Turns a strategic merge patch into a merge patch: replaces the partial lists that the cloud controllers write by
/// whole lists.
fn complete_lists(object: &Value, body: &mut Value) {
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let metadata = &mut body["metadata"];
    if let Some(removed) = metadata.get("$deleteFromPrimitiveList/finalizers").cloned() {
        finalizers.retain(|f| !removed.as_array().unwrap().contains(f));
        metadata.as_object_mut().unwrap().remove("$deleteFromPrimitiveList/finalizers");
        metadata["finalizers"] = finalizers.clone().into();
    } else if let Some(added) = metadata.get("finalizers").cloned() {
        finalizers.extend(added.as_array().unwrap().iter().cloned());
        metadata["finalizers"] = finalizers.into();
    }
    if let Some(changed) = body["status"]["conditions"].as_array().cloned() {
        let mut all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.retain(|c| changed.iter().all(|changed| changed["type"] != c["type"]));
        all.extend(changed);
        body["status"]["conditions"] = all.into();
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut object[key], value);
        }
    }
}

fn increment_resource_version(object: &mut Value) {
    let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    object["metadata"]["resourceVersion"] = (version + 1).to_string().into();
}
