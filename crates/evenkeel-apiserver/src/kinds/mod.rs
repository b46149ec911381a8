//! The rules of each kind, beyond what its schema says: defaults, validation, what a write may change, sub-resources.

pub(crate) mod admission;
mod binding;
mod builtin;
pub(crate) mod cluster_ips;
mod conditions;
mod eviction;
pub(crate) mod policybased;
mod proxies;
mod services;
mod writes;

pub(crate) use evenkeel_apimachinery::reset::{drop_field, keep_field, spec_differs};
pub(crate) use evenkeel_apimachinery::value;
use evenkeel_kinds::strategy::{StatusStrategy, prepare_status_update};
use evenkeel_kinds::{autoscaling, defaults, registry, strategy};
pub(crate) use evenkeel_kinds::{pod, scale, warnings};

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::api::{Answer, Api, Call, Context};
use crate::resource::ResourceType;
use crate::store::{IndexedResources, Transaction};
use evenkeel_apimachinery::status::{FieldError, StatusError};

/// The hooks of a kind. Objects are `Value::Object`s in the kind's *stored* version with `metadata` an object. A method that a kind does not
/// implement has the default given here.
///
/// Order of a create: [`default`](Self::default), [`prepare_create`](Self::prepare_create), admission
/// ([`admit`](Self::admit)), metadata filled in, structural validation, [`validate_create`](Self::validate_create), store
/// ([`begin_write`](Self::begin_write), [`finish_write`](Self::finish_write)). Of an update (and of a patch): the same with `prepare_update`/`validate_update` and the stored object beside the new one.
pub(crate) trait KindHooks: Send + Sync + 'static {
    /// Fills in the kind's defaults on a create or an update: `evenkeel_kinds::defaults` for built-in kinds,
    /// `evenkeel_apiextensions::defaulting` for custom resources.
    fn default(&self, _object: &mut Value) {}

    /// Before a create: drops what a client may not set (`status`), sets what the server decides (generation is done by the caller).
    fn prepare_create(&self, _cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        drop_field(object, "status");
        Ok(())
    }

    /// Prepares an update through `cx.subresource` (empty: the object itself): restores the fields that this path may not
    /// change. Without a rule of the kind's own, an update of the object keeps the stored `status`, and an update of
    /// `/status` follows [`prepare_status_update`] for custom resources. Built-in kinds: `evenkeel_kinds::strategy::prepare_update`.
    fn prepare_update(
        &self,
        cx: &Context<'_>,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), StatusError> {
        if cx.subresource == "status" {
            prepare_status_update(StatusStrategy::Custom, new, old);
        } else if cx.has_status {
            keep_field(new, old, "status");
        }
        Ok(())
    }

    /// Admission that changes or refuses (`old` is the stored object on update). After the preparation, before validation.
    fn admit(
        &self,
        _cx: &Context<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), StatusError> {
        Ok(())
    }

    /// What is wrong with an object to be created.
    fn validate_create(&self, _cx: &Context<'_>, _object: &Value) -> Vec<FieldError> {
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

    /// Whether new objects get `generation: 1`.
    fn has_generation(&self, has_status: bool) -> bool {
        has_status
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
    fn validate_name(&self, _name: &str, _prefix: bool) -> Option<Vec<String>> {
        None
    }

    /// Seconds of grace that a deletion gives this object; `None`: it goes at once. `requested` is `gracePeriodSeconds`.
    fn grace(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Changes that a graceful deletion makes beside the deletion's own fields.
    fn before_deletion(&self, _cx: &Context<'_>, _object: &mut Value) -> Result<(), StatusError> {
        Ok(())
    }

    /// What happens to dependents when a deletion says nothing.
    fn default_propagation(&self) -> Propagation {
        Propagation::Background
    }

    /// Whether a deletion answers the object rather than a Status of success.
    fn answers_deleted(&self) -> bool {
        false
    }

    /// Names of the fields that field selectors may use, beside `metadata.name` and `metadata.namespace`; they differ between
    /// versions only in name (`involvedObject.kind`, `regarding.kind`), never in order.
    fn selectable_fields(&self, _resource: &ResourceType) -> &'static [&'static str] {
        &[]
    }

    /// Values of [`selectable_fields`](Self::selectable_fields) of an object, in that order; an absent one is "".
    fn field_values(&self, _object: &Value, _put: &mut dyn FnMut(&str)) {}

    /// From the stored version into `resource`'s version.
    fn convert_out(&self, resource: &ResourceType, object: &mut Value) {
        set_api_version(object, resource);
    }

    /// From `resource`'s version into the stored one.
    fn convert_in(&self, stored: &ResourceType, object: &mut Value) {
        set_api_version(object, stored);
    }

    /// Marks an object whose deletion was asked for and that the server must clean up after before it goes. False: the
    /// general rules hold.
    fn detain(&self, _object: &mut Value, _now: &str) -> bool {
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
        _cx: &Context<'_>,
        _subresource: &str,
        _object: &mut Value,
        _part: &Value,
    ) -> Option<Result<(), StatusError>> {
        None
    }

    /// Whether [`connect`](Self::connect) serves this sub-resource (empty: the resource itself).
    fn connects(&self, _subresource: &str) -> bool {
        false
    }

    /// Serves what is no plain verb on an object: POST on `binding`, `eviction`, `token`, GET on `log`, and resources
    /// that are not stored (`bindings`, reviews, `componentstatuses`). `None`: the generic verb serves.
    fn connect<'a>(
        &'a self,
        _call: &'a Call<'a>,
    ) -> Option<BoxFuture<'a, Result<Answer, StatusError>>> {
        None
    }

    /// Who makes the objects, where they are not stored.
    fn computed(&self) -> Option<&dyn crate::computed::Source> {
        None
    }

    /// Adds to the transaction of a create (no `old`) or an update what is written before the object, with the values that
    /// only this object may have.
    ///
    /// Upstream: `BeginCreate` and `BeginUpdate` of `registry/generic/registry`'s `Store`.
    fn begin_write(
        &self,
        _api: &Api,
        _object: &Value,
        _old: Option<&Value>,
        _transaction: &mut Transaction,
    ) {
    }

    /// Adds to the transaction of an update or a deletion (no `object`) what is written after the object.
    ///
    /// Upstream: `FinishFunc` and `AfterDelete` of `registry/generic/registry`'s `Store`.
    fn finish_write(
        &self,
        _api: &Api,
        _object: Option<&Value>,
        _old: &Value,
        _transaction: &mut Transaction,
    ) {
    }
}

/// The resources whose objects the store indexes.
pub(crate) const INDEXED_RESOURCES: IndexedResources =
    &[(services::RESOURCE_PREFIX, services::index)];

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are collected after it.
    Background,
    /// They stay.
    Orphan,
}

/// Hooks that change nothing.
pub(crate) struct Plain;

impl KindHooks for Plain {}

/// The hooks of a built-in resource.
pub(crate) fn hooks(group: &str, resource: &str) -> Arc<dyn KindHooks> {
    if (group, resource) == ("apiextensions.k8s.io", "customresourcedefinitions") {
        return Arc::new(crate::custom::definitions::Definitions);
    }
    match registry::strategy(group, resource) {
        Some(row) => Arc::new(builtin::Builtin::new(row)),
        None => Arc::new(Plain),
    }
}

fn set_api_version(object: &mut Value, resource: &ResourceType) {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), Value::from(&*resource.api_version));
        map.insert("kind".to_owned(), Value::from(resource.kind()));
    }
}
