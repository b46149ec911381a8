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
use sweep::Expired;

/// A CertificateSigningRequest with all fields, because the controllers update the whole object.
type SigningRequest = Full<CertificateSigningRequest>;

/// Number of workers of each controller; no flag changes it.
const WORKERS: usize = 5;

/// Returns the builder of a request controller, with upstream's backoff.
fn builder(
    context: &ControllerContext,
    descriptor: &Descriptor,
    requests: &Cache<SigningRequest>,
) -> Builder {
    let backoff = Backoff { base_delay: Duration::from_millis(200), ..Backoff::default() };
    context.builder(descriptor, requests).workers(WORKERS).backoff(backoff)
}

/// Planner that deletes the expired objects of a kind, once in each period.
struct Sweep<V> {
    objects: Cache<V>,
    expired: Expired<V>,
}

impl<V: View> Sweep<V> {
    /// Starts the controller, which runs a pass in each period.
    fn start(context: &ControllerContext, of: &Descriptor, period: Duration, expired: Expired<V>) {
        let objects = context.env.caches.of::<V>();
        let passes = Periodic::new(&context.env, of.name).reads(&objects);
        let passes = passes.client(context.client(of));
        passes.planned(&context.tasks, period, Self { objects, expired }, LogExpired(expired));
    }
}

impl<V: View> Planner for Sweep<V> {
    type Observed = Vec<Arc<V>>;
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<Vec<Arc<V>>> {
        Some(self.objects.list())
    }

    fn plan(&self, objects: &Vec<Arc<V>>, (): &(), now: Timestamp) -> (Plan, ()) {
        (sweep::plan(objects, self.expired, now), ())
    }
}

/// Logs each deleted object with the reason.
struct LogExpired<V>(Expired<V>);

impl<V: View> PassHandler<Sweep<V>> for LogExpired<V> {
    fn on_planned(&self, objects: &Vec<Arc<V>>, planned: Planned<'_, ()>) {
        for object in objects {
            if let Some(why) = (self.0)(object, planned.at) {
                let (meta, kind) = (object.meta(), V::kind().kind);
                let (namespace, name) = (&*meta.namespace, &*meta.name);
                tracing::info!(%kind, namespace, name, why, "Deleting the expired object");
            }
        }
    }
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

/// Returns the issued certificate as PEM, if any.
fn issued(request: &SigningRequest) -> Option<&[u8]> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    Some(&*certificate.0).filter(|pem| !pem.is_empty())
}
