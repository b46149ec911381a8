//! Annotations that validating policies add to a request's audit event.
//!
//! Upstream: `auditAnnotationCollector`, `publishValidationFailureAnnotations`.

use evenkeel_apimachinery::value::{list, text};
use serde::Serialize;
use serde_json::Value;

use super::validate::Denied;

/// Maximum length of an annotation's value for one binding, in bytes.
///
/// Upstream: `maxAuditAnnotationValueLength`.
const MAX_VALUE_LENGTH: usize = 10 * 1024;
/// Maximum number of failures in an annotation.
///
/// Upstream: `maxValidationFailures`.
const MAX_FAILURES: usize = 50;

/// Annotations of one policy: each key with the distinct values that its bindings produced.
#[derive(Debug, Default)]
pub(super) struct Annotations(Vec<(String, Vec<String>)>);

impl Annotations {
    /// Adds the keys and values that a policy evaluated for one binding. Longer values are truncated.
    pub(super) fn add(&mut self, annotations: &[(String, String)]) {
        for (key, value) in annotations {
            let max_end = value.len().min(MAX_VALUE_LENGTH);
            let end = (0..=max_end).rev().find(|index| value.is_char_boundary(*index));
            let value = value[..end.unwrap_or_default()].to_owned();
            match self.0.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => self.0.push((key.clone(), vec![value])),
            }
        }
    }

    /// Returns the keys and values for the audit event. Several values of a key are separated by commas.
    pub(super) fn published(self, policy: &str) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter().map(move |(key, values)| (format!("{policy}/{key}"), values.join(", ")))
    }
}

/// Failures of validations whose bindings have the action `Audit`.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<ValidationFailure>);

/// JSON of a failure in the annotation.
///
/// Upstream: `ValidationFailureValue`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailure {
    message: String,
    policy: String,
    binding: String,
    expression_index: usize,
    validation_actions: Vec<Value>,
}

impl Failures {
    /// Adds the failures of a policy for a binding, if the binding has the action `Audit`.
    pub(super) fn add(&mut self, policy: &str, binding: &Value, failures: &[Denied]) {
        let actions = list(binding, "spec.validationActions");
        if !actions.iter().any(|action| action == "Audit") {
            return;
        }
        self.0.extend(failures.iter().map(|failure| ValidationFailure {
            message: failure.message.clone(),
            policy: policy.to_owned(),
            binding: text(binding, "metadata.name").to_owned(),
            expression_index: failure.index,
            validation_actions: actions.to_vec(),
        }));
    }

    /// Returns the key and the value of the annotation with the first failures; `None` without failures.
    pub(super) fn published(mut self) -> Option<(&'static str, String)> {
        if self.0.is_empty() {
            return None;
        }
        self.0.truncate(MAX_FAILURES);
        let value = serde_json::to_string(&self.0).ok()?;
        Some(("validation.policy.admission.k8s.io/validation_failure", value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn distinct_values_of_bindings_are_joined() {
        let mut annotations = Annotations::default();
        for value in ["a", "b", "a"] {
            annotations.add(&[("k".to_owned(), value.to_owned())]);
        }
        annotations.add(&[("long".to_owned(), "é".repeat(MAX_VALUE_LENGTH))]);
        let all: Vec<_> = annotations.published("p").collect();
        assert_eq!(all[0], ("p/k".to_owned(), "a, b".to_owned()));
        assert_eq!((all[1].0.as_str(), all[1].1.len()), ("p/long", MAX_VALUE_LENGTH));
    }

    #[test]
    fn failures_are_published_for_the_action_audit() {
        let binding = |actions: &[&str]| json!({"metadata": {"name": "b"}, "spec": {"validationActions": actions}});
        let failure = Denied { index: 2, message: "no".to_owned(), reason: String::new() };
        let mut failures = Failures::default();
        failures.add("p", &binding(&["Deny"]), std::slice::from_ref(&failure));
        failures.add("p", &binding(&["Warn", "Audit"]), std::slice::from_ref(&failure));
        assert_eq!(
            failures.published().expect("an annotation").1,
            r#"[{"message":"no","policy":"p","binding":"b","expressionIndex":2,"validationActions":["Warn","Audit"]}]"#
        );
        assert_eq!(Failures::default().published(), None);
        let mut many = Failures::default();
        many.add("p", &binding(&["Audit"]), &vec![failure; 60]);
        let many: Value =
            serde_json::from_str(&many.published().expect("an annotation").1).expect("JSON");
        assert_eq!(many.as_array().map(Vec::len), Some(MAX_FAILURES));
    }
}
