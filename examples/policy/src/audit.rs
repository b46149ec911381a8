//! Audit of objects by the rules of a policy.

use crate::{FieldPolicySpec, Rule, Violation};
use kube::api::DynamicObject;
use serde_json::Value;

/// Maximum number of violations in a status.
pub const MAX_LISTED: usize = 20;

/// Result of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Number of objects that violate the policy.
    pub total: usize,
    /// The first [`MAX_LISTED`] violations, by namespace and name.
    pub listed: Vec<Violation>,
}

/// Audits objects, in any order.
pub fn audit<'o>(
    policy: &FieldPolicySpec,
    objects: impl IntoIterator<Item = &'o DynamicObject>,
) -> Report {
    let mut violations: Vec<Violation> =
        objects.into_iter().filter_map(|object| violation(policy, object)).collect();
    let total = violations.len();
    violations.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    violations.truncate(MAX_LISTED);
    Report { total, listed: violations }
}

/// Returns the violation of the policy by an object, if there is one. An object that is being deleted never violates it.
fn violation(policy: &FieldPolicySpec, object: &DynamicObject) -> Option<Violation> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    if object.metadata.deletion_timestamp.is_some()
        || policy.excluded_namespaces.contains(&namespace)
    {
        return None;
    }
    // If an object cannot be encoded, none of its fields is known.
    let value = serde_json::to_value(object).unwrap_or_default();
    let broken: Vec<String> =
        policy.rules.iter().filter_map(|rule| defect(rule, value.pointer(&rule.field))).collect();
    (!broken.is_empty()).then(|| Violation {
        namespace,
        name: object.metadata.name.clone().unwrap_or_default(),
        message: broken.join("; "),
    })
}

/// Returns the violation of a rule by a field.
fn defect(rule: &Rule, value: Option<&Value>) -> Option<String> {
    let Rule { field, allowed } = rule;
    let text = match value {
        None | Some(Value::Null) => return Some(format!("{field} is missing")),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let is_allowed = allowed.is_empty() || allowed.contains(&text);
    (!is_allowed).then(|| format!("{field} is none of {}", allowed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(rules: &Value) -> FieldPolicySpec {
        serde_json::from_value(json!({
            "target": {"kind": "Widget"}, "rules": rules, "excludedNamespaces": ["kube-system"],
        }))
        .expect("a policy")
    }

    fn object(namespace: &str, name: &str, more: &Value) -> DynamicObject {
        let mut object = json!({"metadata": {"namespace": namespace, "name": name}});
        for (field, value) in more.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        serde_json::from_value(object).expect("an object")
    }

    #[test]
    fn fields_are_present_and_have_allowed_values() {
        let table = [
            (json!({}), json!([{"field": "/spec/owner"}]), Some("/spec/owner is missing")),
            (
                json!({"spec": {"owner": null}}),
                json!([{"field": "/spec/owner"}]),
                Some("/spec/owner is missing"),
            ),
            (json!({"spec": {"owner": "ann"}}), json!([{"field": "/spec/owner"}]), None),
            (
                json!({"spec": {"safe": true}}),
                json!([{"field": "/spec/safe", "allowed": ["true"]}]),
                None,
            ),
            (
                json!({"spec": {"size": 3}}),
                json!([{"field": "/spec/size", "allowed": ["1", "2"]}, {"field": "/a~1b"}]),
                Some("/spec/size is none of 1, 2; /a~1b is missing"),
            ),
            (json!({"a/b": ["any"]}), json!([{"field": "/a~1b"}]), None),
        ];
        for (more, rules, expected) in table {
            let found = violation(&policy(&rules), &object("default", "a", &more));
            assert_eq!(found.as_ref().map(|found| &*found.message), expected, "{more} {rules}");
        }
    }

    #[test]
    fn the_first_violations_are_listed_and_all_are_counted() {
        let policy = policy(&json!([{"field": "/spec"}]));
        let mut objects: Vec<DynamicObject> =
            (0..30).rev().map(|n| object("default", &format!("a-{n:02}"), &json!({}))).collect();
        objects.push(object("kube-system", "excluded", &json!({})));
        objects.push(object("apps", "last", &json!({})));
        let mut deleted = object("default", "deleted", &json!({}));
        let time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
        deleted.metadata.deletion_timestamp = Some(time);
        objects.push(deleted);
        let Report { total, listed } = audit(&policy, &objects);
        assert_eq!((total, listed.len()), (31, MAX_LISTED));
        assert_eq!((&*listed[0].namespace, &*listed[1].name), ("apps", "a-00"));
        assert_eq!(listed[19].name, "a-18");
    }
}
