//! Managed fields of `spec.replicas` in writes of the `scale` subresource.

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

/// Returns whether writes of the subresource update managed fields. As in upstream, those of custom resources do not.
pub(super) fn is_managed(request: &RequestContext<'_>) -> bool {
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

/// Copies the managers of the object's replicas to a Scale. `view_kind` is the kind of the subresource `view`, which
/// need not be a Scale.
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

/// Copies the managers of a written Scale to the object `new`, which replaces `old`. Returns whether the view is a
/// Scale.
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
