//! Applies mutating policies to objects.

use serde_json::Value;

use super::compiled::{Mutation, Policy};
use super::evaluate::{Bindings, policy_matches, run, with_variables};
use super::{matching, params};
use crate::admission::attributes::{Attributes, Operation};
use crate::admission::mutated;
use crate::api::Context;
use evenkeel_apimachinery::patch;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::text;
use evenkeel_cel::{BUDGET, Val};

/// Applies a policy's mutations for one binding. Returns whether they changed the object, or `None` if the policy does not
/// match the request.
pub(super) fn apply(
    cx: &Context<'_>,
    operation: Operation,
    policy: &Policy,
    binding: &Value,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Option<bool>, StatusError> {
    let null = Value::Null;
    let before = old.unwrap_or(&null);
    let request = Attributes::new(cx, operation, object, before);
    let constraints = &policy.document["spec"]["matchConstraints"];
    let Some(matched) = matching::matches(&request, constraints) else { return Ok(None) };
    if !matching::is_bound(&request, binding) {
        return Ok(None);
    }
    let converted = request.converted(matched.version(&request));
    let seen = converted.as_ref().map(|converted| converted.attributes(&request));
    match changed(seen.as_ref().unwrap_or(&request), policy, binding) {
        Ok(None) => Ok(Some(false)),
        Ok(Some(mut new)) => {
            if converted.is_some() {
                cx.resource.strategy.convert_in(&cx.resource.gvk, &mut new);
            }
            let start = std::mem::replace(object, new);
            mutated::settle(cx, object);
            Ok(Some(*object != start))
        }
        Err(_) if !policy.fails_closed => Ok(Some(false)),
        Err(error) => {
            let why = format!(
                "policy '{}' with binding '{}' denied request: {error}",
                policy.name,
                text(binding, "metadata.name")
            );
            Err(StatusError::forbidden(&cx.resource.name, cx.name, why))
        }
    }
}

/// Returns the object after all mutations, or `None` if they do not change it.
fn changed(
    request: &Attributes<'_>,
    policy: &Policy,
    binding: &Value,
) -> Result<Option<Value>, String> {
    let mut current = request.object.clone();
    for params in params::of(request, policy, binding)? {
        let bindings = Bindings::new(request, params);
        if !policy_matches(request, policy, &bindings.scope(&current, request.old))? {
            continue;
        }
        let mut budget = request.cx.budget.expressions(BUDGET);
        for mutation in &policy.mutations {
            if let Some(new) = one(request, policy, mutation, &bindings, &current, &mut budget)? {
                current = new;
            }
        }
    }
    Ok((current != *request.object).then_some(current))
}

fn one(
    request: &Attributes<'_>,
    policy: &Policy,
    mutation: &Mutation,
    bindings: &Bindings,
    current: &Value,
    budget: &mut u64,
) -> Result<Option<Value>, String> {
    let scope = with_variables(policy, bindings.scope(current, request.old), budget);
    let made = run(&mutation.expression, &scope, budget).map_err(|failure| {
        format!("expression '{}' resulted in error: {}", mutation.expression.text, failure.words())
    })?;
    let change = to_json(&made)?;
    let resource = request.cx.resource;
    if mutation.json_patch {
        // A failed `test` operation leaves the object unchanged.
        return patch::apply_json_patch(current, &change);
    }
    for field in ["apiVersion", "kind"] {
        if change.get(field).is_some() {
            return Err(format!(
                "error applying patch: invalid ApplyConfiguration: may not mutate {field}"
            ));
        }
    }
    let schema = resource.schema(request.kind());
    patch::apply_configuration(schema.as_ref(), current, change).map(Some)
}

/// Returns the result of a mutation's expression as JSON.
fn to_json(made: &Val<'_>) -> Result<Value, String> {
    made.to_json()
}
