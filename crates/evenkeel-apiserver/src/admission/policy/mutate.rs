//! Applies mutating policies to objects.

use serde_json::Value;

use super::compiled::{Mutation, Policy};
use super::evaluate::{Bindings, policy_matches, run, with_variables};
use crate::admission::attributes::Attributes;
use evenkeel_apimachinery::patch;
use evenkeel_cel::RUNTIME_COST_BUDGET;

/// Results of a policy's mutations for one binding.
pub(super) struct Mutated {
    /// One item for each parameter object that the policy ran with: whether a mutation changed the object.
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

/// Applies the mutations for one parameter. Returns whether they changed the object, or `None` if the match conditions
/// are not true.
pub(super) fn mutate_with_params(
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
