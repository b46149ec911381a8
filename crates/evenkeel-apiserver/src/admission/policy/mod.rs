//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: CEL policies for requests (KEP-3488, KEP-3962).
//!
//! A policy is compiled at its first use, and again after it changed.

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
use compiled::{Expression, Policy};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{list, text};
use mutate::PolicyError;
use validate::{Denied, Validated};

pub(crate) use check::expressions;
pub(crate) use matching::Matched;

const VALIDATING: [&str; 2] = [
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
];
const MUTATING: [&str; 2] = [
    "admissionregistration.k8s.io/mutatingadmissionpolicies",
    "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
];

/// Returns the policies of a kind with their bindings; none if the plug-in is disabled or the resource is exempt.
fn bound(cx: &Context<'_>, prefixes: [&str; 2], sort: usize) -> Vec<(Arc<Policy>, Vec<Value>)> {
    let store = &cx.api.store;
    let plugin = [Plugin::ValidatingAdmissionPolicy, Plugin::MutatingAdmissionPolicy]
        [usize::from(sort == 1)];
    if !cx.api.plugins.has(plugin) || is_exempt(cx) || is_excluded(cx) {
        return Vec::new();
    }
    let policies = if store.count(prefixes[0]) == 0 { Vec::new() } else { store.all(prefixes[0]) };
    cx.api.policies.retain(sort, &policies);
    if policies.is_empty() || store.count(prefixes[1]) == 0 {
        return Vec::new();
    }
    let bindings: Vec<Value> =
        store.all(prefixes[1]).iter().filter_map(|entry| entry.decode().ok()).collect();
    let with_bindings = |entry: Arc<Entry>| {
        let policy = cx.api.policies.get(sort, &entry)?;
        let own = bindings.iter().filter(|b| text(b, "spec.policyName") == policy.name);
        let own: Vec<Value> = own.cloned().collect();
        (!own.is_empty()).then_some((policy, own))
    };
    policies.into_iter().filter_map(with_bindings).collect()
}

/// Mutating policies of one request, which run in up to two passes.
pub(super) struct Mutating {
    policies: Vec<(Arc<Policy>, Vec<Value>)>,
    /// Identifies a policy and its binding by their indices.
    passes: Reinvocation<(usize, usize)>,
}

impl Mutating {
    pub(super) fn new(cx: &Context<'_>) -> Self {
        Self { policies: bound(cx, MUTATING, 1), passes: Reinvocation::default() }
    }

    /// Returns whether there is no policy, for whichever objects.
    pub(super) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Applies the policies of this pass to an object. Returns whether one changed it.
    ///
    /// Upstream: `dispatcher.dispatchInvocations` of `admission/plugin/policy/mutating`.
    pub(super) fn pass(
        &mut self,
        cx: &Context<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, StatusError> {
        let (mut changed, mut errors) = (false, Vec::new());
        let authorizer = RequestAuthorizer::new(cx);
        self.passes.begin(object);
        for (at, (policy, bindings)) in self.policies.iter().enumerate() {
            let if_needed = text(&policy.document, "spec.reinvocationPolicy") == "IfNeeded";
            for (bound_at, binding) in bindings.iter().enumerate() {
                let key = (at, bound_at);
                if !self.passes.calls(&key) {
                    continue;
                }
                let mutated =
                    mutate::apply(cx, operation, policy, binding, object, old, &authorizer);
                if policy.fails_closed {
                    errors.extend(mutated.errors);
                }
                if !mutated.calls.is_empty() {
                    let by_this = mutated.calls.contains(&true);
                    self.passes.record(key, if_needed, by_this);
                    changed |= by_this;
                }
            }
        }
        self.passes.end(object);
        refuse_mutation(cx, &errors)?;
        Ok(changed)
    }
}

/// Refuses a request for the errors of mutating policies.
fn refuse_mutation(cx: &Context<'_>, errors: &[PolicyError]) -> Result<(), StatusError> {
    let Some(first) = errors.first() else { return Ok(()) };
    let mut refusal = StatusError::forbidden(&cx.requested.name, known_name(cx), "");
    refusal.0.message.clone_from(&first.message);
    if first.is_invalid {
        refusal.0.reason = "Invalid".into();
    }
    Err(errors.iter().fold(refusal, |refusal, error| refusal.cause("", error.message.clone(), "")))
}

/// Returns the name of the request's object for an error. The deletion of a collection names no object.
fn known_name<'a>(cx: &Context<'a>) -> &'a str {
    if cx.name.is_empty() { "Unknown" } else { cx.name }
}

/// Evaluates the validating policies, and adds their warnings to `warnings`.
pub(crate) fn validate(
    request: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let (mut denied, mut failures): (Vec<Denied>, _) = (Vec::new(), audit::Failures::default());
    let authorizer = RequestAuthorizer::new(request.cx);
    for (policy, bindings) in bound(request.cx, VALIDATING, 0) {
        let constraints = &policy.document["spec"]["matchConstraints"];
        let Some(matched) = matching::matches(request, constraints) else { continue };
        let converted = request.converted(matched.version(request));
        let converted = converted.as_ref().map(|converted| converted.attributes(request));
        let seen = converted.as_ref().unwrap_or(request);
        let mut annotations = audit::Annotations::default();
        for binding in &bindings {
            if !matching::is_bound(request, binding) {
                continue;
            }
            let found = validate::validate(seen, &policy, binding, &authorizer);
            annotations.add(&found.annotations);
            failures.add(&policy.name, binding, &found.failures);
            sort_out(&policy, binding, found, &mut denied, warnings);
        }
        for (key, value) in annotations.published(&policy.name) {
            request.cx.audit.annotate(key, value);
        }
    }
    if let Some((key, value)) = failures.published() {
        request.cx.audit.annotate(key, value);
    }
    refuse(request.cx, &denied)
}

/// Applies the binding's actions to failures: deny, warn or ignore.
fn sort_out(
    policy: &Policy,
    binding: &Value,
    found: Validated,
    denied: &mut Vec<Denied>,
    warnings: &mut Vec<String>,
) {
    if found.failures.is_empty() && found.denied.is_empty() {
        return;
    }
    let actions = list(binding, "spec.validationActions");
    let names = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}'",
        policy.name,
        text(binding, "metadata.name")
    );
    let named = |failure: Denied| Denied {
        message: format!("{names} denied request: {}", failure.message),
        ..failure
    };
    for failure in found.failures {
        if actions.iter().any(|a| a == "Warn") {
            warnings.push(format!("Validation failed for {names}: {}", failure.message));
        }
        if actions.iter().any(|a| a == "Deny") {
            denied.push(named(failure));
        }
    }
    denied.extend(found.denied.into_iter().map(named));
}

fn refuse(cx: &Context<'_>, denied: &[Denied]) -> Result<(), StatusError> {
    let Some(first) = denied.first() else { return Ok(()) };
    let (code, reason) = match first.reason.as_str() {
        "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
        "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    };
    let name = known_name(cx);
    let mut error = StatusError::forbidden(&cx.requested.name, name, first.message.clone());
    error.0.code = code.as_u16();
    error.0.reason = reason.into();
    for one in denied {
        error = error.cause("", one.message.clone(), "");
    }
    Err(error)
}

/// Returns the API version of the resource that a webhook gets, or `None` if its rules, selectors or conditions do not
/// match.
pub(crate) fn is_for_webhook(
    request: &Attributes<'_>,
    webhook: &Value,
) -> Result<Option<Matched>, String> {
    let mut constraints =
        json!({"resourceRules": webhook["rules"], "matchPolicy": webhook["matchPolicy"]});
    for selector in ["namespaceSelector", "objectSelector"] {
        constraints[selector] = webhook[selector].clone();
    }
    if list(webhook, "rules").is_empty() {
        return Ok(None);
    }
    let Some(matched) = matching::matches(request, &constraints) else { return Ok(None) };
    let conditions = list(webhook, "matchConditions");
    let conditions: Vec<Expression> =
        conditions.iter().map(|one| Expression::new(one, "expression")).collect();
    if conditions.is_empty() {
        return Ok(Some(matched));
    }
    let holds = {
        let converted = request.converted(matched.version(request));
        let converted = converted.as_ref().map(|converted| converted.attributes(request));
        evaluate::webhook_matches(converted.as_ref().unwrap_or(request), &conditions)?
    };
    Ok(holds.then_some(matched))
}
