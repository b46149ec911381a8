//! Requests for certificates: what a write through which path may set, and what is wrong with one.
//!
//! Upstream: `pkg/registry/certificates/certificates/strategy.go`, `pkg/apis/certificates/validation`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_apimachinery::reset::{keep_all_but_metadata_and_status, keep_field};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{at, list, set, text};
use serde_json::Value;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

/// Conditions that only `/approval` sets.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
/// Conditions that are never taken back, and never anything but true.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

/// A write of `/approval`: conditions change, and nothing else.
pub(super) fn approve(new: &mut Value, old: &Value, now: &str) {
    let mut conditions = list(new, "status.conditions").to_vec();
    stamp(&mut conditions, old, now);
    keep_all_but_metadata_and_status(new, old);
    keep_field(new, old, "status");
    set(new, "status.conditions", conditions);
}

/// A write of `/status`: decisions stay as they were, where as many of them are there.
pub(super) fn report(new: &mut Value, old: &Value, now: &str) {
    keep_all_but_metadata_and_status(new, old);
    let mut conditions = list(new, "status.conditions").to_vec();
    for decision in DECISIONS {
        let before: Vec<&Value> = of_type(old, decision).collect();
        let is = |condition: &Value| text(condition, "type") == decision;
        if conditions.iter().filter(|condition| is(condition)).count() == before.len() {
            let places = conditions.iter_mut().filter(|condition| is(condition));
            places.zip(before).for_each(|(place, before)| place.clone_from(before));
        }
    }
    stamp(&mut conditions, old, now);
    if !conditions.is_empty() {
        set(new, "status.conditions", conditions);
    }
}

/// Times that are missing are now, or since when it has been so.
fn stamp(conditions: &mut [Value], old: &Value, now: &str) {
    for condition in conditions {
        let absent =
            |condition: &Value, field: &str| at(condition, field).is_none_or(Value::is_null);
        if absent(condition, "lastUpdateTime") {
            set(condition, "lastUpdateTime", now);
        }
        if absent(condition, "lastTransitionTime") {
            let (type_, status) = (text(condition, "type"), text(condition, "status"));
            let same = of_type(old, type_).find(|before| text(before, "status") == status);
            let since = same.map(|before| text(before, "lastTransitionTime"));
            let since = since.filter(|since| !since.is_empty()).unwrap_or(now).to_owned();
            set(condition, "lastTransitionTime", since);
        }
    }
}

fn of_type<'a>(request: &'a Value, type_: &str) -> impl Iterator<Item = &'a Value> {
    list(request, "status.conditions").iter().filter(move |one| text(one, "type") == type_)
}

/// What is wrong with the request itself, in whichever version of its object.
pub(super) fn check_request(object: &Value, errors: &mut Errors) {
    let request = text(object, "spec.request");
    if let Err(words) = readable(request) {
        errors.invalid(&Path::new("spec").field("request"), request, &words);
    }
}

fn readable(request: &str) -> Result<(), String> {
    let pem = STANDARD.decode(request).unwrap_or_default();
    let block = x509_parser::pem::parse_x509_pem(&pem).ok().map(|(_, block)| block);
    let Some(block) = block.filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    let (_, request) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("the certificate request cannot be read: {error}"))?;
    request.verify_signature().map_err(|error| error.to_string())
}

/// What is wrong with an update, beside the request.
pub(super) fn check_update(subresource: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let status = Path::new("status");
    let conditions = status.field("conditions");
    check_conditions(&conditions, new, old, errors);
    check_certificate(&status.field("certificate"), subresource, new, old, errors);
    for type_ in FINAL {
        if of_type(new, type_).count() < of_type(old, type_).count() {
            let words = format!("updates may not remove a condition of type {type_:?}");
            errors.forbidden(&conditions, &words);
        }
    }
    for type_ in DECISIONS {
        if subresource != "approval" && of_type(new, type_).count() > of_type(old, type_).count() {
            let words = format!("updates may not add a condition of type {type_:?}");
            errors.forbidden(&conditions, &words);
        }
    }
}

fn check_conditions(path: &Path<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    let is_decided = |request: &Value| {
        DECISIONS.iter().all(|decision| of_type(request, decision).next().is_some())
    };
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in list(new, "status.conditions").iter().enumerate() {
        let at = path.index(index);
        let (type_, status) = (text(condition, "type"), text(condition, "status"));
        if type_.is_empty() {
            errors.required(&at.field("type"), "");
        }
        let allowed: &[&str] =
            if FINAL.contains(&type_) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.required(&at.field("status"), "");
        } else {
            errors.one_of(&at.field("status"), status, allowed);
        }
        if seen.contains(&type_) {
            errors.duplicate(&at.field("type"), type_);
        }
        let both = DECISIONS.contains(&type_)
            && DECISIONS.iter().any(|other| *other != type_ && seen.contains(other));
        if both && !is_decided(old) {
            errors.invalid(path, type_, "Approved and Denied conditions are mutually exclusive");
        }
        seen.push(type_);
    }
}

fn check_certificate(
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
    if let Err(words) = check_chain(after) {
        errors.invalid(path, "<certificate data>", &words);
    }
    if subresource != "status" {
        errors.forbidden(path, "updates may not set certificate content");
    } else if !before.is_empty() {
        errors.forbidden(path, "updates may not modify existing certificate content");
    }
}

fn check_chain(certificate: &str) -> Result<(), String> {
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
        X509Certificate::from_der(&block.contents).map_err(|error| error.to_string())?;
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

    fn request(conditions: &[(&str, &str)], certificate: &str) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, time)| json!({"type": type_, "status": "True", "lastUpdateTime": time, "lastTransitionTime": time}))
            .collect();
        json!({"spec": {"signerName": "a/b"}, "status": {"conditions": conditions, "certificate": certificate}})
    }

    #[test]
    fn approval_changes_conditions_only_and_sets_their_times() {
        let old = request(&[], "");
        let mut new = json!({
            "spec": {"signerName": "other"},
            "status": {"certificate": "forged", "conditions": [{"type": "Approved", "status": "True"}]},
        });
        approve(&mut new, &old, "now");
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["status"]["certificate"], "");
        assert_eq!(new["status"]["conditions"][0]["lastUpdateTime"], "now");
        assert_eq!(new["status"]["conditions"][0]["lastTransitionTime"], "now");
    }

    #[test]
    fn a_status_keeps_the_decision() {
        let old = request(&[("Approved", "then")], "");
        let mut new = request(&[("Approved", "forged")], "QQ==");
        report(&mut new, &old, "now");
        assert_eq!(new["status"]["conditions"][0]["lastUpdateTime"], "then");
        assert_eq!(new["status"]["certificate"], "QQ==");
    }

    fn wrong(subresource: &str, new: &Value, old: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        check_update(subresource, new, old, &mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn decisions_are_final_and_certificates_are_certificates() {
        let (open, approved) = (request(&[], ""), request(&[("Approved", "t")], ""));
        let both = request(&[("Approved", "t"), ("Denied", "t")], "");
        assert!(wrong("approval", &approved, &open).is_empty());
        assert_eq!(wrong("approval", &open, &approved), ["status.conditions"]);
        assert_eq!(wrong("approval", &both, &open), ["status.conditions"]);
        assert_eq!(wrong("status", &approved, &open), ["status.conditions"]);
        let text = STANDARD.encode("no certificate");
        assert_eq!(wrong("status", &request(&[], &text), &open), ["status.certificate"]);
        let ca = rcgen::generate_simple_self_signed(Vec::new()).expect("a certificate");
        let issued = request(&[], &STANDARD.encode(ca.cert.pem()));
        assert!(wrong("status", &issued, &open).is_empty());
        assert_eq!(wrong("approval", &issued, &open), ["status.certificate"]);
        let other = rcgen::generate_simple_self_signed(Vec::new()).expect("a certificate");
        let other = request(&[], &STANDARD.encode(other.cert.pem()));
        assert_eq!(wrong("status", &other, &issued), ["status.certificate"]);
    }
}
