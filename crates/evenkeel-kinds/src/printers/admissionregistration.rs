//! Printers of admissionregistration.k8s.io.

use super::cells::{Cells, UNSET, age, name, text_or};
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::json;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => |printed| {
            vec![json!(name(printed)), json!(list(printed, "webhooks").len()), json!(age(printed))]
        },
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => admission_policy,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            admission_policy_binding
        }
        _ => return None,
    })
}

/// Returns the cells of an admission policy: name, number of validations or mutations, parameter kind, and age.
///
/// Upstream: `printValidatingAdmissionPolicy`, `printMutatingAdmissionPolicy`.
fn admission_policy(printed: &PrintedObject<'_>) -> Cells {
    let rules = list(printed, "spec.validations").len() + list(printed, "spec.mutations").len();
    let kind = get(printed, "spec.paramKind").map_or_else(
        || UNSET.to_owned(),
        |kind| format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
    );
    vec![json!(name(printed)), json!(rules), json!(kind), json!(age(printed))]
}

/// Returns the cells of an admission policy's binding: name, policy, parameter, and age.
///
/// Upstream: `printValidatingAdmissionPolicyBinding`, `printMutatingAdmissionPolicyBinding`.
fn admission_policy_binding(printed: &PrintedObject<'_>) -> Cells {
    let param = match get(printed, "spec.paramRef") {
        Some(param) if !text(param, "name").is_empty() => {
            format!("{}/{}", text_or(param, "namespace", "*"), text(param, "name"))
        }
        _ => UNSET.to_owned(),
    };
    vec![
        json!(name(printed)),
        json!(text(printed, "spec.policyName")),
        json!(param),
        json!(age(printed)),
    ]
}
