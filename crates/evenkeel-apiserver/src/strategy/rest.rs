//! Strategy of a resource: the kind's rules, which the generic verbs apply.

use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_apimachinery::reset::{drop_field, reset_field, spec_differs};
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_kinds::strategy::{Context, StatusStrategy, prepare_status_update};
use serde_json::Value;

/// Strategy of a kind. Objects are `Value::Object`s in the *storage* version, and their `metadata` is an object. No
/// method reads the store: rules that need the store are admission plug-ins (`admission`), or belong to the resource's
/// transaction (`registry`).
///
/// Order of a create: [`default`](Self::default), [`prepare_for_create`](Self::prepare_for_create), admission,
/// structural validation, [`validate`](Self::validate). An update or a patch calls
/// [`prepare_for_update`](Self::prepare_for_update) and [`validate_update`](Self::validate_update) instead, with the
/// stored object.
///
/// Upstream: `RESTCreateStrategy`, `RESTUpdateStrategy`, `RESTDeleteStrategy` of `registry/rest`.
pub(crate) trait Strategy: Send + Sync + 'static {
    /// Sets the kind's defaults in a create or an update: `evenkeel_kinds::defaults` for built-in kinds,
    /// `evenkeel_apiextensions::defaulting` for custom resources.
    fn default(&self, _object: &mut Value) {}

    /// Returns warnings about a new object that depend on fields which
    /// [`prepare_for_create`](Self::prepare_for_create) sets.
    fn early_warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Prepares a create: drops fields that clients may not set (`status`), and sets fields that the server determines.
    /// The caller sets the generation.
    fn prepare_for_create(&self, _cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        drop_field(object, "status");
        Ok(())
    }

    /// Prepares an update through `cx.subresource` (empty for the object itself): restores the fields that this path
    /// may not change. The default implementation keeps the stored `status` in an update of the object, and applies
    /// [`prepare_status_update`] for custom resources to an update of `/status`. Built-in kinds:
    /// [`prepare_update`](evenkeel_kinds::strategy::prepare_update).
    fn prepare_for_update(&self, cx: &Context<'_>, new: &mut Value, old: &Value) {
        if cx.subresource == "status" {
            prepare_status_update(StatusStrategy::StatusOnly, new, old);
        } else if cx.has_status {
            reset_field(new, old, "status");
        }
    }

    /// Returns the errors of an object to create.
    fn validate(&self, _cx: &Context<'_>, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Returns the errors of an update.
    fn validate_update(&self, _cx: &Context<'_>, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Returns the errors of an object to create, or of an update of `old`. Errors of its metadata, `earlier`, may prevent
    /// checks.
    fn validate_after(
        &self,
        cx: &Context<'_>,
        new: &Value,
        old: Option<&Value>,
        _earlier: &[FieldError],
    ) -> Vec<FieldError> {
        match old {
            Some(old) => self.validate_update(cx, new, old),
            None => self.validate(cx, new),
        }
    }

    /// Returns the warnings for a create or an update. `old` is `None` for a create.
    fn warnings(&self, _cx: &Context<'_>, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Returns whether an update increases `metadata.generation`. The default is true if any field except `metadata`
    /// and `status` differs. Kinds whose generation upstream never increases return false.
    fn generation_changes(&self, new: &Value, old: &Value) -> bool {
        spec_differs(new, old)
    }

    /// Returns whether a new object without a name and a `generateName` gets a UUID as its name.
    ///
    /// Upstream: `limitrangeStrategy.PrepareForCreate`.
    fn generates_uuid_name(&self) -> bool {
        false
    }

    /// Returns whether new objects get `generation: 1`.
    fn has_generation(&self, has_status: bool) -> bool {
        has_status
    }

    /// Returns whether a new object keeps the `status` in the request.
    fn creates_with_status(&self) -> bool {
        false
    }

    /// Returns whether a PUT creates an object that does not exist.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// Returns whether a PUT without `resourceVersion` overwrites the stored object.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Returns the errors of a name by the kind's own rule, or `None` to apply upstream's `NameIsDNSSubdomain`.
    fn validate_name(&self, _cx: &Context<'_>, _name: &str, _prefix: bool) -> Option<Vec<String>> {
        None
    }

    /// Returns whether an update through `cx.subresource` validates `metadata.name` and `generateName` by
    /// [`Strategy::validate_name`], as a create does.
    fn update_validates_name(&self, _cx: &Context<'_>) -> bool {
        false
    }

    /// Returns the grace period of a deletion in seconds, or `None` to delete immediately. `requested` is
    /// `gracePeriodSeconds`.
    fn check_graceful_delete(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Returns the garbage collection policy of a deletion that requests none.
    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        GarbageCollectionPolicy::DeleteDependents
    }

    /// Returns whether a deletion responds with the object instead of a Status.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// Returns the names of fields for field selectors, besides `metadata.name` and `metadata.namespace`. Groups use
    /// different names (`involvedObject.kind`, `regarding.kind`) in the same order.
    fn selectable_fields(&self, _group: &str) -> &'static [&'static str] {
        &[]
    }

    /// Calls `put` with the value of each of the [`selectable_fields`](Self::selectable_fields), in their order. The
    /// value of an absent field is empty.
    fn field_values(&self, _object: &Value, _put: &mut dyn FnMut(&str)) {}

    /// Converts an object from the storage version to the version `to`.
    fn convert_out(&self, to: &GroupVersionKind, object: &mut Value) {
        set_api_version(object, to);
    }

    /// Converts an object from the version in its `apiVersion` to the storage version.
    fn convert_in(&self, stored: &GroupVersionKind, object: &mut Value) {
        set_api_version(object, stored);
    }

    /// Marks an object as terminating if the server must clean up before its deletion. Returns false if the general
    /// rules of deletions apply.
    fn mark_terminating(&self, _object: &mut Value, _now: &str) -> bool {
        false
    }

    /// Returns the subresource that a write changes. It differs from that of
    /// [`read_subresource`](Self::read_subresource) if the object does not have all of it yet.
    fn subresource_to_write(
        &self,
        subresource: &str,
        object: &Value,
    ) -> Option<Result<Value, StatusError>> {
        self.read_subresource(subresource, object)
    }

    /// Returns a subresource with its own kind, which is computed from the object (`scale`). Returns `None` for other
    /// subresources, such as `status`, which have the kind of the object.
    fn read_subresource(
        &self,
        _subresource: &str,
        _object: &Value,
    ) -> Option<Result<Value, StatusError>> {
        None
    }

    /// Changes the object by a subresource with its own kind (`scale`). Returns `None` for other subresources, such as
    /// `status`, which have the kind of the object.
    fn write_subresource(
        &self,
        _subresource: &str,
        _object: &mut Value,
        _written: &Value,
    ) -> Option<Result<(), StatusError>> {
        None
    }
}

/// Treatment of the dependents of a deleted object.
///
/// Upstream: `GarbageCollectionPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GarbageCollectionPolicy {
    /// The garbage collector deletes dependents after their owner.
    DeleteDependents,
    /// The garbage collector removes the owner references of dependents, and keeps the dependents.
    OrphanDependents,
}

/// Strategy of a kind without its own rules.
pub(crate) struct DefaultStrategy;

impl Strategy for DefaultStrategy {}

/// Sets the version and kind of an object.
pub(crate) fn set_api_version(object: &mut Value, gvk: &GroupVersionKind) {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::from(gvk.api_version()));
        map.insert("kind".to_owned(), Value::from(&*gvk.kind));
    }
}
