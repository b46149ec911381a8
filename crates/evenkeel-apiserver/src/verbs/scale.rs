//! Managed fields of `spec.replicas` in writes of the `scale` subresource.
//!
//! A view is the body of a subresource, and `view_kind` is its kind. Only a view of the kind Scale has managed fields
//! of its own, so the functions that copy or update managers do nothing for other views.

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

fn is_scale(view_kind: &GroupVersionKind) -> bool {
    &*view_kind.kind == "Scale"
}

/// Returns whether a write of the subresource updates managed fields. As in upstream, a write of a custom resource's
/// subresource does not.
pub(super) fn updates_managed_fields(request: &RequestContext<'_>) -> bool {
    request.resource().custom.is_none()
}

/// Refuses a patched Scale whose uid differs from the object's.
///
/// Upstream: `scaleUpdatedObjectInfo.UpdatedObject`.
pub(super) fn check_uid(
    request: &RequestContext<'_>,
    object: &Value,
    view: &Value,
) -> Result<(), StatusError> {
    let (uid, object_uid) = (meta::text(view, "uid"), meta::text(object, "uid"));
    if uid.is_empty() || uid == object_uid {
        return Ok(());
    }
    let (resource, target) = (request.resource(), &request.target);
    let resource_name = GroupResource {
        group: resource.name.group.clone(),
        resource: format!("{}/{}", resource.plural(), target.subresource).into(),
    };
    let why = mismatch("UID", uid, object_uid);
    Err(StatusError::conflict(&resource_name, target.name, why))
}

/// Copies the managers of the object's replicas to the view if it is a Scale.
pub(super) fn copy_managers_to_scale(
    view_kind: &GroupVersionKind,
    object: &Value,
    view: &mut Value,
) {
    if is_scale(view_kind) {
        patch::set_scale_managers(object, &REPLICAS, view);
    }
}

/// Updates the managers of a Scale after a write other than an apply. `before` is the Scale before the write.
pub(super) fn update_scale_managers(
    view_kind: &GroupVersionKind,
    before: &Value,
    view: &mut Value,
    writer: &Writer<'_>,
) {
    if is_scale(view_kind) {
        patch::update_managed_fields(Schema::of(view_kind).as_ref(), Some(before), view, writer);
    }
}

/// Copies the managers of a written Scale to the object `new`, which replaces `old`. The managers of other fields come
/// from `old`. Returns whether `new` has its managed fields, which is only so if the view is a Scale.
pub(super) fn copy_managers_to_object(
    view_kind: &GroupVersionKind,
    kind: &GroupVersionKind,
    old: &Value,
    view: &Value,
    new: &mut Value,
) -> bool {
    if is_scale(view_kind) {
        patch::set_parent_managers(kind, old, &REPLICAS, view, new);
    }
    is_scale(view_kind)
}
