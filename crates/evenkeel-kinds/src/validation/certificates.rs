//! Validation of certificates.k8s.io.

use super::{ValidationTarget, immutable, names};
use crate::certificatesigningrequest;
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
        ("PodCertificateRequest", _) => immutable(&["spec"], new, old, errors),
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

/// Upstream: `ValidateCertificateSigningRequestCreate`.
fn certificate_signing_request(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    certificatesigningrequest::validate_request(new, errors);
    let usages = list(new, "spec.usages");
    if usages.is_empty() {
        errors.required(&path.field("usages"), "");
    }
    let all = path.field("usages");
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(&all.index(index), usage, USAGES);
        if !seen.insert(usage) {
            errors.duplicate(&all.index(index), usage);
        }
    }
    let signer = text(new, "spec.signerName");
    if signer == "kubernetes.io/legacy-unknown" {
        let words = "the legacy signerName is not allowed via this API version";
        errors.invalid(&path.field("signerName"), signer, words);
    } else if signer.is_empty() {
        errors.required(&path.field("signerName"), "");
    } else {
        let words =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        match signer.split_once('/') {
            Some((domain, rest)) if domain.contains('.') && !rest.is_empty() => {
                errors.invalid_all(
                    &path.field("signerName"),
                    domain,
                    &names::dns_subdomain(domain),
                );
            }
            _ => errors.invalid(&path.field("signerName"), signer, words),
        }
    }
    if let Some(seconds) = int(new, "spec.expirationSeconds").filter(|seconds| *seconds < 600) {
        let words = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.field("expirationSeconds"), seconds, words);
    }
}
