//! Validation of the API group authentication.k8s.io.

use super::names;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::text;
use serde_json::{Map, Value};

/// Minimum lifetime of a token in seconds.
const MIN_LIFETIME: i64 = 600;
/// Maximum lifetime of a token in seconds.
const MAX_LIFETIME: i64 = 1 << 32;

/// Group and version of the webhook configurations that a token can be bound to.
const WEBHOOKS: &str = "admissionregistration.k8s.io/v1";

/// Key of the only attestation that a token may have.
const API_GROUPS: &str = "admissionReviewAPIGroups";

/// Returns whether the kind of a bound object is a webhook configuration.
///
/// Upstream: `isWebhookRef`.
pub fn is_webhook_configuration(api_version: &str, kind: &str) -> bool {
    api_version == WEBHOOKS
        && matches!(kind, "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration")
}

/// Validates the spec of a TokenRequest. `lifetime`, in seconds, and `audiences` are the values after defaulting.
///
/// Upstream: `ValidateTokenRequest`.
pub fn token_request(spec: &Value, lifetime: i64, audiences: &[String]) -> Vec<FieldError> {
    let (mut errors, path) = (Errors::default(), Path::new("spec"));
    let attestations = spec.get("attestations").and_then(Value::as_object);
    let attestations = attestations.filter(|attestations| !attestations.is_empty());
    let attestations_path = path.field("attestations");
    let (kind, api_version) =
        (text(spec, "boundObjectRef.kind"), text(spec, "boundObjectRef.apiVersion"));
    let is_webhook = is_webhook_configuration(api_version, kind);
    if let Some(attestations) = attestations.filter(|_| !is_webhook) {
        let detail = "attestations may only be specified with a webhook bound object reference";
        // Upstream drops the other errors.
        errors.invalid_large(&attestations_path, || attestations.clone(), detail);
        return errors.into_vec();
    }
    let lifetime_path = path.field("expirationSeconds");
    if lifetime < MIN_LIFETIME {
        let detail = "may not specify a duration less than 10 minutes";
        errors.invalid(&lifetime_path, lifetime, detail);
    }
    if lifetime > MAX_LIFETIME {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&lifetime_path, lifetime, detail);
    }
    if is_webhook {
        if audiences.len() != 1 {
            let detail = "must be length 1 when bound to a webhook config";
            errors.invalid_large(&path.field("audiences"), || audiences.to_vec(), detail);
        }
        webhook_attestations(attestations, &attestations_path, &mut errors);
    }
    errors.into_vec()
}

/// Requires exactly one attestation, `admissionReviewAPIGroups`, with a single valid API group.
///
/// Upstream: `validateWebhookAttestations`.
fn webhook_attestations(
    attestations: Option<&Map<String, Value>>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let single = attestations.filter(|attestations| attestations.len() == 1);
    let Some((key, values)) = single.and_then(|attestations| attestations.iter().next()) else {
        let value = || attestations.cloned().map_or(Value::Null, Value::Object);
        let detail =
            "webhook bound requests require exactly one admissionReviewAPIGroups attestation";
        return errors.invalid_large(path, value, detail);
    };
    let path = path.key(key);
    if key != API_GROUPS {
        return errors.not_supported(&path, key.as_str(), &[API_GROUPS]);
    }
    let Some([group]) = values.as_array().map(Vec::as_slice) else {
        return errors.invalid_large(&path, || values.clone(), "must specify a single value");
    };
    let (group, path) = (group.as_str().unwrap_or_default(), path.index(0));
    match group {
        "" => errors.invalid(&path, group, "may not be an empty string"),
        "*" => {}
        _ => {
            for reason in names::dns_subdomain(group) {
                errors.invalid(&path, group, &format!("must specify a valid API Group: {reason}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn token_requests_have_bounds_and_attest_for_webhooks_only() {
        let hook = |attestations: Value| {
            json!({"attestations": attestations,
                "boundObjectRef": {"apiVersion": WEBHOOKS, "kind": "MutatingWebhookConfiguration"}})
        };
        let key = "spec.attestations[admissionReviewAPIGroups]";
        let cases: [(Value, i64, usize, Vec<String>); 10] = [
            (json!({}), 600, 0, vec![]),
            (json!({}), 599, 2, vec!["spec.expirationSeconds".into()]),
            (json!({}), (1 << 32) + 1, 1, vec!["spec.expirationSeconds".into()]),
            (json!({"attestations": {"a": ["b"]}}), 0, 1, vec!["spec.attestations".into()]),
            (hook(json!({"admissionReviewAPIGroups": ["*"]})), 600, 1, vec![]),
            (
                hook(json!({"admissionReviewAPIGroups": ["apps"]})),
                600,
                2,
                vec!["spec.audiences".into()],
            ),
            (hook(json!({})), 600, 1, vec!["spec.attestations".into()]),
            (hook(json!({"a": ["b"]})), 600, 1, vec!["spec.attestations[a]".into()]),
            (hook(json!({"admissionReviewAPIGroups": ["a", "b"]})), 600, 1, vec![key.into()]),
            (hook(json!({"admissionReviewAPIGroups": ["A"]})), 600, 1, vec![format!("{key}[0]")]),
        ];
        for (spec, life, n_audiences, expected) in cases {
            let audiences = vec!["a".to_owned(); n_audiences];
            let errors = token_request(&spec, life, &audiences);
            let fields: Vec<String> = errors.into_iter().map(|error| error.field).collect();
            assert_eq!(fields, expected, "{spec}");
        }
    }
}
