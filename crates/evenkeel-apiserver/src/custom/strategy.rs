//! Strategy of custom resources (upstream: `registry/customresource`).

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use crate::resource::custom::Version;
use crate::strategy::Strategy;
use evenkeel_apiextensions::{cel, defaulting, listtype, objectmeta, validation};
use evenkeel_apimachinery::group_version::{GroupKind, GroupResource, GroupVersionKind};
use evenkeel_apimachinery::status::{FieldError, FieldErrorKind, StatusError};
use evenkeel_apimachinery::value;
use evenkeel_cel::RUNTIME_COST_BUDGET;
use evenkeel_kinds::strategy::Context;

/// Strategy of one version of a custom resource.
pub(super) struct CustomResourceStrategy {
    version: Arc<Version>,
    resource: GroupResource,
    kind: GroupKind,
}

impl CustomResourceStrategy {
    pub(super) fn new(version: Arc<Version>, resource: GroupResource, kind: GroupKind) -> Self {
        Self { version, resource, kind }
    }

    /// Validates an object: schema, scale, embedded objects, lists and `x-kubernetes-validations`. An update has an
    /// `old` object. `earlier` are the errors of its metadata.
    fn check(&self, new: &Value, old: Option<&Value>, earlier: &[FieldError]) -> Vec<FieldError> {
        let version = &*self.version;
        let mut errors = Vec::new();
        validation::validate(new, old, &version.structural, "", &mut errors);
        if let Some(scale) = &version.scale {
            scale.validate_spec(new, &mut errors);
            scale.validate_status(new, &mut errors);
        }
        for (name, value) in new.as_object().into_iter().flatten() {
            if let Some(child) = version.structural.child(name) {
                objectmeta::validate(value, child, name, &mut errors);
            }
        }
        self.check_lists(new, old, &mut errors);
        self.validate_expressions(new, old, earlier, &mut errors);
        errors
    }

    /// Evaluates `x-kubernetes-validations`, unless earlier errors prevent it.
    fn validate_expressions(
        &self,
        new: &Value,
        old: Option<&Value>,
        earlier: &[FieldError],
        errors: &mut Vec<FieldError>,
    ) {
        let structural = &self.version.structural;
        if !structural.has_validations {
            return;
        }
        if let Some(error) = expressions_blocked_by(earlier.iter().chain(&*errors)) {
            errors.push(error);
            return;
        }
        let mut budget = RUNTIME_COST_BUDGET;
        cel::validate_expressions(new, old, structural, &mut budget, errors);
    }

    /// Validates lists of the types set and map. An update may keep invalid lists if the old object has any.
    fn check_lists(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let list_errors = |object: &Value| {
            let mut errors = Vec::new();
            let structural = &self.version.structural;
            listtype::validate_list_sets_and_maps(object, structural, "", &mut errors);
            errors
        };
        let new_errors = list_errors(new);
        if !new_errors.is_empty() && old.is_none_or(|old| list_errors(old).is_empty()) {
            errors.extend(new_errors);
        }
    }

    /// Validates a status update: status, scale, lists and `x-kubernetes-validations`.
    fn check_status(&self, new: &Value, old: &Value, earlier: &[FieldError]) -> Vec<FieldError> {
        let version = &*self.version;
        let mut errors = Vec::new();
        if let (Some(status), Some(structural)) =
            (new.get("status"), version.structural.child("status"))
        {
            // The messages name the fields without the status.
            validation::validate(status, old.get("status"), structural, "", &mut errors);
            errors.iter_mut().for_each(|error| validation::move_error(error, "status"));
        }
        if let Some(scale) = &version.scale {
            scale.validate_status(new, &mut errors);
        }
        self.check_lists(new, Some(old), &mut errors);
        self.validate_expressions(new, Some(old), earlier, &mut errors);
        errors
    }
}

/// Returns an error that expressions were not evaluated if earlier errors prevent it: expressions may rely on an object
/// that matches its schema.
fn expressions_blocked_by<'a>(
    mut errors: impl Iterator<Item = &'a FieldError>,
) -> Option<FieldError> {
    let blocks = |error: &FieldError| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    errors.any(blocks).then(|| {
        let message = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        FieldError::invalid("<nil>", Value::Null, message)
    })
}

impl Strategy for CustomResourceStrategy {
    /// Sets the schema's defaults in an object that a client sent. Decoding has already pruned it.
    fn default(&self, object: &mut Value) {
        defaulting::prune_non_nullable_nulls(object, &self.version.structural);
        // An object whose defaults are not all set is too large to be stored.
        let _ = defaulting::set_defaults(object, &self.version.structural);
    }

    fn prepare_for_create(&self, _cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        if self.version.definition.is_terminating() {
            let message = "create not allowed while custom resource definition is terminating";
            return Err(StatusError::forbidden(
                &self.resource,
                value::text(object, "metadata.name"),
                message,
            ));
        }
        if self.version.status {
            evenkeel_apimachinery::reset::drop_field(object, "status");
        }
        Ok(())
    }

    fn validate_after(
        &self,
        cx: &Context<'_>,
        new: &Value,
        old: Option<&Value>,
        earlier: &[FieldError],
    ) -> Vec<FieldError> {
        match old {
            Some(old) if cx.subresource == "status" => self.check_status(new, old, earlier),
            old => self.check(new, old, earlier),
        }
    }

    fn warnings(&self, cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if cx.subresource == "status" {
            return Vec::new();
        }
        let old_finalizers = old.map_or(&[][..], |old| value::list(old, "metadata.finalizers"));
        let old_finalizers: HashSet<&Value> = old_finalizers.iter().collect();
        value::list(object, "metadata.finalizers")
            .iter()
            .filter(|finalizer| !old_finalizers.contains(finalizer))
            .filter_map(Value::as_str)
            .filter_map(finalizer_warning)
            .collect()
    }

    fn generation_changes(&self, new: &Value, old: &Value) -> bool {
        let spec_fields = |object: &Value| {
            let mut object = object.clone();
            if let Some(fields) = object.as_object_mut() {
                for name in ["metadata", "apiVersion", "kind"] {
                    fields.remove(name);
                }
                if self.version.status {
                    fields.remove("status");
                }
            }
            object
        };
        spec_fields(new) != spec_fields(old)
    }

    fn has_generation(&self, _has_status: bool) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    /// Converts an object from its stored version to this one, unless a webhook converts: then `conversion::read` has
    /// already converted it.
    fn convert_out(&self, _to: &GroupVersionKind, object: &mut Value) {
        let definition = &self.version.definition;
        if definition.webhook.is_some() {
            return;
        }
        definition.prune_and_default(object);
        if value::text(object, "apiVersion") != &*self.version.api_version {
            value::set(object, "apiVersion", &*self.version.api_version);
            definition.prune(object);
        }
    }

    fn convert_in(&self, _stored: &GroupVersionKind, _object: &mut Value) {}

    fn read_subresource(
        &self,
        subresource: &str,
        object: &Value,
    ) -> Option<Result<Value, StatusError>> {
        let scale = self.version.scale.as_ref().filter(|_| subresource == "scale")?;
        Some(scale.scale_of(object))
    }

    fn subresource_to_write(
        &self,
        subresource: &str,
        object: &Value,
    ) -> Option<Result<Value, StatusError>> {
        let scale = self.version.scale.as_ref().filter(|_| subresource == "scale")?;
        Some(scale.scale_to_write(object))
    }

    fn write_subresource(
        &self,
        subresource: &str,
        object: &mut Value,
        part: &Value,
    ) -> Option<Result<(), StatusError>> {
        let scale = self.version.scale.as_ref().filter(|_| subresource == "scale")?;
        Some(scale.set_replicas(&self.kind, object, part))
    }
}

/// Returns the warning about a new finalizer whose name has no domain.
fn finalizer_warning(name: &str) -> Option<String> {
    if name.contains('/') || matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
        return None;
    }
    let path = if name.contains('.') { " including a path (/)" } else { "" };
    Some(format!(
        "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers",
        evenkeel_apimachinery::status::quote(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unqualified_finalizer_gets_a_warning() {
        assert!(
            finalizer_warning("example.com/f").is_none() && finalizer_warning("orphan").is_none()
        );
        assert!(finalizer_warning("f").is_some_and(|w| w.contains("prefer a domain-qualified")));
    }
}
