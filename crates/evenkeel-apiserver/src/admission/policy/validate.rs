//! Evaluates the validations and audit annotations of validating policies.
//!
//! Upstream: `validator.Validate` of `admission/plugin/policy/validating`.

use serde_json::Value;

use super::authorizer::RequestAuthorizer;
use super::compiled::{AuditAnnotation, Policy, Validation};
use super::evaluate::{Bindings, OutOfBudget, policy_matches, run, with_variables};
use super::params;
use crate::admission::attributes::Attributes;
use evenkeel_cel::{RUNTIME_COST_BUDGET, Scope, Val};

/// Maximum length in bytes of an evaluated `messageExpression`. A longer one is ignored.
///
/// Upstream: `MaxEvaluatedMessageExpressionSizeBytes`.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// Failed validation, or an error of a policy that counts as a failed validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denied {
    /// Index of the validation; 0 for an error of the policy.
    pub(super) index: usize,
    pub(super) message: String,
    /// Reason for the response, such as `Forbidden`; empty for the default.
    pub(super) reason: String,
}

impl Denied {
    /// Creates a failure with the default reason.
    pub(super) fn of(message: impl Into<String>) -> Self {
        Self { index: 0, message: message.into(), reason: String::new() }
    }
}

/// Results of a policy for one binding.
#[derive(Debug, Default)]
pub(super) struct Validated {
    /// Failures. The binding's `validationActions` apply to them.
    pub(super) failures: Vec<Denied>,
    /// Failures that deny the request, regardless of the binding's actions.
    pub(super) denied: Vec<Denied>,
    /// Audit annotations as key and value.
    pub(super) annotations: Vec<(String, String)>,
}

/// Evaluates a policy for one binding and all of its parameters. An error counts as a failure unless `failurePolicy`
/// is `Ignore`.
pub(super) fn validate(
    request: &Attributes<'_>,
    policy: &Policy,
    binding: &Value,
    authorizer: &RequestAuthorizer<'_>,
) -> Validated {
    let mut validated = Validated::default();
    let params_list = match params::of(request, policy, binding) {
        Ok(params_list) => params_list,
        Err(error) => {
            if policy.fails_closed {
                let message = format!("failed to configure binding: {error}");
                validated.denied.push(Denied::of(message));
            }
            return validated;
        }
    };
    for params in params_list {
        let bindings = Bindings::new(request, params, authorizer);
        validate_with_params(request, policy, &bindings, &mut validated);
    }
    validated
}

/// Evaluates a policy for one of its parameters.
fn validate_with_params(
    request: &Attributes<'_>,
    policy: &Policy,
    bindings: &Bindings<'_>,
    validated: &mut Validated,
) {
    let on_error = |message: String, validated: &mut Validated| {
        if policy.fails_closed {
            validated.failures.push(Denied::of(message));
        }
    };
    match policy_matches(request, policy, bindings, request.object) {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => return on_error(error, validated),
    }
    let failures = match run_validations(request, policy, bindings) {
        Ok(failures) => failures,
        Err(out_of_budget) => return on_error(out_of_budget.into(), validated),
    };
    // If the annotations exceed their budget, that error replaces the results of the validations.
    match run_annotations(request, policy, bindings) {
        Ok((annotations, errors)) => {
            validated.failures.extend(failures);
            validated.annotations.extend(annotations);
            validated.denied.extend(errors);
        }
        Err(out_of_budget) => on_error(out_of_budget.into(), validated),
    }
}

/// Evaluates the validations of a policy, and the messages of failed validations. All share one cost budget.
fn run_validations(
    request: &Attributes<'_>,
    policy: &Policy,
    bindings: &Bindings<'_>,
) -> Result<Vec<Denied>, OutOfBudget> {
    let mut budget = request.cx.budget.draw_expression_cost(RUNTIME_COST_BUDGET);
    let scope = with_variables(policy, bindings.scope(request.object, request.old));
    let mut failed = Vec::new();
    for (index, validation) in policy.validations.iter().enumerate() {
        match run(&validation.expression, &scope, &mut budget)? {
            Ok(Val::Bool(true)) => {}
            Ok(_) => failed.push((index, validation, None)),
            Err(error) if policy.fails_closed => failed.push((index, validation, Some(error))),
            Err(_) => {}
        }
    }
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    // Messages evaluate the variables again, because they have no `authorizer`.
    let scope = with_variables(policy, bindings.without_authorizer(request.object, request.old));
    let mut denied = Vec::with_capacity(failed.len());
    for (index, validation, error) in failed {
        if let Some(message) = error {
            denied.push(Denied { index, message, reason: String::new() });
            continue;
        }
        match denial_message(validation, &scope, &mut budget) {
            Ok(message) => {
                denied.push(Denied { index, message, reason: validation.reason.clone() });
            }
            Err(out_of_budget) if policy.fails_closed => {
                let message = format!("failed messageExpression: {}", String::from(out_of_budget));
                denied.push(Denied { index, message, reason: String::new() });
            }
            Err(_) => {}
        }
    }
    Ok(denied)
}

/// Returns the message of a failed validation: the value of `messageExpression` if it is usable, or else `message`, or
/// else a default.
fn denial_message<'s>(
    validation: &'s Validation,
    scope: &Scope<'s>,
    budget: &mut u64,
) -> Result<String, OutOfBudget> {
    if let Some(expression) = &validation.message_expression
        && let Ok(Val::Str(message)) = run(expression, scope, budget)?
    {
        let message = message.trim();
        if !message.is_empty() && message.len() <= MAX_MESSAGE_BYTES && !message.contains('\n') {
            return Ok(message.to_owned());
        }
    }
    Ok(match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    })
}

/// Audit annotations as key and value, and the errors that deny the request.
type Annotated = (Vec<(String, String)>, Vec<Denied>);

/// Evaluates the audit annotations of a policy.
fn run_annotations(
    request: &Attributes<'_>,
    policy: &Policy,
    bindings: &Bindings<'_>,
) -> Result<Annotated, OutOfBudget> {
    let (mut annotations, mut errors) = Annotated::default();
    if policy.audit_annotations.is_empty() {
        return Ok((annotations, errors));
    }
    let mut budget = request.cx.budget.draw_expression_cost(RUNTIME_COST_BUDGET);
    let scope = with_variables(policy, bindings.without_authorizer(request.object, request.old));
    for AuditAnnotation { key, value } in &policy.audit_annotations {
        match run(value, &scope, &mut budget)? {
            Ok(Val::Str(text)) => match text.trim() {
                "" => {}
                text => annotations.push((key.clone(), text.to_owned())),
            },
            Ok(Val::Null) => {}
            Ok(other) => errors.push(Denied::of(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                value.text,
                other.type_name()
            ))),
            Err(error) if policy.fails_closed => errors.push(Denied::of(error)),
            Err(_) => {}
        }
    }
    Ok((annotations, errors))
}
