//! The patches that several controllers write.

use evenkeel_api::{
    View,
    views::{Node, Taint},
};
use evenkeel_runtime::plan::{Patch, PatchForm, Target};
use serde_json::{Value, json};

/// Which object an action is about.
pub(crate) fn target<V: View>(object: &V) -> Target {
    Target::of(V::kind(), object.meta())
}

/// A patch of a node at the version that was looked at: lists in it are replaced whole.
pub(crate) fn of_node(node: &Node, mut change: Value) -> Patch {
    change["metadata"]["resourceVersion"] = json!(&*node.meta.resource_version);
    Patch::new(target(node), PatchForm::Merge, change.to_string())
}

/// The value of `spec.taints`, where none are left also.
pub(crate) fn taints<'a>(taints: impl Iterator<Item = &'a Taint>) -> Value {
    let taints: Vec<Value> = taints.map(Taint::to_json_value).collect();
    if taints.is_empty() { Value::Null } else { Value::Array(taints) }
}

/// Whether a condition of the node has this status.
pub(crate) fn condition<'a>(node: &'a Node, which: &str) -> Option<&'a str> {
    node.status.conditions.iter().find(|c| &*c.type_ == which).map(|c| &*c.status)
}
