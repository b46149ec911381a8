//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: expressions about requests (KEP-3488, KEP-3962).
//!
//! Policies are compiled when they are first asked, and kept as long as they stay as they are.

mod check;
mod evaluate;
mod matching;
mod mutate;
mod params;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::Context;
use crate::store::Entry;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{at, list, text};
use evenkeel_cel::Program;

pub(crate) use check::expressions;

const GROUP: &str = "admissionregistration.k8s.io";
const VALIDATING: [&str; 2] = [
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
];
const MUTATING: [&str; 2] = [
    "admissionregistration.k8s.io/mutatingadmissionpolicies",
    "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
];

/// An expression of a policy; what cannot be read fails when it is asked.
struct Expression {
    /// Name of a variable or of a condition; empty for others.
    name: String,
    text: String,
    program: Result<Program, String>,
}

impl Expression {
    fn new(of: &Value, field: &str) -> Self {
        let text = text(of, field).to_owned();
        let name = evenkeel_apimachinery::value::text(of, "name").to_owned();
        let program = Program::parse(&text);
        Self { name, text, program }
    }

    fn all(policy: &Value, path: &str) -> Vec<Self> {
        list(policy, path).iter().map(|one| Self::new(one, "expression")).collect()
    }
}

/// One check of a validating policy.
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// One change of a mutating policy.
struct Mutation {
    expression: Expression,
    /// Whether it is a JSON patch; otherwise a configuration to be merged.
    json_patch: bool,
}

/// A policy, compiled.
struct Policy {
    name: String,
    document: Value,
    conditions: Vec<Expression>,
    variables: Vec<Expression>,
    validations: Vec<Validation>,
    mutations: Vec<Mutation>,
    /// Requests are refused when it fails; otherwise they go on.
    closed: bool,
}

impl Policy {
    fn new(document: Value) -> Self {
        let validations = list(&document, "spec.validations").iter().map(|one| Validation {
            expression: Expression::new(one, "expression"),
            message: text(one, "message").trim().to_owned(),
            message_expression: at(one, "messageExpression")
                .map(|_| Expression::new(one, "messageExpression")),
            reason: text(one, "reason").to_owned(),
        });
        let mutations = list(&document, "spec.mutations").iter().map(|one| {
            let json_patch = text(one, "patchType") == "JSONPatch";
            let field = if json_patch { "jsonPatch" } else { "applyConfiguration" };
            Mutation { expression: Expression::new(&one[field], "expression"), json_patch }
        });
        Self {
            name: text(&document, "metadata.name").to_owned(),
            conditions: Expression::all(&document, "spec.matchConditions"),
            variables: Expression::all(&document, "spec.variables"),
            validations: validations.collect(),
            mutations: mutations.collect(),
            closed: text(&document, "spec.failurePolicy") != "Ignore",
            document,
        }
    }
}

/// Compiled policies by their place, each with the revision that it is of.
#[derive(Default)]
pub(crate) struct Compiled(Mutex<Kept>);

type Kept = HashMap<(usize, Arc<str>), (u64, Arc<Policy>)>;

impl Compiled {
    fn get(&self, sort: usize, entry: &Entry) -> Option<Arc<Policy>> {
        let place = (sort, entry.key.clone());
        let known = |kept: &Kept| {
            kept.get(&place).filter(|(at, _)| *at == entry.revision).map(|(_, p)| p.clone())
        };
        if let Some(policy) = known(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Some(policy);
        }
        let policy = Arc::new(Policy::new(entry.decode().ok()?));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(place, (entry.revision, policy.clone()));
        Some(policy)
    }
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request, as policies see it.
pub(crate) struct Request<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) operation: Operation,
    /// The object as it is to be; null when it goes.
    pub(crate) object: &'a Value,
    /// As it was; null when it is new.
    pub(crate) old: &'a Value,
}

/// Whether a resource is one that policies never see: themselves.
pub(crate) fn is_exempt(cx: &Context<'_>) -> bool {
    cx.resource.group() == GROUP
        || matches!(
            cx.resource.plural(),
            "tokenreviews"
                | "subjectaccessreviews"
                | "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "selfsubjectreviews"
        )
}

/// The policies of a sort, each with its bindings; nothing where there are none.
fn bound(cx: &Context<'_>, prefixes: [&str; 2], sort: usize) -> Vec<(Arc<Policy>, Vec<Value>)> {
    let store = &cx.api.store;
    if store.count(prefixes[0]) == 0 || store.count(prefixes[1]) == 0 || is_exempt(cx) {
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
    store.all(prefixes[0]).into_iter().filter_map(with_bindings).collect()
}

/// Lets mutating policies change an object.
pub(crate) fn mutate(
    cx: &Context<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    for (policy, bindings) in bound(cx, MUTATING, 1) {
        for binding in &bindings {
            mutate::apply(cx, &policy, binding, object, old)?;
        }
    }
    Ok(())
}

/// A refusal by a policy.
struct Denied {
    message: String,
    reason: String,
}

/// Asks the validating policies; warnings are added to `warnings`.
pub(crate) fn validate(
    request: &Request<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), StatusError> {
    let mut denied: Vec<Denied> = Vec::new();
    for (policy, bindings) in bound(request.cx, VALIDATING, 0) {
        if !matching::matches(request, &policy.document["spec"]["matchConstraints"]) {
            continue;
        }
        for binding in &bindings {
            if !matching::is_bound(request, binding) {
                continue;
            }
            let found = evaluate::validate(request, &policy, binding);
            sort_out(&policy, binding, found, &mut denied, warnings);
        }
    }
    refuse(request.cx, &denied)
}

/// What becomes of failures: refusals, warnings, or nothing.
fn sort_out(
    policy: &Policy,
    binding: &Value,
    found: Vec<Denied>,
    denied: &mut Vec<Denied>,
    warnings: &mut Vec<String>,
) {
    let actions = list(binding, "spec.validationActions");
    let names = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}'",
        policy.name,
        text(binding, "metadata.name")
    );
    for failure in found {
        if actions.iter().any(|a| a == "Warn") {
            warnings.push(format!("Validation failed for {names}: {}", failure.message));
        }
        if actions.iter().any(|a| a == "Deny") {
            let message = format!("{names} denied request: {}", failure.message);
            denied.push(Denied { message, reason: failure.reason });
        }
    }
}

fn refuse(cx: &Context<'_>, denied: &[Denied]) -> Result<(), StatusError> {
    let Some(first) = denied.first() else { return Ok(()) };
    let (code, reason) = match first.reason.as_str() {
        "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
        "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    };
    let mut error = StatusError::forbidden(&cx.resource.name, cx.name, first.message.clone());
    error.0.code = code.as_u16();
    error.0.reason = reason.into();
    for one in denied {
        error = error.cause("", one.message.clone(), "");
    }
    Err(error)
}

/// The request as expressions see it.
pub(crate) fn described(request: &Request<'_>) -> Value {
    let cx = request.cx;
    let kind = json!({"group": cx.resource.group(), "version": cx.resource.version(), "kind": cx.resource.kind()});
    let resource = json!({"group": cx.resource.group(), "version": cx.resource.version(), "resource": cx.resource.plural()});
    let groups: Vec<&str> = cx.user.groups.iter().map(|g| &**g).collect();
    let extra: serde_json::Map<String, Value> = cx
        .user
        .extra
        .iter()
        .map(|(key, values)| (key.to_string(), values.iter().map(|v| Value::from(&**v)).collect()))
        .collect();
    let user =
        json!({"username": &*cx.user.name, "uid": &*cx.user.uid, "groups": groups, "extra": extra});
    json!({"kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "subResource": cx.subresource, "requestSubResource": cx.subresource, "name": cx.name, "namespace": cx.namespace,
        "operation": request.operation.as_str(), "userInfo": user, "dryRun": cx.dry_run, "options": {}})
}

/// Whether a webhook is to be asked: its rules, selectors and conditions.
pub(crate) fn is_for_webhook(request: &Request<'_>, webhook: &Value) -> Result<bool, String> {
    let mut constraints =
        json!({"resourceRules": webhook["rules"], "matchPolicy": webhook["matchPolicy"]});
    for selector in ["namespaceSelector", "objectSelector"] {
        constraints[selector] = webhook[selector].clone();
    }
    if list(webhook, "rules").is_empty() || !matching::matches(request, &constraints) {
        return Ok(false);
    }
    let conditions = list(webhook, "matchConditions");
    let conditions: Vec<Expression> =
        conditions.iter().map(|one| Expression::new(one, "expression")).collect();
    evaluate::all_hold(request, &conditions)
}

/// Decodes an object again after a policy or a webhook has changed it: unknown fields are pruned, and absent ones get their
/// defaults.
pub(crate) fn settle(cx: &Context<'_>, object: &mut Value) {
    let resource = cx.resource;
    if let Some(custom) = &resource.custom {
        evenkeel_apimachinery::value::set(object, "apiVersion", &*resource.api_version);
        custom.definition.prune_and_default(object);
        return;
    }
    if let Some(schema) = resource.schema(&resource.gvk) {
        *object = evenkeel_apimachinery::patch::reread(&schema, &resource.gvk, object);
    }
    resource.strategy.default(object);
}
