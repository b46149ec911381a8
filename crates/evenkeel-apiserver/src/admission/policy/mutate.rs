//! Applies mutating policies to objects.

use serde_json::Value;

use super::authorizer::RequestAuthorizer;
use super::compiled::{Mutation, Policy};
use super::evaluate::{Bindings, policy_matches, run, with_variables};
use super::{matching, params};
use crate::admission::attributes::{Attributes, Operation};
use crate::admission::mutated::readmitted;
use crate::api::Context;
use evenkeel_apimachinery::patch;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::text;
use evenkeel_cel::RUNTIME_COST_BUDGET;

/// Results of a policy's mutations for one binding.
pub(super) struct Mutated {
    /// One item for each parameter for which the policy ran: whether a mutation changed the object.
    pub(super) calls: Vec<bool>,
    /// Errors of the policy. They refuse the request unless the failure policy is `Ignore`.
    pub(super) errors: Vec<PolicyError>,
}

/// Error of a mutating policy.
///
/// Upstream: `PolicyError`.
pub(super) struct PolicyError {
    pub(super) message: String,
    /// Whether an expression failed. Otherwise the parameters were not found.
    pub(super) is_invalid: bool,
}

/// Applies a policy's mutations for one binding. A mutation with an error changes nothing; the mutations after it still
/// run.
///
/// Upstream: `policyDispatcher.Dispatch`, `dispatchInvocations`.
pub(super) async fn apply(
    cx: &Context<'_>,
    operation: Operation,
    policy: &Policy,
    binding: &Value,
    object: &mut Value,
    old: Option<&Value>,
    authorizer: &RequestAuthorizer<'_>,
) -> Result<Mutated, StatusError> {
    let mut mutated = Mutated { calls: Vec::new(), errors: Vec::new() };
    let null = Value::Null;
    let request = Attributes::new(cx, operation, object, old.unwrap_or(&null));
    let constraints = &policy.document["spec"]["matchConstraints"];
    let Some(matched) = matching::matches(&request, constraints) else { return Ok(mutated) };
    if !matching::is_bound(&request, binding) {
        return Ok(mutated);
    }
    let name = text(binding, "metadata.name");
    let denied = |error: String| {
        format!("policy '{}' with binding '{name}' denied request: {error}", policy.name)
    };
    let params_list = match params::of(&request, policy, binding) {
        Ok(params_list) => params_list,
        Err(error) => {
            let message = denied(format!("failed to configure binding: {error}"));
            mutated.errors.push(PolicyError { message, is_invalid: false });
            return Ok(mutated);
        }
    };
    let converted = request.converted(matched.version(&request)).await?;
    let converted_request = converted.as_ref().map(|converted| converted.attributes(&request));
    let versioned_request = converted_request.as_ref().unwrap_or(&request);
    let mut current = versioned_request.object.clone();
    for params in params_list {
        let bindings = Bindings::new(versioned_request, params, authorizer);
        let changed =
            mutate_with_params(versioned_request, policy, &bindings, &mut current, &mut |error| {
                mutated.errors.push(PolicyError { message: denied(error), is_invalid: true });
            });
        mutated.calls.extend(changed);
    }
    if current != *versioned_request.object {
        *object = readmitted(cx, current, converted.is_some()).await?;
    }
    Ok(mutated)
}

/// Applies the mutations for one parameter. Returns whether they changed the object, or `None` if the match conditions
/// are not true.
fn mutate_with_params(
    request: &Attributes<'_>,
    policy: &Policy,
    bindings: &Bindings<'_>,
    current: &mut Value,
    on_error: &mut dyn FnMut(String),
) -> Option<bool> {
    match policy_matches(request, policy, bindings, current) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => {
            on_error(error);
            return None;
        }
    }
    let mut has_changed = false;
    for mutation in &policy.mutations {
        match mutate_once(request, policy, mutation, bindings, current) {
            Ok(Some(mutated)) => {
                has_changed |= mutated != *current;
                *current = mutated;
            }
            Ok(None) => {}
            Err(error) => on_error(error),
        }
    }
    Some(has_changed)
}

/// Returns the object after a mutation, or `None` if the mutation does not change it. Each mutation has its own cost
/// budget, and evaluates the policy's variables again.
fn mutate_once(
    request: &Attributes<'_>,
    policy: &Policy,
    mutation: &Mutation,
    bindings: &Bindings<'_>,
    current: &Value,
) -> Result<Option<Value>, String> {
    let scope = with_variables(policy, bindings.scope(current, request.old));
    let mut budget = request.cx.budget.draw_expression_cost(RUNTIME_COST_BUDGET);
    let patch_value = run(&mutation.expression, &scope, &mut budget)??;
    let patch_json = patch_value.to_json()?;
    let resource = request.cx.resource;
    if mutation.is_json_patch {
        // A failed `test` operation leaves the object unchanged.
        return patch::apply_json_patch(current, &patch_json);
    }
    for field in ["apiVersion", "kind"] {
        if patch_json.get(field).is_some() {
            return Err(format!(
                "error applying patch: invalid ApplyConfiguration: may not mutate {field}"
            ));
        }
    }
    let schema = resource.schema(request.kind());
    patch::apply_configuration(schema.as_ref(), current, patch_json).map(Some)
}
