//! Controllers of certificates: who gets one, who signs it, and what is cleared away.

pub mod approving;
pub mod cleaner;
pub mod clustertrustbundlepublisher;
pub mod podcertificaterequestcleaner;
pub mod signing;

mod kubelet;
mod request;
mod sweep;

use crate::descriptor::{ControllerContext, Descriptor};
use evenkeel_runtime::{
    cache::{Cache, Full},
    controller::Builder,
    queue::Backoff,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::time::Duration;

/// A request for a certificate. It is read whole: there are few, and it is written back whole.
type SigningRequest = Full<CertificateSigningRequest>;

/// How many requests each controller works on at a time; no flag changes it.
const WORKERS: usize = 5;

/// What controllers of requests have in common: their queue's name and patience.
fn builder(
    context: &ControllerContext,
    descriptor: &Descriptor,
    requests: &Cache<SigningRequest>,
) -> Builder {
    let patient = Backoff { first: Duration::from_millis(200), ..Backoff::default() };
    context.builder(descriptor, requests).workers(WORKERS).backoff(patient)
}

/// Whether somebody said so of the request, and it holds: an empty status is as good as `True`.
fn holds(request: &SigningRequest, condition: &str) -> bool {
    conditions(request).any(|(type_, status)| type_ == condition && matches!(status, "" | "True"))
}

/// Whether the request has a condition of this type, whatever it says.
fn has(request: &SigningRequest, condition: &str) -> bool {
    conditions(request).any(|(type_, _)| type_ == condition)
}

fn conditions(request: &SigningRequest) -> impl Iterator<Item = (&str, &str)> {
    let all = request.status.as_ref().and_then(|status| status.conditions.as_deref());
    all.unwrap_or_default().iter().map(|one| (&*one.type_, &*one.status))
}

/// The certificate, PEM, if there is one.
fn issued(request: &SigningRequest) -> Option<&[u8]> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    Some(&*certificate.0).filter(|pem| !pem.is_empty())
}
