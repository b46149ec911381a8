//! Strategy of CustomResourceDefinitions (upstream: `registry/customresourcedefinition`).

use serde_json::{Value, json};

use evenkeel_apiextensions::conditions::{self, CLEANUP_FINALIZER};
use evenkeel_apiextensions::definition::{validation, warnings};

use super::rest::Strategy;
use evenkeel_apimachinery::reset::{reset_field, spec_differs};
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::value::{flag, get, is_empty, list, set, text};
use evenkeel_kinds::strategy::Context;

/// Strategy of CustomResourceDefinitions.
pub(super) struct DefinitionStrategy;

impl Strategy for DefinitionStrategy {
    fn default(&self, crd: &mut Value) {
        let kind = text(crd, "spec.names.kind").to_owned();
        if is_empty(crd, "spec.names.singular") {
            set(crd, "spec.names.singular", kind.to_lowercase());
        }
        if is_empty(crd, "spec.names.listKind") && !kind.is_empty() {
            set(crd, "spec.names.listKind", format!("{kind}List"));
        }
        if get(crd, "spec.conversion").is_none() {
            set(crd, "spec.conversion", json!({"strategy": "None"}));
        }
        let service = "spec.conversion.webhook.clientConfig.service";
        if get(crd, service).is_some_and(|service| service.get("port").is_none()) {
            set(crd, &format!("{service}.port"), 443);
        }
        if is_empty(crd, "status.storedVersions")
            && let Some(version) = storage_version(crd)
        {
            set(crd, "status.storedVersions", json!([version]));
        }
    }

    fn prepare_for_create(&self, _cx: &Context<'_>, crd: &mut Value) -> Result<(), StatusError> {
        let stored: Vec<Value> = storage_version(crd).into_iter().map(Value::from).collect();
        let stored = if stored.is_empty() { Value::Null } else { Value::from(stored) };
        let status = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored});
        set(crd, "status", status);
        Ok(())
    }

    fn prepare_for_update(&self, cx: &Context<'_>, new: &mut Value, old: &Value) {
        if cx.subresource == "status" {
            // A status update keeps the spec, and may change metadata. `Write::reset_fields` has restored all other
            // fields.
            reset_field(new, old, "spec");
            // Upstream sets defaults again when it encodes the object for the store.
            if is_empty(new, "status.storedVersions")
                && let Some(version) = storage_version(new)
            {
                set(new, "status.storedVersions", json!([version]));
            }
            return;
        }
        reset_field(new, old, "status");
        let stored = list(new, "status.storedVersions").to_vec();
        if let Some(version) = storage_version(new)
            && !stored.iter().any(|v| *v == version)
        {
            let with_version: Vec<Value> =
                stored.into_iter().chain([Value::from(version)]).collect();
            set(new, "status.storedVersions", with_version);
        }
    }

    fn validate(&self, _cx: &Context<'_>, crd: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let expected_name =
            format!("{}.{}", text(crd, "spec.names.plural"), text(crd, "spec.group"));
        // The rule for names is also the rule for prefixes of names.
        for field in ["metadata.generateName", "metadata.name"] {
            let name = text(crd, field);
            if !name.is_empty() && name != expected_name {
                let why = "must be spec.names.plural+\".\"+spec.group";
                errors.push(FieldError::invalid(field, name, why));
            }
        }
        validation::validate_custom_resource_definition(crd, None, &mut errors);
        validate_api_approval(crd, None, &mut errors);
        errors
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if cx.subresource == "status" {
            validation::validate_names(
                &new["status"]["acceptedNames"],
                "status.acceptedNames",
                &mut errors,
            );
            return errors;
        }
        validation::validate_custom_resource_definition(new, Some(old), &mut errors);
        validate_api_approval(new, Some(old), &mut errors);
        errors
    }

    fn warnings(&self, _cx: &Context<'_>, crd: &Value, old: Option<&Value>) -> Vec<String> {
        warnings::new_warnings(crd, old)
    }

    fn generation_changes(&self, new: &Value, old: &Value) -> bool {
        spec_differs(new, old)
    }

    fn has_generation(&self, _has_status: bool) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn mark_terminating(&self, crd: &mut Value, now: &str) -> bool {
        set(crd, "metadata.deletionTimestamp", now);
        let mut finalizers = list(crd, "metadata.finalizers").to_vec();
        if !finalizers.iter().any(|f| f == CLEANUP_FINALIZER) {
            finalizers.push(Value::from(CLEANUP_FINALIZER));
            set(crd, "metadata.finalizers", finalizers);
        }
        let message =
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        let state = ["True", "InstanceDeletionPending", message];
        conditions::set_condition(crd, "Terminating", state, now);
        true
    }
}

/// Returns the name of the storage version.
fn storage_version(crd: &Value) -> Option<String> {
    let versions = list(crd, "spec.versions");
    versions.iter().find(|v| flag(v, "storage")).map(|v| text(v, "name").to_owned())
}

/// Adds an error for a definition in a community group, such as `*.k8s.io`, without an approval, unless the old
/// definition had the same error.
///
/// Upstream: `validateAPIApproval`.
fn validate_api_approval(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !conditions::is_protected_community_group(text(crd, "spec.group")) {
        return;
    }
    let [status, reason, message] = conditions::approval_state(crd);
    if status == "True" || reason == "UnapprovedAnnotation" {
        return;
    }
    if old.is_some_and(|old| conditions::approval_state(old)[1] == reason) {
        return;
    }
    let field = "metadata.annotations[api-approved.kubernetes.io]";
    errors.push(if reason == "MissingAnnotation" {
        FieldError::required(field, message)
    } else {
        let value = &crd["metadata"]["annotations"]["api-approved.kubernetes.io"];
        FieldError::invalid(field, value.clone(), message)
    });
}
