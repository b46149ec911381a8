//! Managed fields of replicas that clients write through the `scale` subresource.

use serde_json::Value;

use super::meta;
use super::precondition::mismatch;
use crate::request::RequestContext;
use crate::resource::{GroupResource, GroupVersionKind};
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::schema::Schema;
use evenkeel_apimachinery::status::StatusError;

/// Path of the replicas in every built-in kind.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

fn is_scale(part: &GroupVersionKind) -> bool {
    &*part.kind == "Scale"
}

/// Returns whether writes through the view update managed fields. As in upstream, those of custom resources do not.
pub(super) fn is_managed(request: &RequestContext<'_>) -> bool {
    request.resource().custom.is_none()
}

/// Refuses a patched Scale whose uid is not the object's.
///
/// Upstream: `scaleUpdatedObjectInfo.UpdatedObject`.
pub(super) fn check_uid(
    request: &RequestContext<'_>,
    object: &Value,
    view: &Value,
) -> Result<(), StatusError> {
    let (uid, own) = (meta::text(view, "uid"), meta::text(object, "uid"));
    if uid.is_empty() || uid == own {
        return Ok(());
    }
    let (resource, target) = (request.resource(), &request.target);
    let part = GroupResource {
        group: resource.name.group.clone(),
        resource: format!("{}/{}", resource.plural(), target.subresource).into(),
    };
    let why = mismatch("UID", uid, own);
    Err(StatusError::conflict(&part, target.name, why))
}

/// Copies the managers of the object's replicas to the view.
pub(super) fn show(part: &GroupVersionKind, object: &Value, view: &mut Value) {
    if is_scale(part) {
        patch::set_scale_managers(object, &REPLICAS, view);
    }
}

/// Updates the view's managers after a write other than an apply.
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

/// Copies the view's managers to the written object. Returns whether the view is a Scale.
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
