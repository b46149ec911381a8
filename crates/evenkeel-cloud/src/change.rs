//! Patches that several controllers write.

use evenkeel_api::{
    View,
    views::{Node, Taint},
};
use evenkeel_runtime::plan::{Patch, PatchForm, Target};
use serde_json::{Value, json};

/// The target of actions on this object.
pub(crate) fn target<V: View>(object: &V) -> Target {
    Target::of(V::kind(), object.meta())
}

/// A merge patch of a node with its resourceVersion as the precondition, because lists in it are replaced whole.
pub(crate) fn of_node(node: &Node, mut change: Value) -> Patch {
    change["metadata"]["resourceVersion"] = json!(&*node.meta.resource_version);
    Patch::new(target(node), PatchForm::Merge, change.to_string())
}

/// The JSON of `spec.taints`; `null` if none is left.
pub(crate) fn taints<'a>(taints: impl Iterator<Item = &'a Taint>) -> Value {
    let taints: Vec<Value> = taints.map(Taint::to_json_value).collect();
    if taints.is_empty() { Value::Null } else { Value::Array(taints) }
}

/// The status of a condition of the node.
pub(crate) fn condition<'a>(node: &'a Node, which: &str) -> Option<&'a str> {
    node.status.conditions.iter().find(|c| &*c.type_ == which).map(|c| &*c.status)
}
