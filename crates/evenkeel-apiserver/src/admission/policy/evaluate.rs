//! Evaluates a policy's expressions for one request.

use std::rc::Rc;

use serde_json::Value;

use super::authorizer::{RequestAuthorizer, request_resource};
use super::compiled::{Expression, Policy};
use super::matching;
use crate::admission::attributes::{Attributes, admission_request};
use crate::auth::aggregate;
use evenkeel_cel::authorization::{AccessRequest, Authorization, Authorizer};
use evenkeel_cel::{Scope, Val};

/// Cost budget of the match conditions of one policy or webhook for one request.
///
/// Upstream: `RuntimeCELCostBudgetMatchConditions`.
const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// Error of expressions whose evaluation costs more than their budget.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Values of the CEL variables other than `object` and `oldObject`.
pub(super) struct Bindings<'a> {
    request: Value,
    namespace: Value,
    params: Value,
    authorizer: &'a RequestAuthorizer<'a>,
    /// Value of `authorizer.requestResource`.
    resource: AccessRequest,
}

impl<'a> Bindings<'a> {
    pub(super) fn new(
        request: &Attributes<'_>,
        params: Value,
        authorizer: &'a RequestAuthorizer<'a>,
    ) -> Self {
        Self {
            request: admission_request(request),
            namespace: matching::namespace_of(request),
            params,
            authorizer,
            resource: request_resource(request.cx),
        }
    }

    /// Returns the variables of match conditions, where `namespaceObject` is null.
    ///
    /// Upstream: `matcher.Match`.
    pub(super) fn for_matching<'s>(&'s self, object: &'s Value, old: &'s Value) -> Scope<'s> {
        let namespace = Val::Null;
        self.with_authorizer(self.common(object, old, namespace))
    }

    /// Returns the variables of validations and mutations.
    pub(super) fn scope<'s>(&'s self, object: &'s Value, old: &'s Value) -> Scope<'s> {
        self.with_authorizer(self.without_authorizer(object, old))
    }

    /// Returns the variables of messages and audit annotations, which have no `authorizer`.
    pub(super) fn without_authorizer<'s>(&'s self, object: &'s Value, old: &'s Value) -> Scope<'s> {
        self.common(object, old, Val::of(&self.namespace, None))
    }

    /// Returns the variables that all expressions have.
    fn common<'s>(&'s self, object: &'s Value, old: &'s Value, namespace: Val<'s>) -> Scope<'s> {
        Scope::default()
            .with("object", Val::of(object, None))
            .with("oldObject", Val::of(old, None))
            .with("request", Val::of(&self.request, None))
            .with("namespaceObject", namespace)
            .with("params", Val::of(&self.params, None))
    }

    /// Adds the variables that check authorizations.
    fn with_authorizer<'s>(&'s self, scope: Scope<'s>) -> Scope<'s> {
        let authorizer = Authorizer::of_requester(self.authorizer);
        let resource = Authorization::ResourceCheck(authorizer.clone(), self.resource.clone());
        let value = |authorization| Val::Authorization(Rc::new(authorization));
        scope
            .with("authorizer", value(Authorization::Authorizer(authorizer)))
            .with("authorizer.requestResource", value(resource))
    }
}

/// Adds the policy's variables. A variable may use earlier variables. It is evaluated when an expression first uses it.
pub(super) fn with_variables<'s>(policy: &'s Policy, scope: Scope<'s>) -> Scope<'s> {
    let program = |variable: &'s Expression| {
        (variable.name.as_str(), variable.program.as_ref().map_err(String::as_str))
    };
    scope.with_composited_variables(policy.variables.iter().map(program))
}

/// Error: the cost budget is used up.
#[derive(Debug)]
pub(super) struct OutOfBudget;

impl From<OutOfBudget> for String {
    fn from(_: OutOfBudget) -> Self {
        OUT_OF_BUDGET.to_owned()
    }
}

/// Evaluates an expression. Deducts its cost from `budget`, including the cost of variables that it is the first to
/// use. The inner error is the error of the expression.
///
/// Upstream: `evaluationActivation.Evaluate`.
pub(super) fn run<'s>(
    expression: &'s Expression,
    scope: &Scope<'s>,
    budget: &mut u64,
) -> Result<Result<Val<'s>, String>, OutOfBudget> {
    let program = match &expression.program {
        Ok(program) => program,
        Err(error) => return Ok(Err(format!("compilation error: {error}"))),
    };
    let result = program.run_within(scope, budget).ok_or(OutOfBudget)?;
    Ok(result.map_err(|failure| {
        format!("expression '{}' resulted in error: {}", expression.text, failure.message())
    }))
}

/// Returns whether all match conditions of a policy are true. Returns an error if one fails and none is false.
pub(super) fn policy_matches<'s>(
    request: &Attributes<'_>,
    policy: &'s Policy,
    bindings: &'s Bindings<'_>,
    object: &'s Value,
) -> Result<bool, String> {
    if policy.conditions.is_empty() {
        return Ok(true);
    }
    let mut budget = request.cx.budget.draw_expression_cost(MATCH_CONDITIONS_BUDGET);
    match_all(&policy.conditions, &bindings.for_matching(object, request.old), &mut budget)
}

/// Returns whether all match conditions of a webhook are true. Returns an error if one fails and none is false.
pub(super) fn webhook_matches(
    request: &Attributes<'_>,
    conditions: &[Expression],
) -> Result<bool, String> {
    let authorizer = RequestAuthorizer::new(request.cx);
    let bindings = Bindings::new(request, Value::Null, &authorizer);
    let mut budget = request.cx.budget.draw_expression_cost(MATCH_CONDITIONS_BUDGET);
    match_all(conditions, &bindings.for_matching(request.object, request.old), &mut budget)
}

/// Returns whether all conditions are true.
///
/// Upstream: `Match` of `admission/plugin/webhook/matchconditions`.
fn match_all<'s>(
    conditions: &'s [Expression],
    scope: &Scope<'s>,
    budget: &mut u64,
) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        match run(condition, scope, budget)? {
            Ok(Val::Bool(false)) => return Ok(false),
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
    }
    aggregate(errors.into_iter()).map_or(Ok(true), Err)
}
