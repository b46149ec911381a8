//! Decides whether a certificate signing request is signed, fails, or is ignored. Also computes the certificate's validity.

use super::{
    authority::{CertificateAuthority, Serial, SignError},
    certificate::Validity,
};
use crate::{
    certificates::{
        SigningRequest, has_condition, has_true_condition, issued_certificate, kubelet,
        request::{ParsedRequest, RequestError},
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

/// Time by which `notBefore` precedes the signing, to tolerate clock skew. Upstream: `PermissiveSigningPolicy.Backdate`.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Lifetime below which the backdated time does not count towards the lifetime. Upstream: `PermissiveSigningPolicy.Short`.
const SHORT_LIFETIME: Duration = Duration::from_secs(8 * 3600);
/// Minimum of `spec.expirationSeconds`. Upstream: `duration`.
const MIN_DURATION: Duration = Duration::from_secs(600);

/// Built-in signers, each with its own rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signer {
    /// `kubernetes.io/kubelet-serving`: serving certificates of kubelets.
    KubeletServing,
    /// `kubernetes.io/kube-apiserver-client-kubelet`: client certificates of kubelets.
    KubeApiserverClientKubelet,
    /// `kubernetes.io/kube-apiserver-client`: client certificates.
    KubeApiserverClient,
    /// `kubernetes.io/legacy-unknown`: no rules.
    LegacyUnknown,
}

impl Signer {
    /// All built-in signers.
    pub(super) const ALL: [Self; 4] = [
        Self::KubeletServing,
        Self::KubeApiserverClientKubelet,
        Self::KubeApiserverClient,
        Self::LegacyUnknown,
    ];

    /// Returns the signer's name in `spec.signerName`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeletServing => "kubernetes.io/kubelet-serving",
            Self::KubeApiserverClientKubelet => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::KubeApiserverClient => "kubernetes.io/kube-apiserver-client",
            Self::LegacyUnknown => "kubernetes.io/legacy-unknown",
        }
    }

    /// Returns the message about the first rule of the signer that the request violates, or `None`.
    fn violation(self, request: &ParsedRequest, usages: &[String]) -> Option<String> {
        match self {
            Self::KubeletServing => kubelet::serving_error(request, usages),
            Self::KubeApiserverClientKubelet => kubelet::client_error(request, usages),
            Self::KubeApiserverClient => client_usage_error(usages),
            Self::LegacyUnknown => None,
        }
    }
}

/// Returns an error if the usages do not fit a client certificate.
fn client_usage_error(usages: &[String]) -> Option<String> {
    let allowed = ["digital signature", "key encipherment", "client auth"];
    if let Some(wrong) = usages.iter().find(|usage| !allowed.contains(&&***usage)) {
        return Some(format!("invalid usage for client certificate: {wrong}"));
    }
    let has_client_auth = usages.iter().any(|usage| usage == "client auth");
    (!has_client_auth)
        .then(|| "missing required usage for client certificate: client auth".to_owned())
}

/// Decision about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// No action: the request names no signer with a key, is not approved, or is already complete.
    Nothing,
    /// The request violates its signer's rules, and gets the condition `Failed` with this message.
    Fail(String),
    /// The signer signs the request.
    Sign { signer: Signer, parsed: Box<ParsedRequest> },
}

/// A request, and the inputs for signing it.
pub(super) struct Observed {
    pub(super) request: Arc<SigningRequest>,
    pub(super) decision: Result<Decision, RequestError>,
    /// The signer's authority; `None` if the request must not be signed.
    pub(super) issuer: Option<Issuer>,
    /// Maximum lifetime of certificates.
    pub(super) max_duration: Duration,
}

/// Authority and serial number for one certificate.
pub(super) struct Issuer {
    pub(super) authority: Arc<CertificateAuthority>,
    /// Serial number of the certificate. `None` if the random number generator failed.
    pub(super) serial: Option<Serial>,
}

/// Decides about a request. `signers` are those that have keys. Upstream: `handle`.
pub(super) fn decide(
    request: &SigningRequest,
    signers: &[Signer],
) -> Result<Decision, RequestError> {
    let is_approved = has_condition(request, "Approved") && !has_condition(request, "Denied");
    if issued_certificate(request).is_some()
        || !is_approved
        || has_true_condition(request, "Failed")
    {
        return Ok(Decision::Nothing);
    }
    let is_named = |signer: &&Signer| signer.name() == request.spec.signer_name;
    let Some(signer) = signers.iter().find(is_named).copied() else { return Ok(Decision::Nothing) };
    let parsed = ParsedRequest::from_pem(&request.spec.request.0)?;
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    Ok(match signer.violation(&parsed, usages) {
        Some(message) => Decision::Fail(message),
        None => Decision::Sign { signer, parsed: Box::new(parsed) },
    })
}

/// Signs a request, or sets the condition `Failed` if the request violates its signer's rules. Upstream: `handle`, `sign`.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let request = &*observed.request;
    match (&observed.decision, &observed.issuer) {
        (Ok(Decision::Fail(message)), _) => {
            update_status(request, &with_failed_condition(request, message, now))
        }
        (Ok(Decision::Sign { parsed, .. }), Some(issuer)) => {
            match sign(observed, parsed, issuer, now) {
                Ok(pem) => update_status(request, &with_certificate(request, pem)),
                Err(error) => Plan::failure(error.to_string()),
            }
        }
        (Ok(Decision::Nothing | Decision::Sign { .. }), _) => Plan::nothing(),
        (Err(error), _) => Plan::failure(error.to_string()),
    }
}

/// Signs the certificate of a request, and returns it as PEM.
fn sign(
    observed: &Observed,
    parsed: &ParsedRequest,
    issuer: &Issuer,
    now: Timestamp,
) -> Result<String, SignError> {
    let spec = &observed.request.spec;
    let usages = spec.usages.as_deref().unwrap_or_default();
    let lifetime = lifetime(spec.expiration_seconds, observed.max_duration);
    let serial = issuer.serial.ok_or(SignError::RandomNumbers)?;
    issuer.authority.sign(parsed, usages, serial, lifetime, now)
}

/// Returns the update of a request's status.
fn update_status(request: &SigningRequest, changed: &CertificateSigningRequest) -> Plan {
    Plan::one(Update::status(wire::target(request), wire::json(changed)))
}

/// Error about a certificate that would already be expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpiredError {
    /// The signer's certificate expired before the backdated start.
    #[error("the signer has expired: NotAfter={0}")]
    Signer(Timestamp),
    /// The signer's certificate expired since the backdated start.
    #[error("refusing to sign a certificate that expired in the past: NotAfter={0}")]
    Certificate(Timestamp),
}

/// Returns the lifetime of a certificate: the requested one, raised to [`MIN_DURATION`]. If it exceeds `max_duration`,
/// or if none is requested, returns `max_duration`. Upstream: `duration`.
fn lifetime(requested: Option<i32>, max_duration: Duration) -> Duration {
    let Some(requested) = requested else { return max_duration };
    let requested = Duration::from_secs(u64::try_from(requested).unwrap_or_default());
    if requested > max_duration { max_duration } else { requested.max(MIN_DURATION) }
}

/// Returns the validity of a certificate whose signer is valid until `signer_end`.
pub(super) fn validity(
    lifetime: Duration,
    signer_end: Timestamp,
    now: Timestamp,
) -> Result<Validity, ExpiredError> {
    let not_before = saturating_sub(now, BACKDATE);
    let lifetime_start = if lifetime < SHORT_LIFETIME { now } else { not_before };
    let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
    let not_after = saturating_add(lifetime_start, lifetime).min(signer_end);
    if not_before >= signer_end {
        return Err(ExpiredError::Signer(signer_end));
    }
    if now >= signer_end {
        return Err(ExpiredError::Certificate(signer_end));
    }
    Ok(Validity { not_before, not_after })
}

/// Returns the request with `status.certificate`.
fn with_certificate(request: &SigningRequest, pem: String) -> CertificateSigningRequest {
    let mut request = wire::copy_for_update(&**request);
    request.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes()));
    request
}

/// Returns the request with the condition `Failed`.
fn with_failed_condition(
    request: &SigningRequest,
    message: &str,
    now: Timestamp,
) -> CertificateSigningRequest {
    let mut request = wire::copy_for_update(&**request);
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

/// Describes the request's signer and the subject of its certificate for `evenkeel explain`.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    description.fact("signer", &observed.request.spec.signer_name);
    match &observed.decision {
        Ok(Decision::Nothing | Decision::Fail(_)) => {}
        Ok(Decision::Sign { parsed, .. }) => {
            description.fact("signs a certificate for", &parsed.subject.common_name);
        }
        Err(error) => description.fact("request", error),
    }
    description
}

#[cfg(test)]
mod tests;
