//! Whether a request is signed, refused or left alone, and for how long a certificate lasts.

use super::authority::{CertificateAuthority, Serial, SignError};
use crate::{
    certificates::{
        SigningRequest, has, holds, issued, kubelet,
        request::{Request, RequestError},
    },
    wire,
};
use evenkeel_api::time::{SignedDuration, Timestamp};
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

/// Clocks differ: a certificate is good so long before it was made.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// From this on, the end is as early as the start.
const LONG: Duration = Duration::from_secs(8 * 3600);
/// The least that can be asked for.
const LEAST: Duration = Duration::from_secs(600);

/// Who signs what, by rules of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signer {
    /// What kubelets serve with.
    KubeletServing,
    /// By which kubelets are known to the API server.
    KubeletUser,
    /// By which anybody is known to the API server.
    User,
    /// Without rules.
    LegacyUnknown,
}

impl Signer {
    /// All there are.
    pub(super) const ALL: [Self; 4] =
        [Self::KubeletServing, Self::KubeletUser, Self::User, Self::LegacyUnknown];

    /// Its name in `spec.signerName`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeletServing => "kubernetes.io/kubelet-serving",
            Self::KubeletUser => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::User => "kubernetes.io/kube-apiserver-client",
            Self::LegacyUnknown => "kubernetes.io/legacy-unknown",
        }
    }

    /// What is wrong with a request to it, if anything.
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

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is not ours, not approved, or done.
    Nothing,
    /// It breaks its signer's rules, by these words.
    Refuse(String),
    /// It is signed by this signer.
    Sign(Signer, Box<Request>),
}

/// A request, and what is needed to sign it.
pub(super) struct Observed {
    pub(super) request: Arc<SigningRequest>,
    pub(super) step: Result<Step, RequestError>,
    /// The signer's key, where the request is signed.
    pub(super) issuer: Option<Issuer>,
    /// Maximum lifetime of certificates.
    pub(super) max_duration: Duration,
}

/// What signs one certificate.
pub(super) struct Issuer {
    pub(super) authority: Arc<CertificateAuthority>,
    /// Serial number of the certificate; `None` if the random number generator failed.
    pub(super) serial: Option<Serial>,
}

/// Decides about a request where these signers have keys. Upstream: `handle`.
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
        Some(words) => Step::Refuse(words),
        None => Step::Sign(signer, Box::new(content)),
    })
}

/// Signs a request, or refuses one that breaks its signer's rules. Upstream: `handle`, `sign`.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let request = &*observed.request;
    match (&observed.step, &observed.issuer) {
        (Ok(Step::Refuse(words)), _) => update_status(request, &refused(request, words, now)),
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
    let serial = issuer.serial.ok_or(SignError::Chance)?;
    issuer.authority.sign(content, usages, serial, lifetime, now)
}

fn update_status(request: &SigningRequest, changed: &CertificateSigningRequest) -> Plan {
    Plan::one(Update::status(wire::target(request), wire::json(changed)))
}

/// A certificate that would be of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Expired {
    /// The signer has not been good for as long as certificates are backdated.
    #[error("the signer has expired: NotAfter={0}")]
    Signer(Timestamp),
    /// The signer is not good any more.
    #[error("refusing to sign a certificate that expired in the past: NotAfter={0}")]
    Certificate(Timestamp),
}

/// How long a certificate lasts: what was asked for, where it is neither very short nor above `longest`.
fn lifetime(requested: Option<i32>, longest: Duration) -> Duration {
    let Some(requested) = requested else { return longest };
    let requested = Duration::from_secs(u64::try_from(requested).unwrap_or_default());
    if requested > longest { longest } else { requested.max(LEAST) }
}

/// From when and until when a certificate is good whose signer is good until `signer_end`.
pub(super) fn validity(
    lifetime: Duration,
    signer_end: Timestamp,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Expired> {
    let start = now.checked_sub(BACKDATE).unwrap_or(Timestamp::MIN);
    let from = if lifetime < LONG { now } else { start };
    let lasts = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
    let end = from.checked_add(lasts).unwrap_or(Timestamp::MAX).min(signer_end);
    if start >= signer_end {
        return Err(Expired::Signer(signer_end));
    }
    if now >= signer_end {
        return Err(Expired::Certificate(signer_end));
    }
    Ok((start, end))
}

/// The request with its certificate.
fn with_certificate(request: &SigningRequest, pem: String) -> CertificateSigningRequest {
    let mut request = changed(request);
    request.status.get_or_insert_default().certificate = Some(ByteString(pem.into_bytes()));
    request
}

/// The request with the reason why there is none.
fn refused(request: &SigningRequest, words: &str, now: Timestamp) -> CertificateSigningRequest {
    let mut request = changed(request);
    let conditions = request.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("SignerValidationFailure".to_owned()),
        message: Some(words.to_owned()),
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

/// Describes a request, and who gets its certificate.
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
