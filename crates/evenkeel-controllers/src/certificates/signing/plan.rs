//! Decision about a certificate signing request: sign, fail, or ignore; and the validity of the certificate.

use super::authority::{CertificateAuthority, Serial, SignError};
use crate::{
    certificates::{
        SigningRequest, has, holds, issued, kubelet,
        request::{Request, RequestError},
    },
    wire,
};
use evenkeel_api::time::{SignedDuration, Timestamp, saturating_add, saturating_sub};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Plan, Update},
};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use std::{sync::Arc, time::Duration};

/// Time by which `notBefore` is backdated, to tolerate clock skew. Upstream: `PermissiveSigningPolicy.Backdate`.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Lifetime below which the backdating does not shorten the validity. Upstream: `PermissiveSigningPolicy.Short`.
const SHORT: Duration = Duration::from_secs(8 * 3600);
/// Minimum of `spec.expirationSeconds`. Upstream: `duration`.
const MIN_DURATION: Duration = Duration::from_secs(600);

/// Built-in signers, each with its own rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signer {
    /// `kubernetes.io/kubelet-serving`: serving certificates of kubelets.
    KubeletServing,
    /// `kubernetes.io/kube-apiserver-client-kubelet`: client certificates of kubelets.
    KubeletUser,
    /// `kubernetes.io/kube-apiserver-client`: client certificates.
    User,
    /// `kubernetes.io/legacy-unknown`: no rules.
    LegacyUnknown,
}

impl Signer {
    /// All built-in signers.
    pub(super) const ALL: [Self; 4] =
        [Self::KubeletServing, Self::KubeletUser, Self::User, Self::LegacyUnknown];

    /// Returns the signer's name in `spec.signerName`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeletServing => "kubernetes.io/kubelet-serving",
            Self::KubeletUser => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::User => "kubernetes.io/kube-apiserver-client",
            Self::LegacyUnknown => "kubernetes.io/legacy-unknown",
        }
    }

    /// Returns the message about a broken rule of the signer; `None` if the request obeys all.
    fn error(self, request: &Request, usages: &[String]) -> Option<String> {
        match self {
            Self::KubeletServing => kubelet::serving_error(request, usages),
            Self::KubeletUser => kubelet::client_error(request, usages),
            Self::User => client_usage_error(usages),
            Self::LegacyUnknown => None,
        }
    }
}

fn client_usage_error(usages: &[String]) -> Option<String> {
    let allowed = ["digital signature", "key encipherment", "client auth"];
    if let Some(wrong) = usages.iter().find(|usage| !allowed.contains(&&***usage)) {
        return Some(format!("invalid usage for client certificate: {wrong}"));
    }
    let missing = !usages.iter().any(|usage| usage == "client auth");
    missing.then(|| "missing required usage for client certificate: client auth".to_owned())
}

/// Decision about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The signer is not built in, or the request is not approved or already complete.
    Nothing,
    /// The request breaks its signer's rules. The text is the message of the condition `Failed`.
    Refuse(String),
    /// This signer signs the request.
    Sign(Signer, Box<Request>),
}

/// A request, and the inputs for signing it.
pub(super) struct Observed {
    pub(super) request: Arc<SigningRequest>,
    pub(super) step: Result<Step, RequestError>,
    /// The signer's key, if the request is to be signed.
    pub(super) issuer: Option<Issuer>,
    /// Maximum lifetime of certificates.
    pub(super) max_duration: Duration,
}

/// Key and serial number for one certificate.
pub(super) struct Issuer {
    pub(super) authority: Arc<CertificateAuthority>,
    /// Serial number of the certificate; `None` if the random number generator failed.
    pub(super) serial: Option<Serial>,
}

/// Decides about a request, for the signers that have keys. Upstream: `handle`.
pub(super) fn step(request: &SigningRequest, signers: &[Signer]) -> Result<Step, RequestError> {
    let approved = has(request, "Approved") && !has(request, "Denied");
    if issued(request).is_some() || !approved || holds(request, "Failed") {
        return Ok(Step::Nothing);
    }
    let is_named = |signer: &&Signer| signer.name() == request.spec.signer_name;
    let Some(signer) = signers.iter().find(is_named).copied() else { return Ok(Step::Nothing) };
    let content = Request::from_pem(&request.spec.request.0)?;
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    Ok(match signer.error(&content, usages) {
        Some(message) => Step::Refuse(message),
        None => Step::Sign(signer, Box::new(content)),
    })
}

/// Signs a request, or refuses one that breaks its signer's rules. Upstream: `handle`, `sign`.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let request = &*observed.request;
    match (&observed.step, &observed.issuer) {
        (Ok(Step::Refuse(message)), _) => {
            update_status(request, &with_failed_condition(request, message, now))
        }
        (Ok(Step::Sign(_, content)), Some(issuer)) => match sign(observed, content, issuer, now) {
            Ok(pem) => update_status(request, &with_certificate(request, pem)),
            Err(error) => Plan::failure(error.to_string()),
        },
        (Ok(Step::Nothing | Step::Sign(..)), _) => Plan::nothing(),
        (Err(error), _) => Plan::failure(error.to_string()),
    }
}

fn sign(
    observed: &Observed,
    content: &Request,
    issuer: &Issuer,
    now: Timestamp,
) -> Result<String, SignError> {
    let spec = &observed.request.spec;
    let usages = spec.usages.as_deref().unwrap_or_default();
    let lifetime = lifetime(spec.expiration_seconds, observed.max_duration);
    let serial = issuer.serial.ok_or(SignError::RandomNumbers)?;
    issuer.authority.sign(content, usages, serial, lifetime, now)
}

fn update_status(request: &SigningRequest, changed: &CertificateSigningRequest) -> Plan {
    Plan::one(Update::status(wire::target(request), wire::json(changed)))
}

/// Error of a certificate that would be expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Expired {
    /// The signer expired before the backdated start.
    #[error("the signer has expired: NotAfter={0}")]
    Signer(Timestamp),
    /// The signer expired since the backdated start.
    #[error("refusing to sign a certificate that expired in the past: NotAfter={0}")]
    Certificate(Timestamp),
}

/// Returns the lifetime of a certificate: the requested one, at least [`MIN_DURATION`], and `max_duration` if it
/// exceeds that or none is requested. Upstream: `duration`.
fn lifetime(requested: Option<i32>, max_duration: Duration) -> Duration {
    let Some(requested) = requested else { return max_duration };
    let requested = Duration::from_secs(u64::try_from(requested).unwrap_or_default());
    if requested > max_duration { max_duration } else { requested.max(MIN_DURATION) }
}

/// Returns `notBefore` and `notAfter` of a certificate whose signer is valid until `signer_end`.
pub(super) fn validity(
    lifetime: Duration,
    signer_end: Timestamp,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Expired> {
    let start = saturating_sub(now, BACKDATE);
    let from = if lifetime < SHORT { now } else { start };
    let lifetime_duration = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
    let end = saturating_add(from, lifetime_duration).min(signer_end);
    if start >= signer_end {
        return Err(Expired::Signer(signer_end));
    }
    if now >= signer_end {
        return Err(Expired::Certificate(signer_end));
    }
    Ok((start, end))
}

/// Returns the request with `status.certificate`.
fn with_certificate(request: &SigningRequest, pem: String) -> CertificateSigningRequest {
    let mut request = changed(request);
    request.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes()));
    request
}

/// Returns the request with the condition `Failed`.
fn with_failed_condition(
    request: &SigningRequest,
    message: &str,
    now: Timestamp,
) -> CertificateSigningRequest {
    let mut request = changed(request);
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("SignerValidationFailure".to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(Time(now)),
        last_transition_time: None,
    });
    request
}

fn changed(request: &SigningRequest) -> CertificateSigningRequest {
    let mut request: CertificateSigningRequest = (**request).clone();
    request.metadata.managed_fields = None;
    request
}

/// Describes a request and the subject of its certificate.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    description.fact("signer", &observed.request.spec.signer_name);
    match &observed.step {
        Ok(Step::Nothing | Step::Refuse(_)) => {}
        Ok(Step::Sign(_, content)) => {
            description.fact("signs a certificate for", &content.subject.common_name);
        }
        Err(error) => description.fact("request", error),
    }
    description
}

#[cfg(test)]
mod tests;
