//! The strategy of a resource: the rules that the generic verbs follow for its kind.

use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_apimachinery::reset::{drop_field, reset_field, spec_differs};
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_kinds::strategy::{Context, StatusStrategy, prepare_status_update};
use serde_json::Value;

/// The strategy of a kind. Objects are `Value::Object`s in the kind's *stored* version with `metadata` an object. A method
/// that a kind does not implement has the default given here. No method reads the store: rules that do are admission
/// plug-ins (`admission`), or belong to the resource's transaction (`registry`).
///
/// Order of a create: [`default`](Self::default), [`prepare_for_create`](Self::prepare_for_create), admission, structural
/// validation, [`validate`](Self::validate). Of an update (and of a patch): the same with
/// [`prepare_for_update`](Self::prepare_for_update) and [`validate_update`](Self::validate_update), and the stored object
/// beside the new one.
///
/// Upstream: `RESTCreateStrategy`, `RESTUpdateStrategy`, `RESTDeleteStrategy` of `registry/rest`.
pub(crate) trait Strategy: Send + Sync + 'static {
    /// Fills in the kind's defaults on a create or an update: `evenkeel_kinds::defaults` for built-in kinds,
    /// `evenkeel_apiextensions::defaulting` for custom resources.
    fn default(&self, _object: &mut Value) {}

    /// Before a create: drops what a client may not set (`status`), sets what the server decides (generation is done by the caller).
    fn prepare_for_create(&self, _cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        drop_field(object, "status");
        Ok(())
    }

    /// Prepares an update through `cx.subresource` (empty: the object itself): restores the fields that this path may not
    /// change. Without a rule of the kind's own, an update of the object keeps the stored `status`, and an update of
    /// `/status` follows [`prepare_status_update`] for custom resources. Built-in kinds:
    /// [`prepare_update`](evenkeel_kinds::strategy::prepare_update).
    fn prepare_for_update(&self, cx: &Context<'_>, new: &mut Value, old: &Value) {
        if cx.subresource == "status" {
            prepare_status_update(StatusStrategy::Custom, new, old);
        } else if cx.has_status {
            reset_field(new, old, "status");
        }
    }

    /// What is wrong with an object to be created.
    fn validate(&self, _cx: &Context<'_>, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// What is wrong with an update.
    fn validate_update(&self, _cx: &Context<'_>, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// `Warning` headers for a create (no `old`) or an update.
    fn warnings(&self, _cx: &Context<'_>, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Whether an update from `old` to `new` increases `metadata.generation`. Without a rule of the kind's own, it does where
    /// any field but `metadata` and `status` differs. Kinds whose generation upstream never increases return false.
    fn generation_changes(&self, new: &Value, old: &Value) -> bool {
        spec_differs(new, old)
    }

    /// Whether a new object without a name and a `generateName` gets a UUID for a name.
    ///
    /// Upstream: `limitrangeStrategy.PrepareForCreate`.
    fn generates_uuid_name(&self) -> bool {
        false
    }

    /// Whether new objects get `generation: 1`.
    fn has_generation(&self, has_status: bool) -> bool {
        has_status
    }

    /// Whether a new object keeps the `status` that it comes with.
    fn creates_with_status(&self) -> bool {
        false
    }

    /// Whether PUT to a name that is not there makes it.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// Whether PUT without resourceVersion overwrites.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// The name's own rule (upstream's `NameIsDNSSubdomain` where `None`): messages of what is wrong with it.
    fn validate_name(&self, _cx: &Context<'_>, _name: &str, _prefix: bool) -> Option<Vec<String>> {
        None
    }

    /// Whether an update through `cx.subresource` validates `metadata.name` and `generateName` by
    /// [`Strategy::validate_name`], as a create does.
    fn update_validates_name(&self, _cx: &Context<'_>) -> bool {
        false
    }

    /// Seconds of grace that a deletion gives this object; `None`: it goes at once. `requested` is `gracePeriodSeconds`.
    fn check_graceful_delete(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// What happens to dependents when a deletion says nothing.
    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        GarbageCollectionPolicy::DeleteDependents
    }

    /// Whether a deletion answers the object rather than a Status of success.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// Names of the fields that field selectors may use, beside `metadata.name` and `metadata.namespace`; they differ between
    /// groups only in name (`involvedObject.kind`, `regarding.kind`), never in order.
    fn selectable_fields(&self, _group: &str) -> &'static [&'static str] {
        &[]
    }

    /// Values of [`selectable_fields`](Self::selectable_fields) of an object, in that order; an absent one is "".
    fn field_values(&self, _object: &Value, _put: &mut dyn FnMut(&str)) {}

    /// Converts an object from the stored version into the version `to`.
    fn convert_out(&self, to: &GroupVersionKind, object: &mut Value) {
        set_api_version(object, to);
    }

    /// Converts an object from the version it says it has into the stored one.
    fn convert_in(&self, stored: &GroupVersionKind, object: &mut Value) {
        set_api_version(object, stored);
    }

    /// Marks an object whose deletion was asked for and that the server must clean up after before it goes. False: the
    /// general rules hold.
    fn mark_terminating(&self, _object: &mut Value, _now: &str) -> bool {
        false
    }

    /// The view that a patch is laid over, where that is not what [`read_part`](Self::read_part) answers.
    fn part_to_patch(&self, _subresource: &str, _object: &Value) -> Option<Value> {
        None
    }

    /// Reads a sub-resource that is a view of the object (`scale`). `None`: the object itself is answered.
    fn read_part(&self, _subresource: &str, _object: &Value) -> Option<Result<Value, StatusError>> {
        None
    }

    /// Writes a sub-resource that is a view of the object into it. `None`: the body is the object itself.
    fn write_part(
        &self,
        _subresource: &str,
        _object: &mut Value,
        _part: &Value,
    ) -> Option<Result<(), StatusError>> {
        None
    }
}

/// What happens to the dependents of a deleted object.
///
/// Upstream: `GarbageCollectionPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GarbageCollectionPolicy {
    /// The garbage collector deletes them after it.
    DeleteDependents,
    /// Dependents stay, without their owner reference.
    OrphanDependents,
}

/// The strategy of a kind that has no rule of its own.
pub(crate) struct DefaultStrategy;

impl Strategy for DefaultStrategy {}

/// Gives an object another version of its kind.
pub(crate) fn set_api_version(object: &mut Value, gvk: &GroupVersionKind) {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::from(gvk.api_version()));
        map.insert("kind".to_owned(), Value::from(&*gvk.kind));
    }
}
