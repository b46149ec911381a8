//! Who manages replicas that are written through the `scale` view of an object.

use serde_json::Value;

use crate::request::RequestContext;
use crate::resource::GroupVersionKind;
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::schema::Schema;

/// Where every built-in kind has its replicas.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

fn is_scale(part: &GroupVersionKind) -> bool {
    &*part.kind == "Scale"
}

/// Whether the managers of replicas go through the view. Those of custom objects do not, as upstream has it.
pub(super) fn is_managed(request: &RequestContext<'_>) -> bool {
    request.resource().custom.is_none()
}

/// Gives the view the managers that the object has for its replicas.
pub(super) fn show(part: &GroupVersionKind, object: &Value, view: &mut Value) {
    if is_scale(part) {
        patch::set_scale_managers(object, &REPLICAS, view);
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
        patch::update_managed_fields(Schema::of(part).as_ref(), Some(before), view, writer);
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
        patch::set_parent_managers(kind, old, &REPLICAS, view, new);
    }
    is_scale(part)
}
