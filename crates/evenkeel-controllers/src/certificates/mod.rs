//! Controllers of the API group `certificates.k8s.io`: approval, signing and cleanup.

pub mod approving;
pub mod cleaner;
pub mod clustertrustbundlepublisher;
pub mod podcertificaterequestcleaner;
pub mod signing;

mod kubelet;
mod request;
mod sweep;

use crate::wiring::descriptor::{ControllerContext, Descriptor};
use evenkeel_api::{View, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, Full},
    controller::{Builder, Periodic},
    plan::{Key, PassHandler, Plan, Planned, Planner},
    queue::Backoff,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::{sync::Arc, time::Duration};
use sweep::ExpirationReason;

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

/// Planner that periodically deletes the expired objects of a kind.
struct Sweep<V> {
    objects: Cache<V>,
    expiration_reason: ExpirationReason<V>,
}

impl<V: View> Sweep<V> {
    /// Starts the controller, which runs once in each period.
    fn start(
        context: &ControllerContext,
        descriptor: &Descriptor,
        period: Duration,
        expiration_reason: ExpirationReason<V>,
    ) {
        let objects = context.env.caches.of::<V>();
        let passes = Periodic::new(&context.env, descriptor.name)
            .reads(&objects)
            .client(context.client(descriptor));
        let planner = Self { objects, expiration_reason };
        passes.planned(&context.tasks, period, planner, LogExpired(expiration_reason));
    }
}

impl<V: View> Planner for Sweep<V> {
    type Observed = Vec<Arc<V>>;
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<Vec<Arc<V>>> {
        Some(self.objects.list())
    }

    fn plan(&self, objects: &Vec<Arc<V>>, (): &(), now: Timestamp) -> (Plan, ()) {
        (sweep::plan(objects, self.expiration_reason, now), ())
    }
}

/// Logs each deleted object with the reason.
struct LogExpired<V>(ExpirationReason<V>);

impl<V: View> PassHandler<Sweep<V>> for LogExpired<V> {
    fn on_planned(&self, objects: &Vec<Arc<V>>, planned: Planned<'_, ()>) {
        for object in objects {
            let Self(expiration_reason) = self;
            if let Some(why) = expiration_reason(object, planned.at) {
                let meta = object.meta();
                let kind = V::kind().kind;
                let namespace = &*meta.namespace;
                let name = &*meta.name;
                tracing::info!(%kind, namespace, name, why, "Deleting the expired object");
            }
        }
    }
}

/// Reports whether the request has the condition with the status `True` or an empty status.
fn has_true_condition(request: &SigningRequest, condition: &str) -> bool {
    conditions(request).any(|(type_, status)| type_ == condition && matches!(status, "" | "True"))
}

/// Reports whether the request has the condition, with any status.
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
