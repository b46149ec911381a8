//! Evaluates a policy's expressions for one request.

use std::rc::Rc;

use serde_json::Value;

use super::compiled::{Expression, Policy, Validation};
use super::{matching, params};
use crate::admission::attributes::{Attributes, described};
use evenkeel_cel::{BUDGET, Failure, PER_CALL, Scope, Val};

/// Refusal by a policy.
pub(super) struct Denied {
    pub(super) message: String,
    pub(super) reason: String,
}

/// Values of the CEL variables, except for the objects.
pub(super) struct Facts {
    pub(super) request: Value,
    pub(super) namespace: Value,
    pub(super) params: Value,
}

impl Facts {
    pub(super) fn new(request: &Attributes<'_>, params: Value) -> Self {
        Self { request: described(request), namespace: matching::namespace_of(request), params }
    }

    pub(super) fn scope<'a>(&'a self, object: &'a Value, old: &'a Value) -> Scope<'a> {
        Scope::default()
            .with("object", Val::of(object, None))
            .with("oldObject", Val::of(old, None))
            .with("request", Val::of(&self.request, None))
            .with("namespaceObject", Val::of(&self.namespace, None))
            .with("params", Val::of(&self.params, None))
    }
}

/// Evaluates one expression and deducts its cost from `budget`. One call may cost at most `PER_CALL`.
pub(super) fn run<'a>(
    expression: &'a Expression,
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Result<Val<'a>, Failure> {
    let program = expression.program.as_ref().map_err(|error| Failure::Error(error.clone()))?;
    let before = (*budget).min(PER_CALL);
    let mut remaining_budget = before;
    let result = program.run(scope, &mut remaining_budget);
    *budget -= before - remaining_budget;
    result
}

/// Returns whether all match conditions of a policy hold. Returns an error if one fails and none is false.
pub(super) fn applies<'a>(
    policy: &'a Policy,
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Result<bool, String> {
    hold(&policy.conditions, scope, budget)
}

/// As [`applies`], for the match conditions of a webhook.
pub(super) fn all_hold(
    request: &Attributes<'_>,
    conditions: &[Expression],
) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let facts = Facts::new(request, Value::Null);
    let mut budget = request.cx.budget.expressions(BUDGET);
    hold(conditions, &facts.scope(request.object, request.old), &mut budget)
}

fn hold<'a>(
    conditions: &'a [Expression],
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Result<bool, String> {
    let mut failed = None;
    for condition in conditions {
        match run(condition, scope, budget) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => return Ok(false),
            Ok(_) => failed = Some(format!("match condition {} is no bool", condition.name)),
            Err(failure) => {
                failed =
                    Some(format!("match condition {} failed: {}", condition.name, failure.words()));
            }
        }
    }
    failed.map_or(Ok(true), Err)
}

/// Adds the policy's variables; each may use the earlier ones. A variable that fails also fails each expression that
/// uses it.
pub(super) fn with_variables<'a>(
    policy: &'a Policy,
    scope: Scope<'a>,
    budget: &mut u64,
) -> Scope<'a> {
    let mut known: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(policy.variables.len());
    for variable in &policy.variables {
        let so_far = scope.clone().with("variables", Val::Map(Rc::new(known.clone())));
        let value = run(variable, &so_far, budget).unwrap_or_else(|failure| {
            let why = format!(
                "composited variable \"{}\" fails to evaluate: {}",
                variable.name,
                failure.words()
            );
            Val::Failed(why.into())
        });
        known.push((Val::str(variable.name.clone()), value));
    }
    scope.with("variables", Val::Map(Rc::new(known)))
}

/// Returns the policy's validations that the request fails.
pub(super) fn validate(request: &Attributes<'_>, policy: &Policy, binding: &Value) -> Vec<Denied> {
    let failed = |message: String| {
        if policy.closed { vec![Denied { message, reason: String::new() }] } else { Vec::new() }
    };
    let all = match params::of(request, policy, binding) {
        Ok(all) => all,
        Err(error) => return failed(format!("failed to configure binding: {error}")),
    };
    let mut denied = Vec::new();
    for params in all {
        let facts = Facts::new(request, params);
        let scope = facts.scope(request.object, request.old);
        let mut budget = request.cx.budget.expressions(BUDGET);
        match applies(policy, &scope, &mut budget) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                denied.extend(failed(error));
                continue;
            }
        }
        let scope = with_variables(policy, scope, &mut budget);
        for validation in &policy.validations {
            let expression = &validation.expression;
            match run(expression, &scope, &mut budget) {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => denied.push(Denied {
                    message: words(validation, &scope, &mut budget),
                    reason: validation.reason.clone(),
                }),
                Ok(_) => denied.extend(failed(format!(
                    "expression '{}' resulted in error: it is no bool",
                    expression.text
                ))),
                Err(failure) => denied.extend(failed(format!(
                    "expression '{}' resulted in error: {}",
                    expression.text,
                    failure.words()
                ))),
            }
        }
    }
    denied
}

/// Returns the message of a failed validation.
fn words<'a>(validation: &'a Validation, scope: &Scope<'a>, budget: &mut u64) -> String {
    if let Some(expression) = &validation.message_expression
        && let Ok(Val::Str(words)) = run(expression, scope, budget)
    {
        let words = words.trim();
        if !words.is_empty() && !words.contains('\n') {
            return words.to_owned();
        }
    }
    if validation.message.is_empty() {
        format!("failed expression: {}", validation.expression.text.trim())
    } else {
        validation.message.clone()
    }
}
