//! Admission policies with parsed expressions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_apimachinery::value::{get, list, text};
use evenkeel_cel::Program;
use serde_json::Value;

use crate::store::Entry;

/// CEL expression of a policy. One that does not parse fails at its evaluation.
pub(super) struct Expression {
    /// Name of a variable or of a match condition, else empty.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) program: Result<Program, String>,
}

impl Expression {
    /// Parses the expression in `field`.
    pub(super) fn new(of: &Value, field: &str) -> Self {
        let text = text(of, field).to_owned();
        let name = evenkeel_apimachinery::value::text(of, "name").to_owned();
        let program = Program::parse(&text);
        Self { name, text, program }
    }

    /// Parses all expressions of a list.
    pub(super) fn all(policy: &Value, path: &str) -> Vec<Self> {
        list(policy, path).iter().map(|one| Self::new(one, "expression")).collect()
    }
}

/// One validation of a ValidatingAdmissionPolicy.
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

/// One mutation of a MutatingAdmissionPolicy.
pub(super) struct Mutation {
    pub(super) expression: Expression,
    /// Whether it is a JSON patch. Otherwise it is an apply configuration.
    pub(super) json_patch: bool,
}

/// Policy with parsed expressions.
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) document: Value,
    pub(super) conditions: Vec<Expression>,
    pub(super) variables: Vec<Expression>,
    pub(super) validations: Vec<Validation>,
    pub(super) mutations: Vec<Mutation>,
    /// Whether a failure of the policy refuses the request (`failurePolicy: Fail`).
    pub(super) fails_closed: bool,
}

impl Policy {
    fn new(document: Value) -> Self {
        let validations = list(&document, "spec.validations").iter().map(|one| Validation {
            expression: Expression::new(one, "expression"),
            message: text(one, "message").trim().to_owned(),
            message_expression: get(one, "messageExpression")
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
            fails_closed: text(&document, "spec.failurePolicy") != "Ignore",
            document,
        }
    }
}

/// Cache of compiled policies by kind and name, with the revision of each.
#[derive(Default)]
pub(crate) struct Compiled(Mutex<Kept>);

type Kept = HashMap<(usize, Arc<str>), (u64, Arc<Policy>)>;

impl Compiled {
    /// Returns an entry's policy. Compiles it if the entry has another revision than the cached one.
    pub(super) fn get(&self, sort: usize, entry: &Entry) -> Option<Arc<Policy>> {
        let place = (sort, entry.key.clone());
        let known = |kept: &Kept| {
            kept.get(&place).filter(|(index, _)| *index == entry.revision).map(|(_, p)| p.clone())
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
