//! Admission policies with parsed expressions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// One audit annotation of a ValidatingAdmissionPolicy.
pub(super) struct AuditAnnotation {
    pub(super) key: String,
    pub(super) value: Expression,
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
    pub(super) audit_annotations: Vec<AuditAnnotation>,
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
        let annotations = list(&document, "spec.auditAnnotations").iter().map(|one| {
            let key = text(one, "key").to_owned();
            AuditAnnotation { key, value: Expression::new(one, "valueExpression") }
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

/// Number of kinds of policies.
const KINDS: usize = 2;

/// Cache of compiled policies by kind and name, with the revision of each.
#[derive(Default)]
pub(crate) struct Compiled([Mutex<Kept>; KINDS]);

type Kept = HashMap<Arc<str>, (u64, Arc<Policy>)>;

impl Compiled {
    /// Returns an entry's policy. Compiles it if the entry has another revision than the cached one.
    pub(super) fn get(&self, sort: usize, entry: &Entry) -> Option<Arc<Policy>> {
        let known = |kept: &Kept| {
            let kept = kept.get(&entry.key).filter(|(index, _)| *index == entry.revision);
            kept.map(|(_, policy)| policy.clone())
        };
        if let Some(policy) = known(&*self.kept(sort)?) {
            return Some(policy);
        }
        let policy = Arc::new(Policy::new(entry.decode().ok()?));
        self.kept(sort)?.insert(entry.key.clone(), (entry.revision, policy.clone()));
        Some(policy)
    }

    /// Drops the policies of a kind that are no longer stored; `stored` are all entries of the kind.
    pub(super) fn retain(&self, sort: usize, stored: &[Arc<Entry>]) {
        let Some(mut kept) = self.kept(sort) else { return };
        if kept.len() > stored.len() {
            let stored: HashSet<&str> = stored.iter().map(|entry| &*entry.key).collect();
            kept.retain(|name, _| stored.contains(&**name));
        }
    }

    fn kept(&self, sort: usize) -> Option<MutexGuard<'_, Kept>> {
        self.0.get(sort).map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner))
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
        let first = compiled.get(0, &a).expect("a policy");
        compiled.get(0, &b).expect("a policy");
        compiled.get(1, &a).expect("a policy");
        assert!(Arc::ptr_eq(&first, &compiled.get(0, &a).expect("a policy")));
        assert!(!Arc::ptr_eq(&first, &compiled.get(0, &entry("a", 3)).expect("a policy")));
        let names = |sort: usize| {
            let mut names: Vec<_> =
                compiled.0[sort].lock().expect("no panic").keys().cloned().collect();
            names.sort();
            names
        };
        compiled.retain(0, &[b, entry("c", 4)]);
        assert_eq!(
            names(0),
            ["a".into(), "b".into()],
            "a cache that is no larger than the store stays"
        );
        compiled.retain(0, &[entry("b", 2)]);
        assert_eq!((names(0), names(1)), (vec!["b".into()], vec!["a".into()]));
        compiled.retain(1, &[]);
        assert!(names(1).is_empty());
    }
}
