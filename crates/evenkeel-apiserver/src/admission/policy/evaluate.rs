//! Evaluates a policy's expressions for one request.

use std::rc::Rc;

use serde_json::Value;

use super::compiled::{Expression, Policy, Validation};
use super::{matching, params};
use crate::admission::attributes::{Attributes, described};
use evenkeel_cel::{BUDGET, Failure, PER_CALL, Scope, Val};

/// Cost budget of the match conditions of one policy or webhook for one request.
///
/// Upstream: `RuntimeCELCostBudgetMatchConditions`.
const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;
/// Maximum length in bytes of an evaluated `messageExpression`. A longer one is ignored.
///
/// Upstream: `MaxEvaluatedMessageExpressionSizeBytes`.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// Denial by a policy.
pub(super) struct Denied {
    pub(super) message: String,
    pub(super) reason: String,
}

/// Bindings of the CEL variables other than `object` and `oldObject`.
pub(super) struct Bindings {
    pub(super) request: Value,
    pub(super) namespace: Value,
    pub(super) params: Value,
}

impl Bindings {
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
    let limit = (*budget).min(PER_CALL);
    let mut left = limit;
    let result = program.run(scope, &mut left);
    *budget -= limit - left;
    result
}

/// Returns whether the match conditions of a policy are true. Returns an error if one fails and none is false.
pub(super) fn policy_matches<'a>(
    request: &Attributes<'_>,
    policy: &'a Policy,
    scope: &Scope<'a>,
) -> Result<bool, String> {
    let mut budget = request.cx.budget.expressions(MATCH_CONDITIONS_BUDGET);
    match_all(&policy.conditions, scope, &mut budget)
}

/// Returns whether the match conditions of a webhook are true. Returns an error if one fails and none is false.
pub(super) fn webhook_matches(
    request: &Attributes<'_>,
    conditions: &[Expression],
) -> Result<bool, String> {
    let bindings = Bindings::new(request, Value::Null);
    let mut budget = request.cx.budget.expressions(MATCH_CONDITIONS_BUDGET);
    match_all(conditions, &bindings.scope(request.object, request.old), &mut budget)
}

/// Upstream: `Match` of `admission/plugin/webhook/matchconditions`.
fn match_all<'a>(
    conditions: &'a [Expression],
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Result<bool, String> {
    let mut failed = None;
    for condition in conditions {
        match run(condition, scope, budget) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => return Ok(false),
            Ok(_) => failed = Some(format!("match condition {} is not a bool", condition.name)),
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

/// Returns the denials of a request by one binding. An error counts as a denial unless `failurePolicy` is `Ignore`.
pub(super) fn validate(request: &Attributes<'_>, policy: &Policy, binding: &Value) -> Vec<Denied> {
    let on_error = |message: String| {
        if policy.fails_closed {
            vec![Denied { message, reason: String::new() }]
        } else {
            Vec::new()
        }
    };
    let params_list = match params::of(request, policy, binding) {
        Ok(params_list) => params_list,
        Err(error) => return on_error(format!("failed to configure binding: {error}")),
    };
    let mut denied = Vec::new();
    for params in params_list {
        let bindings = Bindings::new(request, params);
        let scope = bindings.scope(request.object, request.old);
        match policy_matches(request, policy, &scope) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                denied.extend(on_error(error));
                continue;
            }
        }
        let mut budget = request.cx.budget.expressions(BUDGET);
        let scope = with_variables(policy, scope, &mut budget);
        for validation in &policy.validations {
            let expression = &validation.expression;
            match run(expression, &scope, &mut budget) {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => denied.push(Denied {
                    message: denial_message(validation, &scope, &mut budget),
                    reason: validation.reason.clone(),
                }),
                Ok(_) => denied.extend(on_error(format!(
                    "expression '{}' resulted in error: it is not a bool",
                    expression.text
                ))),
                Err(failure) => denied.extend(on_error(format!(
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
fn denial_message<'a>(validation: &'a Validation, scope: &Scope<'a>, budget: &mut u64) -> String {
    if let Some(expression) = &validation.message_expression
        && let Ok(Val::Str(message)) = run(expression, scope, budget)
    {
        let (is_short, message) = (message.len() <= MAX_MESSAGE_BYTES, message.trim());
        if is_short && !message.is_empty() && !message.contains('\n') {
            return message.to_owned();
        }
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    }
}
