//! Webhooks of operators: defaults, validation and conversion of their kinds, with certificates that renew themselves.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Paths `/mutate-GROUP-VERSION-KIND`, `/validate-GROUP-VERSION-KIND`, `/convert` | `typed::path`, `answer::Routes` |
//! | AdmissionReview of v1: body, content type, version, request | `request::decode_review` |
//! | Responses: uid, allowed, status, patch, warnings, audit annotations | `response::into_review` |
//! | Denials: 403 by default, 422 with causes | `denied::Denied` |
//! | Defaults become a JSON patch that keeps unknown fields | `typed::defaulter`, `patch::carry_over` |
//! | Validation of CREATE and UPDATE, and of DELETE with the old object | `typed::validator` |
//! | Failures of the webhook itself leave the decision to `failurePolicy` | `answer::failure` |
//! | `timeoutSeconds`: 10 by default, 30 at most | `answer::timeout_of` |
//! | ConversionReview of v1: any version to any other, through the hub | `conversion::answer` |
//! | A conversion changes no metadata except labels and annotations | `conversion::keep_metadata` |
//! | Certificates of files are read again when they change | `certificates/files.rs` |
//! | Self-managed certificates: lifetimes, renewal, rotation with overlap | `certificates/plan.rs` |
//! | `caBundle` of webhook configurations and CustomResourceDefinitions | `certificates/inject.rs` |
//! | Metrics `controller_runtime_webhook_*` | `metrics::Metrics` |
//!
//! ```no_run
//! use evenkeel_runtime::{
//!     manager::{Manager, shutdown_signal},
//!     webhook::{Certificates, FieldError, WebhookServer},
//! };
//! use k8s_openapi::api::apps::v1::Deployment;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = Manager::builder(kube::Client::try_default().await?).build()?;
//! let hooks = WebhookServer::new(9443, Certificates::self_managed("webapp-hooks"));
//! hooks
//!     .webhook::<Deployment>()
//!     .defaults(|deployment, _request| {
//!         deployment.spec.replicas.get_or_insert(1);
//!         Ok(())
//!     })
//!     .validates(|deployment, _old, _request| {
//!         match deployment.spec.replicas {
//!             Some(100..) => Err(FieldError::forbidden("spec.replicas", "at most 99").into()),
//!             _ => Ok(()),
//!         }
//!     });
//! manager.add_webhooks(hooks);
//! manager.run(shutdown_signal()).await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod builder;
mod certificates;
mod conversion;
mod decode;
mod denied;
mod listen;
mod metrics;
mod patch;
mod request;
mod response;
mod run;
mod typed;

pub use builder::WebhookBuilder;
pub use certificates::{CertificateError, Certificates};
pub use denied::{Denied, FieldError};
pub use request::{AdmissionRequest, Operation};
pub use response::{AdmissionResponse, Warnings};

use answer::Routes;
use bytes::Bytes;
use certificates::Served;
use http::{Request, Response};
use http_body_util::Full;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, OnceLock},
};

/// Type that webhooks decode and encode: every `k8s-openapi` type and derived custom resource.
pub trait Hooked:
    Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Hooked for K where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// HTTPS server of webhooks. Clones share it. [`Manager::add_webhooks`](crate::manager::Manager::add_webhooks) runs it.
///
/// ```
/// use evenkeel_runtime::webhook::{Certificates, WebhookServer};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::{Value, json};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let hooks = WebhookServer::new(9443, Certificates::self_managed("map-hooks"));
/// hooks.webhook::<ConfigMap>().validates(|map, _old, _request| {
///     if map.data.is_some() { Ok(()) } else { Err("a map needs data".into()) }
/// });
///
/// // In a test, requests need no socket.
/// let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
///     "uid": "1", "operation": "CREATE", "object": {"metadata": {"name": "a"}},
///     "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
///     "resource": {"group": "", "version": "v1", "resource": "configmaps"},
/// }});
/// let request = http::Request::post("/validate--v1-configmap")
///     .header("content-type", "application/json")
///     .body(review.to_string().into())
///     .unwrap();
/// let answer = hooks.handle(request).await;
/// let answer: Value = serde_json::from_slice(answer.body()).unwrap();
/// assert_eq!(answer["response"]["status"]["message"], "a map needs data");
/// # }
/// ```
#[derive(Clone)]
pub struct WebhookServer {
    port: u16,
    address: IpAddr,
    certificates: Certificates,
    shared: Arc<Shared>,
}

/// State that the webhook server and its listener share.
#[derive(Default)]
struct Shared {
    routes: Routes,
    served: Arc<Served>,
    /// Port of the listener, once it is open.
    local_port: OnceLock<u16>,
}

impl WebhookServer {
    /// Returns a server without webhooks that listens on all addresses. Port 0 stands for any free port.
    pub fn new(port: u16, certificates: Certificates) -> Self {
        let address = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self { port, address, certificates, shared: Arc::default() }
    }

    /// Sets the address to listen on. Default: all addresses.
    #[must_use]
    pub fn address(self, address: IpAddr) -> Self {
        Self { address, ..self }
    }

    /// Returns a builder of the webhooks of `K`.
    #[doc(alias = "WebhookManagedBy")]
    pub fn webhook<K: Hooked>(&self) -> WebhookBuilder<'_, K> {
        WebhookBuilder::new(&self.shared.routes)
    }

    /// Adds a function that handles the admission requests of a path, for any kinds.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::{AdmissionResponse, Certificates, WebhookServer};
    ///
    /// let hooks = WebhookServer::new(9443, Certificates::self_managed("exec-hooks"));
    /// hooks.admits("/exec", |request| async move {
    ///     match &*request.user_info.username.unwrap_or_default() {
    ///         "intern" => AdmissionResponse::denied("ask somebody first"),
    ///         _ => AdmissionResponse::allowed(),
    ///     }
    /// });
    /// ```
    ///
    /// # Panics
    /// Panics if the path has a webhook already.
    #[doc(alias = "Register")]
    pub fn admits<F, Fut>(&self, path: &str, handler: F)
    where
        F: Fn(AdmissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = AdmissionResponse> + Send + 'static,
    {
        let handler = Arc::new(move |request| Box::pin(handler(request)) as _);
        self.shared.routes.admit(path, handler, false);
    }

    /// Handles a request within this process, as the listener does.
    pub async fn handle(&self, request: Request<Bytes>) -> Response<Bytes> {
        self.shared.routes.answer(request.map(Full::new)).await
    }

    /// Returns the port that the server listens on, or `None` before it listens.
    pub fn local_port(&self) -> Option<u16> {
        self.shared.local_port.get().copied()
    }
}

impl std::fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookServer")
            .field("port", &self.port)
            .field("paths", &self.shared.routes.paths())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
