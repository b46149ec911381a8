//! Validation by the strategy, the schema and CEL rules.

use http::Method;
use serde_json::Value;

use crate::admission::policy;
use crate::registry::{policy_params, policybased, resourceclaim};
use crate::resource::ResourceType;
use crate::verbs::attempt::{Attempt, Write};
use crate::verbs::meta;
use evenkeel_apimachinery::schema;
use evenkeel_apimachinery::status::{FieldError, StatusError};

/// Refuses an invalid object, or one that grants permissions that the user lacks. Increases the generation if the
/// update changes it.
pub(super) fn validate(write: &Write<'_>, attempt: &mut Attempt<'_>) -> Result<(), StatusError> {
    let cx = write.context(attempt.name);
    let (stored, old, new) = (&*write.stored, attempt.old(), &mut attempt.new);
    let (strategy, strategy_cx) = (&*stored.strategy, cx.strategy_context());
    policybased::check(&cx, write.request.target.name, new, old)?;
    // A status update may change a Deployment's annotations, but does not increase its generation.
    if let Some(old) = old
        && cx.subresource != "status"
        && strategy.has_generation(write.has_status())
        && strategy.generation_changes(new, old)
    {
        let generation = meta::generation(old) + 1;
        meta::metadata(new).insert("generation".to_owned(), Value::from(generation));
    }
    let mut errors = old.map_or_else(Vec::new, |old| meta::update_errors(new, old));
    if stored.custom.is_some() {
        // Upstream checks the metadata of custom objects twice.
        errors.extend(errors.clone());
    }
    if old.is_none() || strategy.update_validates_name(&strategy_cx) {
        errors.extend(meta::name_errors(strategy, &strategy_cx, new));
    }
    if old.is_none() {
        errors.extend(meta::generation_errors(new));
    }
    errors.extend(schema::validate(&stored.gvk, new));
    let verb = if write.request.method == Method::PATCH { "patch" } else { "update" };
    errors.extend(resourceclaim::check(&cx, verb, new, old));
    errors.extend(strategy.validate_after(&strategy_cx, new, old, &errors));
    errors.extend(policy::expression_errors(stored, new));
    if errors.is_empty() {
        errors.extend(policy_params::check(&cx, new, old));
    }
    check_errors(stored, attempt.name, &errors)
}

/// Returns a 422 if there are errors.
fn check_errors(
    resource: &ResourceType,
    name: &str,
    errors: &[FieldError],
) -> Result<(), StatusError> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid(&resource.group_kind(), name, errors))
    }
}
