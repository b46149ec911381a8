//! Managed fields of `spec.replicas` in writes of the `scale` subresource.
//!
//! A view is the body of a subresource, and `view_kind` is its kind. Only a view of the kind Scale has managed fields
//! of its own, so the functions that copy or update managers do nothing for other views.

use serde_json::Value;

use super::meta;
use super::precondition::mismatch;
use crate::request::RequestContext;
use crate::resource::{GroupResource, GroupVersionKind, ResourceType};
use evenkeel_apiextensions::scale::UNSET;
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::schema::Schema;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value;

/// Returns the path of the replicas in objects of a resource.
fn replicas(resource: &ResourceType) -> Vec<&str> {
    match resource.custom.as_ref().and_then(|version| version.scale.as_ref()) {
        Some(paths) => paths.replicas(),
        None => vec!["spec", "replicas"],
    }
}

fn is_scale(view_kind: &GroupVersionKind) -> bool {
    &*view_kind.kind == "Scale"
}

/// Refuses a patched Scale of a built-in resource whose uid differs from the object's.
///
/// Upstream: `scaleUpdatedObjectInfo.UpdatedObject`.
pub(super) fn check_uid(
    request: &RequestContext<'_>,
    object: &Value,
    view: &Value,
) -> Result<(), StatusError> {
    let (uid, object_uid) = (meta::text(view, "uid"), meta::text(object, "uid"));
    let (resource, target) = (request.resource(), &request.target);
    if uid.is_empty() || uid == object_uid || resource.custom.is_some() {
        return Ok(());
    }
    let resource_name = GroupResource {
        group: resource.name.group.clone(),
        resource: format!("{}/{}", resource.plural(), target.subresource).into(),
    };
    let why = mismatch("UID", uid, object_uid);
    Err(StatusError::conflict(&resource_name, target.name, why))
}

/// Copies the managers of the object's replicas to the view if it is a Scale.
pub(super) fn copy_managers_to_scale(
    request: &RequestContext<'_>,
    object: &Value,
    view: &mut Value,
) {
    if is_scale(&request.kind()) {
        patch::set_scale_managers(object, &replicas(request.resource()), view);
    }
}

/// Removes replicas that represent an unset field of the object. Otherwise, an apply would conflict with them.
pub(super) fn remove_unset_replicas(view: &mut Value) {
    if value::int(view, "spec.replicas") == Some(i64::from(UNSET)) {
        value::remove(view, "spec.replicas");
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
/// from `old`. Returns whether the managed fields of `new` are set, which is only true for a view of the kind Scale.
/// `stored` is the resource in its stored version.
pub(super) fn copy_managers_to_object(
    request: &RequestContext<'_>,
    stored: &ResourceType,
    old: &Value,
    view: &Value,
    new: &mut Value,
) -> bool {
    let is_scale = is_scale(&request.kind());
    if is_scale {
        let resource = request.resource();
        let parent = if resource.custom.is_some() { resource } else { stored };
        patch::set_parent_managers(&parent.gvk, old, &replicas(resource), view, new);
    }
    is_scale
}
