//! Validation of certificates.k8s.io.

use super::{ValidationTarget, immutable, names};
use crate::certificatesigningrequest;
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{int, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "CertificateSigningRequest" {
        certificate_signing_request(new, errors);
    }
}

pub(super) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    match (target.kind, target.subresource) {
        ("CertificateSigningRequest", subresource) => {
            certificatesigningrequest::validate_update(subresource, new, old, errors);
        }
        (_, "status") => {}
        ("ClusterTrustBundle", _) => immutable(&["spec.signerName"], new, old, errors),
        ("PodCertificateRequest", _) => {
            let quoted =
                |spec: Option<&Value>| quoted("certificates.PodCertificateRequestSpec", spec);
            errors.immutable_as(&Path::new("spec"), new.get("spec"), old.get("spec"), quoted);
        }
        _ => {}
    }
}

/// Valid values of `spec.usages`.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Maximum length of a signer's domain in bytes.
const MAX_DOMAIN: usize = 253;
/// Maximum length in bytes of a signer's name after the slash: a subdomain, a dot and a label.
const MAX_SIGNER_PATH: usize = 253 + 63 + 1;

/// Validates the name of a signer, such as `example.com/signer-name`.
///
/// Upstream: `ValidateSignerName`.
pub(super) fn signer_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, rest] = parts[..] else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, detail);
    };
    if domain.len() > MAX_DOMAIN {
        errors.too_long(path, MAX_DOMAIN);
    }
    signer_labels(domain, names::dns_label, path, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, domain, detail);
    }
    signer_labels(rest, names::dns_subdomain, path, errors);
    if rest.len() > MAX_SIGNER_PATH {
        errors.too_long(path, MAX_SIGNER_PATH);
    }
}

/// Validates the labels between the dots of a part of a signer's name. Only reports the errors of the first invalid
/// label.
fn signer_labels(part: &str, check: fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut Errors) {
    for label in part.split('.') {
        let messages = check(label);
        for message in &messages {
            errors.invalid(path, part, &format!("validating label {label:?}: {message}"));
        }
        if !messages.is_empty() {
            return;
        }
    }
}

/// Validates the spec of a new CertificateSigningRequest: the PEM request, usages, signer name and expiration.
///
/// Upstream: `ValidateCertificateSigningRequestCreate`.
fn certificate_signing_request(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    certificatesigningrequest::validate_request(new, errors);
    let usages = list(new, "spec.usages");
    if usages.is_empty() {
        errors.required(&path.field("usages"), "");
    }
    let usages_path = path.field("usages");
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(&usages_path.index(index), usage, USAGES);
        if !seen.insert(usage) {
            errors.duplicate(&usages_path.index(index), usage);
        }
    }
    let signer = text(new, "spec.signerName");
    if signer == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(&path.field("signerName"), signer, detail);
    } else {
        signer_name(signer, &path.field("signerName"), errors);
    }
    if let Some(seconds) = int(new, "spec.expirationSeconds").filter(|seconds| *seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.field("expirationSeconds"), seconds, detail);
    }
}
