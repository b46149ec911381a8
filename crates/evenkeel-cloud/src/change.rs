//! Patches that several cloud controllers write.

use evenkeel_api::{
    View,
    views::{Node, Taint},
};
use evenkeel_runtime::plan::{Patch, PatchType, Target};
use serde_json::{Value, json};

/// Returns the object as the target of actions.
pub(crate) fn target<V: View>(object: &V) -> Target {
    Target::of(V::kind(), object.meta())
}

/// Returns a merge patch of a node. Its precondition is the node's resourceVersion, because a merge patch
/// replaces whole lists.
pub(crate) fn node_patch(node: &Node, mut body: Value) -> Patch {
    body["metadata"]["resourceVersion"] = json!(&*node.meta.resource_version);
    Patch::new(target(node), PatchType::Merge, body.to_string())
}

/// Returns the JSON of `spec.taints`, or `null` if no taint is left.
pub(crate) fn taints<'a>(taints: impl Iterator<Item = &'a Taint>) -> Value {
    let taints: Vec<Value> = taints.map(Taint::to_json_value).collect();
    if taints.is_empty() { Value::Null } else { Value::Array(taints) }
}

/// Returns the status of the node's condition of this type.
pub(crate) fn condition_status<'a>(node: &'a Node, type_: &str) -> Option<&'a str> {
    node.status
        .conditions
        .iter()
        .find(|condition| &*condition.type_ == type_)
        .map(|condition| &*condition.status)
}
