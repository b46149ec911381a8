//! Who may approve and sign which certificates: CertificateSubjectRestriction (nobody becomes an administrator by asking for a client
//! certificate), CertificateApproval and CertificateSigning (one may decide in a signer's name, or not), and
//! ClusterTrustBundleAttest (one may say whom to trust in a signer's name, or not).

use crate::api::Context;
use crate::auth::Attributes;
use crate::registry::policybased::mutates_only_gc_fields;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{get, text};
use serde_json::Value;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const ADMINISTRATORS: &str = "system:masters";

/// Refuses requests for client certificates of the administrators' group.
pub(super) fn admit(cx: &Context<'_>, request: &Value) -> Result<(), StatusError> {
    if text(request, "spec.signerName") != SIGNER {
        return Ok(());
    }
    let refuse = |why: String| Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    match groups(text(request, "spec.request")) {
        None => refuse("Failed to parse CSR: it is no PEM of a certificate request".to_owned()),
        Some(groups) if groups.iter().any(|group| group == ADMINISTRATORS) => {
            refuse(format!("use of {SIGNER} signer with {ADMINISTRATORS} group is not allowed"))
        }
        Some(_) => Ok(()),
    }
}

/// Refuses an approval, or a certificate, by who may not give it in the signer's name.
pub(super) fn may_decide(cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), StatusError> {
    let verb = if cx.subresource == "approval" { "approve" } else { "sign" };
    let same = |field: &str| get(new, field) == get(old, field);
    if verb == "sign" && same("status.certificate") && same("status.conditions") {
        return Ok(());
    }
    let signer = text(old, "spec.signerName");
    if may(cx, verb, signer) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Refuses a trust bundle of a signer by who may not speak for the signer.
///
/// Upstream: `ClusterTrustBundleAttest`.
pub(super) fn may_attest(
    cx: &Context<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let refuse = |why: String| Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    let signer = text(new, "spec.signerName");
    if old.is_some_and(|old| text(old, "spec.signerName") != signer) {
        return refuse("changing signerName is forbidden".to_owned());
    }
    let only_collected = old.is_some_and(|old| mutates_only_gc_fields(new, old));
    if signer.is_empty() || only_collected || may(cx, "attest", signer) {
        return Ok(());
    }
    refuse(format!("user not permitted to attest for signerName {signer:?}"))
}

/// Refuses a pod's certificate by who may not sign in the signer's name.
pub(super) fn may_issue(cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), StatusError> {
    let signer = text(old, "spec.signerName");
    if get(new, "status") == get(old, "status") || may(cx, "sign", signer) {
        return Ok(());
    }
    let why = format!("user not permitted to sign requests with signerName {signer:?}");
    Err(StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Whether rights on the signer, or on all of its domain, are there.
fn may(cx: &Context<'_>, verb: &str, signer: &str) -> bool {
    let all = signer.split_once('/').map(|(domain, _)| format!("{domain}/*"));
    [Some(signer), all.as_deref()].into_iter().flatten().any(|name| {
        let attributes = Attributes {
            verb,
            group: "certificates.k8s.io",
            resource: "signers",
            name,
            ..Attributes::default()
        };
        cx.allows(&attributes)
    })
}

/// The organizations of a request's subject, which a client certificate makes groups; `None` when it cannot be read.
fn groups(request: &str) -> Option<Vec<String>> {
    values(request, &OID_X509_ORGANIZATION_NAME)
}

/// The common names of a request's subject, of which a client certificate makes the last one the user; `None` when it cannot
/// be read.
pub(super) fn common_names(request: &str) -> Option<Vec<String>> {
    values(request, &OID_X509_COMMON_NAME)
}

/// Returns the values of one attribute of a request's subject; `None` if the request cannot be parsed.
fn values(request: &str, attribute: &Oid<'static>) -> Option<Vec<String>> {
    let pem = STANDARD.decode(request).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    if pem.label != "CERTIFICATE REQUEST" {
        return None;
    }
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &request.certification_request_info.subject;
    subject.iter_by_oid(attribute).map(|name| name.as_str().ok().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn organizations_are_groups() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).and_then(|r| r.pem()).expect("a request");
        assert_eq!(groups(&STANDARD.encode(&pem)), Some(vec![ADMINISTRATORS.to_owned()]));
        assert_eq!(groups(&STANDARD.encode(pem.replace("REQUEST", "THING"))), None);
        assert_eq!(groups("nonsense"), None);
    }
}
