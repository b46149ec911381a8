//! Selectors in access reviews: whether the user may list or watch the selected objects.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A selector has either a raw selector or a list of requirements | `check` |
//! | Requirements with unknown operators are ignored, with a message. The review is then for more objects, never for fewer | `field_terms` |
//! | A raw selector that cannot be parsed is ignored, with a message | `parse` |

use evenkeel_api::forms::{label_value, qualified_name};
use evenkeel_api::selector::{FieldSelector, FieldTerm, Selector};
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{list, text};
use serde_json::Value;

/// Selectors of a review.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selectors {
    /// Requirements on fields. Those on labels are only checked here: a webhook gets them from the review itself.
    pub(super) fields: Vec<FieldTerm>,
    /// Errors that refuse the review.
    pub(super) errors: Vec<FieldError>,
    /// Notes on ignored selectors, for the review's `evaluationError`.
    pub(super) ignored: Vec<String>,
}

impl Selectors {
    /// Reads the selectors of a review's `resourceAttributes`.
    ///
    /// Upstream: `ResourceAttributesFrom`, `validateResourceAttributes`, `BuildEvaluationError`.
    pub(super) fn parse(attributes: &Value) -> Self {
        let mut selectors = Self::default();
        if let Some(selector) = attributes.get("fieldSelector").filter(|s| s.is_object()) {
            selectors.check(selector, "fieldSelector");
            let raw = FieldSelector::parse(text(selector, "rawSelector"));
            let (terms, is_incomplete) = match (raw, list(selector, "requirements")) {
                (Ok(raw), []) => (raw.terms().to_vec(), false),
                (Err(_), []) => (Vec::new(), true),
                (_, requirements) => field_terms(requirements),
            };
            if is_incomplete {
                selectors.ignore("fieldSelector", terms.is_empty());
            }
            selectors.fields = terms;
        }
        if let Some(selector) = attributes.get("labelSelector").filter(|s| s.is_object()) {
            selectors.check(selector, "labelSelector");
            let requirements = list(selector, "requirements");
            let n_unknown =
                requirements.iter().filter(|requirement| !has_known_operator(requirement)).count();
            let raw = text(selector, "rawSelector");
            if n_unknown > 0 {
                selectors.ignore("labelSelector", n_unknown == requirements.len());
            } else if requirements.is_empty() && Selector::parse(raw).is_err() {
                selectors.ignore("labelSelector", true);
            }
        }
        selectors
    }

    /// Adds the message that all or some requirements of a selector are ignored.
    fn ignore(&mut self, selector: &str, wholly: bool) {
        let how = if wholly { "ignored" } else { "partially ignored" };
        self.ignored.push(format!("spec.resourceAttributes.{selector} {how} due to parse error"));
    }

    /// Adds the errors of the selector `name`, `fieldSelector` or `labelSelector`.
    ///
    /// Upstream: `validateFieldSelectorAttributes`, `validateLabelSelectorAttributes`.
    fn check(&mut self, selector: &Value, name: &str) {
        let path = format!("spec.resourceAttributes.{name}");
        let (raw, requirements) = (text(selector, "rawSelector"), list(selector, "requirements"));
        if !raw.is_empty() && !requirements.is_empty() {
            let why = "may not specified at the same time as requirements";
            self.errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, why));
        }
        if raw.is_empty() && requirements.is_empty() {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            self.errors.push(FieldError::required(format!("{path}.requirements"), why));
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{index}]");
            let (key, values) = (text(requirement, "key"), list(requirement, "values"));
            if name == "fieldSelector" && key.is_empty() {
                self.errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
            }
            match text(requirement, "operator") {
                "In" | "NotIn" if values.is_empty() => {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    self.errors.push(FieldError::required(format!("{path}.values"), why));
                }
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    self.errors.push(FieldError::forbidden(format!("{path}.values"), why));
                }
                _ => {}
            }
            if name == "fieldSelector" {
                continue;
            }
            for why in qualified_name(key) {
                self.errors.push(FieldError::invalid(format!("{path}.key"), key, why));
            }
            for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
                for why in label_value(value) {
                    let field = format!("{path}.values[{index}]");
                    self.errors.push(FieldError::invalid(field, value, why));
                }
            }
        }
    }
}

fn has_known_operator(requirement: &Value) -> bool {
    matches!(text(requirement, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist")
}

/// Returns the requirements that field selectors can express, and whether there are others.
///
/// Upstream: `fieldSelectorAsSelector`.
fn field_terms(requirements: &[Value]) -> (Vec<FieldTerm>, bool) {
    let term = |requirement: &Value| {
        let equal = match text(requirement, "operator") {
            "In" => true,
            "NotIn" => false,
            _ => return None,
        };
        let [Value::String(value)] = list(requirement, "values") else { return None };
        Some(FieldTerm {
            field: text(requirement, "key").into(),
            equal,
            value: value.as_str().into(),
        })
    };
    let terms: Vec<FieldTerm> = requirements.iter().filter_map(term).collect();
    let is_incomplete = terms.len() < requirements.len();
    (terms, is_incomplete)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_read_from_text_or_requirements() {
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let (ignored, partially) = ("ignored", "partially ignored");
        let table = [
            (json!({}), &[][..], 0, &[][..]),
            (
                json!({"fieldSelector": {"rawSelector": "spec.nodeName=n,a!=b"}}),
                &["a!=b", "spec.nodeName=n"],
                0,
                &[],
            ),
            (json!({"fieldSelector": {"rawSelector": "nonsense"}}), &[], 0, &[ignored]),
            (
                json!({"fieldSelector": {"requirements": [requirement("a", "In", &["b"]), requirement("c", "NotIn", &["d"])]}}),
                &["a=b", "c!=d"],
                0,
                &[],
            ),
            (
                json!({"fieldSelector": {"requirements": [requirement("a", "In", &["b"]), requirement("c", "Exists", &[])]}}),
                &["a=b"],
                0,
                &[partially],
            ),
            (
                json!({"fieldSelector": {"requirements": [requirement("a", "In", &["b", "c"])]}}),
                &[],
                0,
                &[ignored],
            ),
            (
                json!({"fieldSelector": {"requirements": [requirement("a", "Like", &["b"])]}}),
                &[],
                0,
                &[ignored],
            ),
            (json!({"fieldSelector": {}}), &[], 1, &[]),
            (
                json!({"fieldSelector": {"rawSelector": "a=b", "requirements": [requirement("a", "In", &["b"])]}}),
                &["a=b"],
                1,
                &[],
            ),
            (
                json!({"fieldSelector": {"requirements": [requirement("", "In", &[])]}}),
                &[],
                2,
                &[ignored],
            ),
            (json!({"labelSelector": {"rawSelector": "a in (b)"}}), &[], 0, &[]),
            (json!({"labelSelector": {"rawSelector": "a in b"}}), &[], 0, &[ignored]),
            (
                json!({"labelSelector": {"requirements": [requirement("a", "In", &["b"]), requirement("a", "Gt", &["1"])]}}),
                &[],
                0,
                &[partially],
            ),
            (
                json!({"labelSelector": {"requirements": [requirement("a b", "Exists", &["!"])]}}),
                &[],
                3,
                &[],
            ),
        ];
        for (attributes, terms, n_errors, notes) in table {
            let found = Selectors::parse(&attributes);
            let shown: Vec<String> = found
                .fields
                .iter()
                .map(|t| format!("{}{}={}", t.field, if t.equal { "" } else { "!" }, t.value))
                .collect();
            assert_eq!(shown, terms, "{attributes}");
            assert_eq!(found.errors.len(), n_errors, "{attributes}: {:?}", found.errors);
            assert_eq!(found.ignored.len(), notes.len(), "{attributes}: {:?}", found.ignored);
            for (found, note) in found.ignored.iter().zip(notes) {
                assert!(found.contains(&format!("Selector {note} due")), "{attributes}: {found}");
            }
        }
    }
}
