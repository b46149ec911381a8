//! Who manages replicas that are written through the `scale` view of an object.

use serde_json::Value;

use crate::patch::{self, Writer};
use crate::resource::GroupVersionKind;

/// Where every built-in kind has its replicas.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

fn is_scale(part: &GroupVersionKind) -> bool {
    &*part.kind == "Scale"
}

/// Gives the view the managers that the object has for its replicas.
pub(super) fn show(part: &GroupVersionKind, object: &Value, view: &mut Value) {
    if is_scale(part) {
        patch::show_managers(object, &REPLICAS, view);
    }
}

/// Brings the view's managers up to date after a write that was no apply.
pub(super) fn track(
    part: &GroupVersionKind,
    before: &Value,
    view: &mut Value,
    writer: &Writer<'_>,
) {
    if is_scale(part) {
        patch::track(part, Some(before), view, writer);
    }
}

/// Takes the view's managers over into the written object, and says whether that was done.
pub(super) fn settle(
    part: &GroupVersionKind,
    kind: &GroupVersionKind,
    old: &Value,
    view: &Value,
    new: &mut Value,
) -> bool {
    if is_scale(part) {
        patch::settle_managers(kind, old, &REPLICAS, view, new);
    }
    is_scale(part)
}
