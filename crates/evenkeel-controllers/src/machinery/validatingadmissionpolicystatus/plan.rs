//! Steps of a type check: discovery, OpenAPI documents, status.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | a policy is checked once for each generation | `is_unchecked` |
//! | expressions are checked with the kinds that `matchConstraints` names, without `*` | `kinds::matched` |
//! | a kind without a schema is omitted | `typed_kinds` |
//! | `params` has the type of `paramKind` | `params_type` |
//! | warnings are in `status.typeChecking` | `status_patch` |

use super::{
    Policy,
    expressions::{self, TypedKind},
    kinds::{self, GroupVersionKind, Matched},
    schema::Document,
};
use crate::wire;
use evenkeel_api::{View as _, time::Timestamp};
use evenkeel_cel::check::Type;
use evenkeel_runtime::{
    introspect::Description,
    plan::{Action, LiveRead, OnError, Outcome, Outcomes, Patch, PatchType, Plan, Reply, Steps},
};
use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, ValidatingAdmissionPolicySpec,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Field manager of the status. Upstream: `ControllerName`.
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";
/// Maximum age of a discovery. Upstream's RESTMapper is reset as often.
const DISCOVERY_AGE: Duration = Duration::from_secs(30);
/// Path of the index of OpenAPI documents.
const INDEX: &str = "/openapi/v3";

/// Returns whether a policy was not checked since its spec changed.
pub(super) fn is_unchecked(policy: &Policy) -> bool {
    policy.metadata.generation.unwrap_or_default() > observed_generation(policy)
}

/// Checks a policy, and writes the warnings to its status. Upstream: `reconcile`.
pub(super) fn check(policy: &Policy, outcomes: &Outcomes, now: Timestamp) -> Option<Plan> {
    Steps::next(outcomes, |steps| {
        if !is_unchecked(policy) {
            return Ok(Plan::nothing());
        }
        let spec = policy.spec.as_ref();
        let kinds = discover_kinds(spec, steps)?;
        let params = GroupVersionKind::of_params(spec.and_then(|spec| spec.param_kind.as_ref()));
        let documents = read_documents(&kinds, params.as_ref(), steps)?;
        // The check takes time, so it is not repeated after the write.
        steps.one(Lazy(|| {
            let documents = documents.into_iter().filter_map(|(path, reply)| {
                Document::parse(reply.body()).map(|document| (path, document))
            });
            let warnings =
                spec.map(|spec| warnings(spec, kinds, params, &documents.collect(), now));
            status_patch(policy, &warnings.unwrap_or_default()).into()
        }))?;
        Ok(Plan::nothing())
    })
}

/// Explains whether a policy was checked.
pub(super) fn describe(policy: &Policy) -> Description {
    let mut description = Description::new();
    description.fact("generation", policy.metadata.generation.unwrap_or_default());
    description.fact("observedGeneration", observed_generation(policy));
    let checking = policy.status.as_ref().and_then(|status| status.type_checking.as_ref());
    let warnings = checking.and_then(|checking| checking.expression_warnings.as_deref());
    description.fact("expressionWarnings", warnings.unwrap_or_default().len());
    description
}

/// Returns the last generation that was checked; 0 if none was.
fn observed_generation(policy: &Policy) -> i64 {
    let status = policy.status.as_ref();
    status.and_then(|status| status.observed_generation).unwrap_or_default()
}

/// An action that is built only if its step was not executed yet.
struct Lazy<F>(F);

impl<F: FnOnce() -> Action> From<Lazy<F>> for Action {
    fn from(lazy: Lazy<F>) -> Self {
        lazy.0()
    }
}

/// Discovers the kinds that a policy matches. If the last discovery lacks a resource, discovers once more: the resource may
/// be new.
fn discover_kinds(
    spec: Option<&ValidatingAdmissionPolicySpec>,
    steps: &mut Steps<'_>,
) -> Result<BTreeSet<GroupVersionKind>, Plan> {
    let constraints = spec.and_then(|spec| spec.match_constraints.as_ref());
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_deref());
    let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
        return Ok(BTreeSet::new());
    };
    let mut discover = |max_age| -> Result<Matched, Plan> {
        let read = LiveRead { on_error: OnError::Abort, ..LiveRead::resources(max_age) };
        let read = steps.one(read)?;
        let resources = read.reply.as_ref().and_then(Reply::resources);
        Ok(resources.map(|resources| kinds::matched(rules, resources)).unwrap_or_default())
    };
    let mut matched = discover(DISCOVERY_AGE)?;
    if matched.lacks_resource {
        matched = discover(Duration::ZERO)?;
    }
    Ok(matched.kinds)
}

/// Reads the OpenAPI documents of kinds, by [`GroupVersionKind::document`]. Leaves out those that the server does not
/// have.
fn read_documents<'a>(
    kinds: &BTreeSet<GroupVersionKind>,
    params: Option<&GroupVersionKind>,
    steps: &mut Steps<'a>,
) -> Result<BTreeMap<String, &'a Reply>, Plan> {
    if kinds.is_empty() {
        return Ok(BTreeMap::new());
    }
    let index = LiveRead { on_error: OnError::Abort, ..LiveRead::json(INDEX) };
    let Some(index) = &steps.one(index)?.reply else { return Ok(BTreeMap::new()) };
    let index: Value = evenkeel_api::json::from_slice(index.body())
        .map_err(|error| Plan::failure(format!("cannot decode {INDEX}: {error}")))?;
    let paths: BTreeSet<String> =
        kinds.iter().chain(params).map(GroupVersionKind::document).collect();
    let served: Vec<(String, &str)> = paths
        .into_iter()
        .filter_map(|path| {
            let url = index["paths"][&path]["serverRelativeURL"].as_str()?;
            url.starts_with('/').then_some((path, url))
        })
        .collect();
    let reads = served.iter().map(|(_, url)| {
        Action::from(LiveRead { on_error: OnError::Ignore, ..LiveRead::json(url) })
    });
    let outcomes = steps.all(Plan::of(reads.collect()))?;
    let mut documents = BTreeMap::new();
    for ((path, _), outcome) in served.into_iter().zip(outcomes) {
        if let Some(reply) = document_reply(outcome)? {
            documents.insert(path, reply);
        }
    }
    Ok(documents)
}

/// Returns the reply with a document. Returns `None` if its server lacks it, or is not available (503): another API server may
/// be unavailable for a long time, and must not delay the check of other kinds.
fn document_reply(outcome: &Outcome) -> Result<Option<&Reply>, Plan> {
    match (&outcome.reply, &outcome.error) {
        (Some(reply), _) => Ok(Some(reply)),
        (None, Some(error)) if ![404, 503].contains(&error.code) => {
            Err(Plan::failure(error.message.clone()))
        }
        (None, _) => Ok(None),
    }
}

/// Returns the warnings about a policy's expressions.
fn warnings(
    spec: &ValidatingAdmissionPolicySpec,
    kinds: BTreeSet<GroupVersionKind>,
    params: Option<GroupVersionKind>,
    documents: &BTreeMap<String, Document>,
    now: Timestamp,
) -> Vec<ExpressionWarning> {
    let params = params.map(|params| params_type(&params, documents, now));
    let kinds = typed_kinds(kinds, documents, now);
    expressions::warnings(spec, &kinds, params.as_ref())
}

/// Returns the kinds with a schema, each with its type.
fn typed_kinds(
    kinds: BTreeSet<GroupVersionKind>,
    documents: &BTreeMap<String, Document>,
    now: Timestamp,
) -> Vec<TypedKind> {
    let typed = kinds.into_iter().filter_map(|kind| {
        let object = documents.get(&kind.document())?.type_of(&kind, &type_name(&kind, now, 0))?;
        Some(TypedKind { kind, object })
    });
    typed.collect()
}

/// Returns the type of parameters: `dyn` if their kind has no schema.
fn params_type(
    params: &GroupVersionKind,
    documents: &BTreeMap<String, Document>,
    now: Timestamp,
) -> Type {
    let document = documents.get(&params.document());
    let found = document.and_then(|document| document.type_of(params, &type_name(params, now, 1)));
    found.unwrap_or(Type::Dyn)
}

/// Returns a name for a kind's type. Objects and parameters of one kind have types of different names, as in upstream's
/// `generateUniqueTypeName`, which appends the nanoseconds of the time.
fn type_name(kind: &GroupVersionKind, now: Timestamp, number: i32) -> String {
    format!("{}{}", kind.kind, now.subsec_nanosecond().saturating_add(number))
}

/// Returns the patch of a policy's status.
fn status_patch(policy: &Policy, warnings: &[ExpressionWarning]) -> Patch {
    let checking =
        if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    let kind = Policy::kind();
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": &*kind.kind,
        "metadata": {"name": &*policy.meta().name},
        "status": {
            "observedGeneration": policy.metadata.generation.unwrap_or_default(),
            "typeChecking": checking,
        },
    });
    let patch = Patch::new(wire::target(policy), PatchType::Apply(FIELD_MANAGER), body.to_string());
    Patch { subresource: "status", ..patch }
}

#[cfg(test)]
mod tests;
