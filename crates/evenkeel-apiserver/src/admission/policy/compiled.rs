//! Admission policies with parsed CEL expressions, and their cache.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_apimachinery::value::{get, list, text};
use evenkeel_cel::Program;
use serde_json::Value;

use crate::store::Entry;

/// CEL expression of a policy or a webhook. An expression that does not parse fails when it is evaluated.
pub(super) struct Expression {
    /// Name of the variable or the match condition; empty for other expressions.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) program: Result<Program, String>,
}

impl Expression {
    /// Parses the expression in a field of `object`, such as a variable, a validation or a match condition.
    pub(super) fn new(object: &Value, field: &str) -> Self {
        let source = text(object, field).to_owned();
        let name = text(object, "name").to_owned();
        let program = Program::parse(&source);
        Self { name, text: source, program }
    }

    /// Parses the field `expression` of all items in the list at `path`.
    pub(super) fn all(policy: &Value, path: &str) -> Vec<Self> {
        list(policy, path).iter().map(|item| Self::new(item, "expression")).collect()
    }
}

/// Validation of a ValidatingAdmissionPolicy.
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

/// Audit annotation of a ValidatingAdmissionPolicy.
pub(super) struct AuditAnnotation {
    pub(super) key: String,
    pub(super) value: Expression,
}

/// Mutation of a MutatingAdmissionPolicy.
pub(super) struct Mutation {
    pub(super) expression: Expression,
    /// Whether the expression returns a JSON patch. Otherwise it returns an apply configuration.
    pub(super) is_json_patch: bool,
}

/// Policy with parsed expressions.
pub(super) struct Policy {
    pub(super) name: String,
    /// Stored policy object.
    pub(super) document: Value,
    /// Match conditions. The policy applies if all of them are true.
    pub(super) conditions: Vec<Expression>,
    pub(super) variables: Vec<Expression>,
    pub(super) validations: Vec<Validation>,
    pub(super) audit_annotations: Vec<AuditAnnotation>,
    pub(super) mutations: Vec<Mutation>,
    /// Whether a failure of the policy refuses the request (`failurePolicy: Fail`).
    pub(super) fails_closed: bool,
}

impl Policy {
    fn new(document: Value) -> Self {
        let validations = list(&document, "spec.validations").iter().map(|validation| Validation {
            expression: Expression::new(validation, "expression"),
            message: text(validation, "message").trim().to_owned(),
            message_expression: get(validation, "messageExpression")
                .map(|_| Expression::new(validation, "messageExpression")),
            reason: text(validation, "reason").to_owned(),
        });
        let mutations = list(&document, "spec.mutations").iter().map(|mutation| {
            let is_json_patch = text(mutation, "patchType") == "JSONPatch";
            let field = if is_json_patch { "jsonPatch" } else { "applyConfiguration" };
            Mutation { expression: Expression::new(&mutation[field], "expression"), is_json_patch }
        });
        let annotations = list(&document, "spec.auditAnnotations").iter().map(|annotation| {
            let key = text(annotation, "key").to_owned();
            AuditAnnotation { key, value: Expression::new(annotation, "valueExpression") }
        });
        Self {
            name: text(&document, "metadata.name").to_owned(),
            conditions: Expression::all(&document, "spec.matchConditions"),
            variables: Expression::all(&document, "spec.variables"),
            validations: validations.collect(),
            audit_annotations: annotations.collect(),
            mutations: mutations.collect(),
            fails_closed: text(&document, "spec.failurePolicy") != "Ignore",
            document,
        }
    }
}

/// Kind of admission policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyKind {
    Validating,
    Mutating,
}

/// Cache of compiled policies of both kinds.
#[derive(Default)]
pub(crate) struct Compiled {
    validating: Mutex<Cache>,
    mutating: Mutex<Cache>,
}

/// Compiled policies by name, each with the revision of the stored policy.
type Cache = HashMap<Arc<str>, (u64, Arc<Policy>)>;

impl Compiled {
    /// Returns the compiled policy of a stored entry. Compiles it unless the cache has this revision. Returns `None` if
    /// the entry does not decode.
    pub(super) fn get(&self, kind: PolicyKind, entry: &Entry) -> Option<Arc<Policy>> {
        if let Some((revision, policy)) = self.cache(kind).get(&entry.key)
            && *revision == entry.revision
        {
            return Some(policy.clone());
        }
        let policy = Arc::new(Policy::new(entry.decode().ok()?));
        self.cache(kind).insert(entry.key.clone(), (entry.revision, policy.clone()));
        Some(policy)
    }

    /// Removes deleted policies of a kind from the cache. `stored` has all stored policies of the kind. Does nothing
    /// unless the cache has more policies than the store.
    pub(super) fn retain(&self, kind: PolicyKind, stored: &[Arc<Entry>]) {
        let mut cache = self.cache(kind);
        if cache.len() > stored.len() {
            let stored: HashSet<&str> = stored.iter().map(|entry| &*entry.key).collect();
            cache.retain(|name, _| stored.contains(&**name));
        }
    }

    fn cache(&self, kind: PolicyKind) -> MutexGuard<'_, Cache> {
        let cache = match kind {
            PolicyKind::Validating => &self.validating,
            PolicyKind::Mutating => &self.mutating,
        };
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Change, Encoded, SelectionAttributes};

    fn entry(name: &str, revision: u64) -> Arc<Entry> {
        let policy =
            json!({"metadata": {"name": name}, "spec": {"validations": [{"expression": "true"}]}});
        let encoded = Encoded::new(&policy, SelectionAttributes::default());
        encoded.into_entry(name.into(), revision, Change::Added).into()
    }

    #[test]
    fn policies_are_compiled_once_a_revision_and_dropped_when_they_are_deleted() {
        let compiled = Compiled::default();
        let (a, b) = (entry("a", 1), entry("b", 2));
        let first = compiled.get(PolicyKind::Validating, &a).expect("a policy");
        compiled.get(PolicyKind::Validating, &b).expect("a policy");
        compiled.get(PolicyKind::Mutating, &a).expect("a policy");
        assert!(Arc::ptr_eq(&first, &compiled.get(PolicyKind::Validating, &a).expect("a policy")));
        assert!(!Arc::ptr_eq(
            &first,
            &compiled.get(PolicyKind::Validating, &entry("a", 3)).expect("a policy")
        ));
        let names = |kind: PolicyKind| {
            let mut names: Vec<_> = compiled.cache(kind).keys().cloned().collect();
            names.sort();
            names
        };
        compiled.retain(PolicyKind::Validating, &[b, entry("c", 4)]);
        assert_eq!(
            names(PolicyKind::Validating),
            ["a".into(), "b".into()],
            "a cache that is no larger than the store stays"
        );
        compiled.retain(PolicyKind::Validating, &[entry("b", 2)]);
        assert_eq!(
            (names(PolicyKind::Validating), names(PolicyKind::Mutating)),
            (vec!["b".into()], vec!["a".into()])
        );
        compiled.retain(PolicyKind::Mutating, &[]);
        assert!(names(PolicyKind::Mutating).is_empty());
    }
}
