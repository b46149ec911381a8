//! Controllers of the API group `certificates.k8s.io`: approval, signing and cleanup.

pub mod approving;
pub mod cleaner;
pub mod clustertrustbundlepublisher;
pub mod podcertificaterequestcleaner;
pub mod signing;

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

/// A CertificateSigningRequest with all fields, because the controllers update the whole object.
type SigningRequest = Full<CertificateSigningRequest>;

/// Number of workers of each controller. No flag changes it.
const WORKERS: usize = 5;

/// Returns the builder of a request controller, with upstream's backoff.
fn controller_builder(
    context: &ControllerContext,
    descriptor: &Descriptor,
    requests: &Cache<SigningRequest>,
) -> Builder {
    let backoff = Backoff { base_delay: Duration::from_millis(200), ..Backoff::default() };
    context.builder(descriptor, requests).workers(WORKERS).backoff(backoff)
}

/// Returns whether the request has the condition with the status `True` or an empty status.
fn has_true_condition(request: &SigningRequest, condition: &str) -> bool {
    conditions(request).any(|(type_, status)| type_ == condition && matches!(status, "" | "True"))
}

/// Returns whether the request has the condition, with any status.
fn has_condition(request: &SigningRequest, condition: &str) -> bool {
    conditions(request).any(|(type_, _)| type_ == condition)
}

/// Returns the type and the status of each condition.
fn conditions(request: &SigningRequest) -> impl Iterator<Item = (&str, &str)> {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default().iter();
    conditions.map(|condition| (&*condition.type_, &*condition.status))
}

/// Returns the issued certificate as PEM, if any.
fn issued_certificate(request: &SigningRequest) -> Option<&[u8]> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    Some(&*certificate.0).filter(|pem| !pem.is_empty())
}
