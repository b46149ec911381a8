//! Controllers of the API group `certificates.k8s.io`: approval, signing and cleanup.

pub mod approving;
pub mod cleaner;
pub mod clustertrustbundlepublisher;
pub mod podcertificaterequestcleaner;
pub mod signing;

mod act;
mod kubelet;
mod request;

use crate::wiring::descriptor::{ControllerContext, Descriptor};
use evenkeel_runtime::{
    cache::{Cache, Full},
    controller::Builder,
    queue::Backoff,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::time::Duration;

/// A CertificateSigningRequest with all fields, because it is written back whole.
type SigningRequest = Full<CertificateSigningRequest>;

/// Number of workers of each controller; no flag changes it.
const WORKERS: usize = 5;

/// Returns the builder of a request controller, with upstream's backoff.
fn builder(
    context: &ControllerContext,
    descriptor: &Descriptor,
    requests: &Cache<SigningRequest>,
) -> Builder {
    let patient = Backoff { base_delay: Duration::from_millis(200), ..Backoff::default() };
    context.builder(descriptor, requests).workers(WORKERS).backoff(patient)
}

/// Whether the request has the condition with the status `True`, or an empty one.
fn holds(request: &SigningRequest, condition: &str) -> bool {
    conditions(request).any(|(type_, status)| type_ == condition && matches!(status, "" | "True"))
}

/// Whether the request has the condition, with any status.
fn has(request: &SigningRequest, condition: &str) -> bool {
    conditions(request).any(|(type_, _)| type_ == condition)
}

fn conditions(request: &SigningRequest) -> impl Iterator<Item = (&str, &str)> {
    let all = request.status.as_ref().and_then(|status| status.conditions.as_deref());
    all.unwrap_or_default().iter().map(|one| (&*one.type_, &*one.status))
}

/// Returns the issued certificate, PEM.
fn issued(request: &SigningRequest) -> Option<&[u8]> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    Some(&*certificate.0).filter(|pem| !pem.is_empty())
}
