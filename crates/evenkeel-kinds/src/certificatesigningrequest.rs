//! CertificateSigningRequests: the fields that writes of `/approval` and `/status` may set, and validation.
//!
//! Upstream: `pkg/registry/certificates/certificates/strategy.go`, `pkg/apis/certificates/validation`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_apimachinery::reset::{reset_all_but_metadata_and_status, reset_field};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, remove, set, text};
use serde_json::Value;
use std::collections::BTreeSet;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

/// Conditions that only `/approval` may set: the approver's decision.
const APPROVAL_CONDITIONS: [&str; 2] = ["Approved", "Denied"];
/// Conditions that cannot be removed and must be true.
const PERMANENT_CONDITIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Prepares an update of `/approval`, which changes only conditions.
///
/// Upstream: `csrApprovalStrategy`.
pub(super) fn prepare_approval_update(new: &mut Value, old: &Value, now: &str) {
    let mut conditions = list(new, "status.conditions").to_vec();
    populate_condition_timestamps(&mut conditions, old, now);
    reset_all_but_metadata_and_status(new, old);
    reset_field(new, old, "status");
    if conditions.is_empty() {
        remove(new, "status.conditions");
    } else {
        set(new, "status.conditions", conditions);
    }
}

/// Prepares an update of `/status`. Approved and Denied conditions keep their stored form unless their number
/// changes.
///
/// Upstream: `csrStatusStrategy`, `preserveConditionInstances`.
pub(super) fn prepare_status_update(new: &mut Value, old: &Value, now: &str) {
    reset_all_but_metadata_and_status(new, old);
    let mut conditions = list(new, "status.conditions").to_vec();
    for condition_type in APPROVAL_CONDITIONS {
        let stored: Vec<&Value> = conditions_of_type(old, condition_type).collect();
        let has_type = |condition: &Value| text(condition, "type") == condition_type;
        if conditions.iter().filter(|condition| has_type(condition)).count() == stored.len() {
            let instances = conditions.iter_mut().filter(|condition| has_type(condition));
            for (instance, stored) in instances.zip(stored) {
                instance.clone_from(stored);
            }
        }
    }
    populate_condition_timestamps(&mut conditions, old, now);
    if !conditions.is_empty() {
        set(new, "status.conditions", conditions);
    }
}

/// Sets absent times of conditions to `now`. An absent transition time becomes the stored one if the status is the same
/// as in the stored condition.
///
/// Upstream: `populateConditionTimestamps`.
fn populate_condition_timestamps(conditions: &mut [Value], old: &Value, now: &str) {
    for condition in conditions {
        let is_absent =
            |condition: &Value, field: &str| get(condition, field).is_none_or(Value::is_null);
        if is_absent(condition, "lastUpdateTime") {
            set(condition, "lastUpdateTime", now);
        }
        if is_absent(condition, "lastTransitionTime") {
            let (condition_type, status) = (text(condition, "type"), text(condition, "status"));
            let stored = conditions_of_type(old, condition_type)
                .find(|stored| text(stored, "status") == status);
            let stored_time = stored.map(|stored| text(stored, "lastTransitionTime"));
            let time = stored_time.filter(|time| !time.is_empty()).unwrap_or(now).to_owned();
            set(condition, "lastTransitionTime", time);
        }
    }
}

fn conditions_of_type<'a>(
    request: &'a Value,
    condition_type: &str,
) -> impl Iterator<Item = &'a Value> {
    let conditions = list(request, "status.conditions").iter();
    conditions.filter(move |condition| text(condition, "type") == condition_type)
}

/// Validates the PEM-encoded request in `spec.request`.
///
/// Upstream: `validateCSR`.
pub(super) fn validate_request(object: &Value, errors: &mut Errors) {
    let request = text(object, "spec.request");
    if let Err(detail) = parse_request(request) {
        let value = if request.is_empty() { Value::Null } else { request.into() };
        errors.invalid(&Path::new("spec").field("request"), value, &detail);
    }
}

/// Parses a PEM-encoded certificate request in Base64, and verifies its signature.
fn parse_request(request: &str) -> Result<(), String> {
    let pem = STANDARD.decode(request).unwrap_or_default();
    let block = x509_parser::pem::parse_x509_pem(&pem).ok().map(|(_, block)| block);
    let Some(block) = block.filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    let (_, request) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("the certificate request cannot be read: {error}"))?;
    request.verify_signature().map_err(|error| error.to_string())
}

/// Validates an update, except `spec.request`.
///
/// Upstream: `validateCertificateSigningRequestUpdate`.
pub(super) fn validate_update(subresource: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let status = Path::new("status");
    let conditions = status.field("conditions");
    validate_conditions(&conditions, new, errors);
    validate_certificate(&status.field("certificate"), subresource, new, old, errors);
    for condition_type in PERMANENT_CONDITIONS {
        if conditions_of_type(new, condition_type).count()
            < conditions_of_type(old, condition_type).count()
        {
            let detail = format!("updates may not remove a condition of type {condition_type:?}");
            errors.forbidden(&conditions, &detail);
        }
    }
    for condition_type in APPROVAL_CONDITIONS {
        if subresource != "approval"
            && conditions_of_type(new, condition_type).count()
                > conditions_of_type(old, condition_type).count()
        {
            let detail = format!("updates may not add a condition of type {condition_type:?}");
            errors.forbidden(&conditions, &detail);
        }
    }
    validate_decision(&conditions, new, old, errors);
}

/// A request cannot be both approved and denied, unless it was before.
fn validate_decision(path: &Path<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    let has_both = |request: &Value| {
        APPROVAL_CONDITIONS
            .iter()
            .all(|condition_type| conditions_of_type(request, condition_type).next().is_some())
    };
    if !has_both(new) || has_both(old) {
        return;
    }
    let [approved, denied] =
        ["Approved", "Denied"].map(|name| format!("conditions[{{\"type\": \"{name}\"}}]"));
    let detail = format!("must specify at most one of: `{approved}`, `{denied}`");
    errors.invalid(path, format!("{{{approved}, {denied}}}"), &detail);
}

/// Requires distinct conditions with a type and an allowed status.
///
/// Upstream: `validateConditions`.
fn validate_conditions(path: &Path<'_>, new: &Value, errors: &mut Errors) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (index, condition) in list(new, "status.conditions").iter().enumerate() {
        let condition_path = path.index(index);
        let (condition_type, status) = (text(condition, "type"), text(condition, "status"));
        if condition_type.is_empty() {
            errors.required(&condition_path.field("type"), "");
        }
        let allowed: &[&str] = if PERMANENT_CONDITIONS.contains(&condition_type) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if status.is_empty() {
            errors.required(&condition_path.field("status"), "");
        } else {
            errors.one_of(&condition_path.field("status"), status, allowed);
        }
        if seen.contains(&condition_type) {
            errors.duplicate(&condition_path.field("type"), condition_type);
        }
        seen.insert(condition_type);
    }
}

/// Requires a valid chain of certificates. Only the subresource `status` can set the chain, and only once.
///
/// Upstream: `validateCertificate`.
fn validate_certificate(
    path: &Path<'_>,
    subresource: &str,
    new: &Value,
    old: &Value,
    errors: &mut Errors,
) {
    let (after, before) = (text(new, "status.certificate"), text(old, "status.certificate"));
    if after == before {
        return;
    }
    if let Err(detail) = validate_chain(after) {
        errors.invalid(path, "<certificate data>", &detail);
    }
    if subresource != "status" {
        errors.forbidden(path, "updates may not set certificate content");
    } else if !before.is_empty() {
        errors.forbidden(path, "updates may not modify existing certificate content");
    }
}

/// Validates a chain of PEM-encoded certificates in Base64, which may be empty.
fn validate_chain(certificate: &str) -> Result<(), String> {
    let pem = STANDARD.decode(certificate).map_err(|error| error.to_string())?;
    if pem.is_empty() {
        return Ok(());
    }
    let mut blocks = 0;
    for block in x509_parser::pem::Pem::iter_from_buffer(&pem) {
        let block = block.map_err(|error| error.to_string())?;
        if block.label != "CERTIFICATE" {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {:?}",
                block.label
            ));
        }
        X509Certificate::from_der(&block.contents)
            .map_err(|_| "x509: malformed certificate".to_owned())?;
        blocks += 1;
    }
    if blocks == 0 {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a request with true conditions, each given by type and time.
    fn request(conditions: &[(&str, &str)], certificate: &str) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(condition_type, time)| json!({"type": condition_type, "status": "True", "lastUpdateTime": time, "lastTransitionTime": time}))
            .collect();
        json!({"spec": {"signerName": "a/b"}, "status": {"conditions": conditions, "certificate": certificate}})
    }

    #[test]
    fn an_approval_changes_only_conditions_and_sets_their_times() {
        let old = request(&[], "");
        let mut new = json!({
            "spec": {"signerName": "other"},
            "status": {"certificate": "forged", "conditions": [{"type": "Approved", "status": "True"}]},
        });
        prepare_approval_update(&mut new, &old, "now");
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["status"]["certificate"], "");
        assert_eq!(new["status"]["conditions"][0]["lastUpdateTime"], "now");
        assert_eq!(new["status"]["conditions"][0]["lastTransitionTime"], "now");
    }

    #[test]
    fn a_status_update_keeps_the_approval() {
        let old = request(&[("Approved", "then")], "");
        let mut new = request(&[("Approved", "forged")], "QQ==");
        prepare_status_update(&mut new, &old, "now");
        assert_eq!(new["status"]["conditions"][0]["lastUpdateTime"], "then");
        assert_eq!(new["status"]["certificate"], "QQ==");
    }

    /// Returns the fields of the errors of an update.
    fn fields_of_errors(subresource: &str, new: &Value, old: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate_update(subresource, new, old, &mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn decisions_are_final_and_only_the_status_sets_a_valid_certificate() {
        let (open, approved) = (request(&[], ""), request(&[("Approved", "t")], ""));
        let both = request(&[("Approved", "t"), ("Denied", "t")], "");
        assert!(fields_of_errors("approval", &approved, &open).is_empty());
        assert_eq!(fields_of_errors("approval", &open, &approved), ["status.conditions"]);
        assert_eq!(fields_of_errors("approval", &both, &open), ["status.conditions"]);
        assert_eq!(fields_of_errors("status", &approved, &open), ["status.conditions"]);
        let text = STANDARD.encode("no certificate");
        assert_eq!(fields_of_errors("status", &request(&[], &text), &open), ["status.certificate"]);
        let ca = rcgen::generate_simple_self_signed(Vec::new()).expect("a certificate");
        let issued = request(&[], &STANDARD.encode(ca.cert.pem()));
        assert!(fields_of_errors("status", &issued, &open).is_empty());
        assert_eq!(fields_of_errors("approval", &issued, &open), ["status.certificate"]);
        let other = rcgen::generate_simple_self_signed(Vec::new()).expect("a certificate");
        let other = request(&[], &STANDARD.encode(other.cert.pem()));
        assert_eq!(fields_of_errors("status", &other, &issued), ["status.certificate"]);
    }
}
