//! Admission plug-ins for certificates, signers and trust bundles:
//! - CertificateSubjectRestriction refuses requests for client certificates in the group `system:masters`.
//! - CertificateApproval and CertificateSigning require a permission on the signer to approve or sign a request.
//! - ClusterTrustBundleAttest requires a permission on the signer to write one of its trust bundles.

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

/// Signer of client certificates for the API server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Group whose members may do everything.
const ADMINISTRATORS: &str = "system:masters";

/// Refuses requests for client certificates whose subject names the group `system:masters`.
pub(super) fn admit(cx: &Context<'_>, request: &Value) -> Result<(), StatusError> {
    if text(request, "spec.signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let refuse = |why: String| Err(StatusError::forbidden(&cx.resource.name, cx.name, why));
    match groups(text(request, "spec.request")) {
        None => refuse("Failed to parse CSR: it is no PEM of a certificate request".to_owned()),
        Some(groups) if groups.iter().any(|group| group == ADMINISTRATORS) => refuse(format!(
            "use of {CLIENT_SIGNER} signer with {ADMINISTRATORS} group is not allowed"
        )),
        Some(_) => Ok(()),
    }
}

/// Refuses to approve or sign a request if the user lacks the permission on its signer.
pub(super) fn may_decide(cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), StatusError> {
    let verb = if cx.subresource == "approval" { "approve" } else { "sign" };
    let is_unchanged = |field: &str| get(new, field) == get(old, field);
    if verb == "sign" && is_unchanged("status.certificate") && is_unchanged("status.conditions") {
        return Ok(());
    }
    let signer = text(old, "spec.signerName");
    if has_permission(cx, verb, signer) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Refuses a write of a signer's trust bundle if the user may not attest for the signer.
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
    let changes_only_gc_fields = old.is_some_and(|old| mutates_only_gc_fields(new, old));
    if signer.is_empty() || changes_only_gc_fields || has_permission(cx, "attest", signer) {
        return Ok(());
    }
    refuse(format!("user not permitted to attest for signerName {signer:?}"))
}

/// Refuses a change of a PodCertificateRequest's status if the user may not sign for its signer.
pub(super) fn may_issue(cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), StatusError> {
    let signer = text(old, "spec.signerName");
    if get(new, "status") == get(old, "status") || has_permission(cx, "sign", signer) {
        return Ok(());
    }
    let why = format!("user not permitted to sign requests with signerName {signer:?}");
    Err(StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Returns whether the user has the permission `verb` on the signer, or on all signers of its domain (`DOMAIN/*`).
fn has_permission(cx: &Context<'_>, verb: &str, signer: &str) -> bool {
    let all_of_domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*"));
    [Some(signer), all_of_domain.as_deref()].into_iter().flatten().any(|name| {
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

/// Returns the organizations of a request's subject, which become groups of the client certificate's user. Returns
/// `None` if the request cannot be parsed.
fn groups(request: &str) -> Option<Vec<String>> {
    subject_values(request, &OID_X509_ORGANIZATION_NAME)
}

/// Returns the common names of a request's subject; the last one becomes the client certificate's user. Returns `None`
/// if the request cannot be parsed.
pub(super) fn common_names(request: &str) -> Option<Vec<String>> {
    subject_values(request, &OID_X509_COMMON_NAME)
}

/// Returns the values of one attribute of a request's subject, or `None` if the request cannot be parsed. `request` is
/// PEM in base64.
fn subject_values(request: &str, attribute: &Oid<'static>) -> Option<Vec<String>> {
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
