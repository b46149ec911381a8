//! Printers of admissionregistration.k8s.io.

use super::cells::{Cells, UNSET, age, name, text_or};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            |o| vec![json!(name(o)), json!(list(o, "webhooks").len()), json!(age(o))]
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => admission_policy,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            admission_policy_binding
        }
        _ => return None,
    })
}

/// Upstream: `printValidatingAdmissionPolicy`, `printMutatingAdmissionPolicy`.
fn admission_policy(o: &PrintedObject<'_>) -> Cells {
    let rules = list(o, "spec.validations").len() + list(o, "spec.mutations").len();
    let kind = get(o, "spec.paramKind").map_or_else(
        || UNSET.to_owned(),
        |kind| format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
    );
    vec![json!(name(o)), json!(rules), json!(kind), json!(age(o))]
}

/// Upstream: `printValidatingAdmissionPolicyBinding`, `printMutatingAdmissionPolicyBinding`.
fn admission_policy_binding(o: &PrintedObject<'_>) -> Cells {
    let param = match get(o, "spec.paramRef") {
        Some(param) if !text(param, "name").is_empty() => {
            format!("{}/{}", text_or(param, "namespace", "*"), text(param, "name"))
        }
        _ => UNSET.to_owned(),
    };
    vec![json!(name(o)), json!(text(o, "spec.policyName")), json!(param), json!(age(o))]
}
