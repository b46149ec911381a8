//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: CEL policies for requests (KEP-3488, KEP-3962).
//!
//! A policy is compiled at its first use, and again after each change.

mod apply;
mod audit;
mod authorizer;
mod check;
pub(crate) mod compiled;
mod evaluate;
mod matching;
mod mutate;
mod params;
mod validate;

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::attributes::{Attributes, Operation, is_excluded, is_exempt};
use super::plugins::Plugin;
use super::reinvocation::Reinvocation;
use crate::api::Context;
use crate::store::Entry;
use authorizer::RequestAuthorizer;
use compiled::{Expression, Policy, PolicyKind};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{list, text};
use mutate::PolicyError;
use validate::{Denied, Validated};

pub(crate) use check::expression_errors;
pub(crate) use matching::Matched;

/// Resource prefixes of validating policies and of their bindings.
const VALIDATING_PREFIXES: [&str; 2] = [
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
];
/// Resource prefixes of mutating policies and of their bindings.
const MUTATING_PREFIXES: [&str; 2] = [
    "admissionregistration.k8s.io/mutatingadmissionpolicies",
    "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
];

/// Policy with all of its bindings.
struct BoundPolicy {
    policy: Arc<Policy>,
    bindings: Vec<Value>,
}

/// Returns the policies of a kind that have bindings; none if the plug-in is disabled or the resource is exempt.
fn bound_policies(cx: &Context<'_>, kind: PolicyKind) -> Vec<BoundPolicy> {
    let store = &cx.api.store;
    let (plugin, [policy_prefix, binding_prefix]) = match kind {
        PolicyKind::Validating => (Plugin::ValidatingAdmissionPolicy, VALIDATING_PREFIXES),
        PolicyKind::Mutating => (Plugin::MutatingAdmissionPolicy, MUTATING_PREFIXES),
    };
    if !cx.api.plugins.has(plugin) || is_exempt(cx) || is_excluded(cx) {
        return Vec::new();
    }
    // Counting is cheaper than listing, and most clusters have no policies.
    let policies =
        if store.count(policy_prefix) == 0 { Vec::new() } else { store.all(policy_prefix) };
    cx.api.policies.retain(kind, &policies);
    if policies.is_empty() || store.count(binding_prefix) == 0 {
        return Vec::new();
    }
    let bindings: Vec<Value> =
        store.all(binding_prefix).iter().filter_map(|entry| entry.decode().ok()).collect();
    let with_bindings = |entry: Arc<Entry>| {
        let policy = cx.api.policies.get(kind, &entry)?;
        let is_of_policy = |binding: &&Value| text(binding, "spec.policyName") == policy.name;
        let bindings: Vec<Value> = bindings.iter().filter(is_of_policy).cloned().collect();
        (!bindings.is_empty()).then_some(BoundPolicy { policy, bindings })
    };
    policies.into_iter().filter_map(with_bindings).collect()
}

/// Mutating policies for one request, which run in one or two passes of mutating admission.
pub(super) struct Mutating {
    policies: Vec<BoundPolicy>,
    /// State of the passes. The keys are the indexes of a policy and of its binding.
    passes: Reinvocation<(usize, usize)>,
}

impl Mutating {
    pub(super) fn new(cx: &Context<'_>) -> Self {
        Self { policies: bound_policies(cx, PolicyKind::Mutating), passes: Reinvocation::default() }
    }

    /// Returns whether no policies with bindings exist. A policy need not match the request.
    pub(super) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Runs one pass: applies the policies to an object. Returns whether a policy changed the object.
    ///
    /// Upstream: `dispatcher.dispatchInvocations` of `admission/plugin/policy/mutating`.
    pub(super) async fn pass(
        &mut self,
        cx: &Context<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, StatusError> {
        let mut changed = false;
        let mut errors = Vec::new();
        let authorizer = RequestAuthorizer::new(cx);
        self.passes.begin(object);
        for (policy_index, BoundPolicy { policy, bindings }) in self.policies.iter().enumerate() {
            let reinvoke_if_needed =
                text(&policy.document, "spec.reinvocationPolicy") == "IfNeeded";
            for (binding_index, binding) in bindings.iter().enumerate() {
                let key = (policy_index, binding_index);
                if !self.passes.calls(&key) {
                    continue;
                }
                let mutated =
                    apply::apply(cx, operation, policy, binding, object, old, &authorizer).await?;
                if policy.fails_closed {
                    errors.extend(mutated.errors);
                }
                if !mutated.calls.is_empty() {
                    let policy_changed = mutated.calls.contains(&true);
                    self.passes.record(key, reinvoke_if_needed, policy_changed);
                    changed |= policy_changed;
                }
            }
        }
        self.passes.end(object);
        refuse_mutation(cx, &errors)?;
        Ok(changed)
    }
}

/// Refuses a request if mutating policies have errors. The first error determines the response.
fn refuse_mutation(cx: &Context<'_>, errors: &[PolicyError]) -> Result<(), StatusError> {
    let Some(first) = errors.first() else { return Ok(()) };
    let mut refusal = StatusError::forbidden(&cx.requested.name, name_or_unknown(cx), "");
    refusal.0.message.clone_from(&first.message);
    if first.is_invalid {
        refusal.0.reason = "Invalid".into();
    }
    for error in errors {
        refusal = refusal.cause("", error.message.clone(), "");
    }
    Err(refusal)
}

/// Returns the name of the request's object for an error. The deletion of a collection has no name.
fn name_or_unknown<'a>(cx: &Context<'a>) -> &'a str {
    if cx.name.is_empty() { "Unknown" } else { cx.name }
}

/// Evaluates the validating policies. Refuses the request if one denies it. Adds their warnings to `warnings`, and
/// their audit annotations to the audit event.
pub(crate) async fn validate(
    request: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let mut denied: Vec<Denied> = Vec::new();
    let mut audited_failures = audit::Failures::default();
    let authorizer = RequestAuthorizer::new(request.cx);
    for BoundPolicy { policy, bindings } in bound_policies(request.cx, PolicyKind::Validating) {
        let constraints = &policy.document["spec"]["matchConstraints"];
        let Some(matched) = matching::matches(request, constraints) else { continue };
        let converted = request.converted(matched.version(request)).await?;
        let converted = converted.as_ref().map(|converted| converted.attributes(request));
        let versioned_request = converted.as_ref().unwrap_or(request);
        let mut annotations = audit::Annotations::default();
        for binding in &bindings {
            if !matching::is_bound(request, binding) {
                continue;
            }
            let result = validate::validate(versioned_request, &policy, binding, &authorizer);
            annotations.add(&result.annotations);
            audited_failures.add(&policy.name, binding, &result.failures);
            apply_actions(&policy, binding, result, &mut denied, warnings);
        }
        for (key, value) in annotations.published(&policy.name) {
            request.cx.audit.annotate(key, value);
        }
    }
    if let Some((key, value)) = audited_failures.published() {
        request.cx.audit.annotate(key, value);
    }
    refuse(request.cx, &denied)
}

/// Applies the binding's actions `Deny` and `Warn` to failures: adds them to `denied` and `warnings`.
fn apply_actions(
    policy: &Policy,
    binding: &Value,
    result: Validated,
    denied: &mut Vec<Denied>,
    warnings: &mut Vec<String>,
) {
    if result.failures.is_empty() && result.denied.is_empty() {
        return;
    }
    let actions = list(binding, "spec.validationActions");
    let policy_and_binding = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}'",
        policy.name,
        text(binding, "metadata.name")
    );
    let denial = |failure: Denied| Denied {
        message: format!("{policy_and_binding} denied request: {}", failure.message),
        ..failure
    };
    for failure in result.failures {
        if actions.iter().any(|action| action == "Warn") {
            warnings
                .push(format!("Validation failed for {policy_and_binding}: {}", failure.message));
        }
        if actions.iter().any(|action| action == "Deny") {
            denied.push(denial(failure));
        }
    }
    denied.extend(result.denied.into_iter().map(denial));
}

/// Refuses a request if validating policies deny it. The first denial determines the response.
fn refuse(cx: &Context<'_>, denied: &[Denied]) -> Result<(), StatusError> {
    let Some(first) = denied.first() else { return Ok(()) };
    let (code, reason) = match first.reason.as_str() {
        "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
        "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    };
    let name = name_or_unknown(cx);
    let mut error = StatusError::forbidden(&cx.requested.name, name, first.message.clone());
    error.0.code = code.as_u16();
    error.0.reason = reason.into();
    for denial in denied {
        error = error.cause("", denial.message.clone(), "");
    }
    Err(error)
}

/// Returns the resource in the version that a webhook receives, or `None` if the webhook's rules, selectors or match
/// conditions do not match the request.
pub(crate) async fn match_webhook(
    request: &Attributes<'_>,
    webhook: &Value,
) -> Result<Result<Option<Matched>, String>, StatusError> {
    let mut constraints =
        json!({"resourceRules": webhook["rules"], "matchPolicy": webhook["matchPolicy"]});
    for selector in ["namespaceSelector", "objectSelector"] {
        constraints[selector] = webhook[selector].clone();
    }
    if list(webhook, "rules").is_empty() {
        return Ok(Ok(None));
    }
    let Some(matched) = matching::matches(request, &constraints) else { return Ok(Ok(None)) };
    let conditions = list(webhook, "matchConditions");
    let conditions: Vec<Expression> =
        conditions.iter().map(|condition| Expression::new(condition, "expression")).collect();
    if conditions.is_empty() {
        return Ok(Ok(Some(matched)));
    }
    let is_match = {
        let converted = request.converted(matched.version(request)).await?;
        let converted = converted.as_ref().map(|converted| converted.attributes(request));
        evaluate::webhook_matches(converted.as_ref().unwrap_or(request), &conditions)
    };
    Ok(is_match.map(|is_match| is_match.then_some(matched)))
}
