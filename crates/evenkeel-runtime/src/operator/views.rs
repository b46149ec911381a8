//! Views of a reconcile's context: reads and writes in one namespace, and writes as a dry run.

use super::{Context, Result};
use crate::{client::Client, controller::Error};
use evenkeel_api::Kind;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Map, Value, json};
use std::{
    sync::Arc,
    task::{self, Poll},
};
use tower::{BoxError, Service};

/// Settings in which a view differs from its context.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientView {
    /// Namespace of all namespaced objects; `None` if they may be in any namespace.
    namespace: Option<Arc<str>>,
    /// Whether writes are dry runs, which never appear in a cache.
    pub(super) dry_run: bool,
}

impl ClientView {
    /// Returns the namespace of an object. If the object names none, returns the namespace of the view.
    ///
    /// # Errors
    /// Fails if the object is in another namespace. The error is terminal.
    pub(super) fn namespace<'a>(&'a self, kind: &Kind, namespace: &'a str) -> Result<&'a str> {
        match &self.namespace {
            Some(own) if kind.namespaced && (namespace.is_empty() || namespace == &**own) => {
                Ok(own)
            }
            Some(own) if kind.namespaced => Err(Error::terminal(format!(
                "{} in namespace {namespace} is outside of this view of namespace {own}",
                kind.kind
            ))),
            _ => Ok(namespace),
        }
    }
}

impl<S> Context<S> {
    /// Returns this context limited to one namespace: namespaced objects without a namespace are read and written there, and
    /// objects of other namespaces are a terminal error. A list with an empty namespace lists this namespace. Cluster-scoped
    /// kinds, [`Context::cached`], [`Context::index`] and [`Context::kube`] are not limited.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # async fn run(cx: &Context, secret: Secret) -> Result<()> {
    /// let web = cx.in_namespace("web");
    /// web.apply(&secret).await?; // in `web`
    /// let map = web.get::<ConfigMap>("", "settings")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Upstream: `client.NewNamespacedClient`.
    #[doc(alias = "NewNamespacedClient")]
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        let mut context = self.clone();
        context.view.namespace = Some(Arc::from(namespace));
        context
    }

    /// Returns this context with dry-run writes (`dryRun=All`), including those of [`Context::kube`]: the server checks them
    /// but does not store them. It records no events, and the key does not wait for such writes. Like all writes, they are
    /// fenced and rate limited.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # async fn run(cx: &Context, secret: &Secret) -> Result<()> {
    /// let defaulted = cx.dry_run().create(secret).await?; // with the fields that admission and defaults would add
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Upstream: `client.NewDryRunClient`.
    #[doc(alias = "NewDryRunClient")]
    #[must_use]
    pub fn dry_run(&self) -> Self {
        let mut context = self.clone();
        if !context.view.dry_run {
            context.view.dry_run = true;
            context.inner.env.client = self.server_dry_run();
            context.kube = Arc::default();
        }
        context
    }

    /// Returns a client whose writes are sent as dry runs, through the fence and the rate limit of this context.
    fn server_dry_run(&self) -> Client {
        let client = &self.inner.env.client;
        let namespace = client.unfenced_kube().default_namespace().to_owned();
        client.over(kube::Client::new(ServerDryRun(self.kube().clone()), namespace))
    }
}

/// Service that makes writes dry runs.
#[derive(Clone)]
struct ServerDryRun(kube::Client);

impl Service<Request<Body>> for ServerDryRun {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let kube = self.0.clone();
        Box::pin(async move {
            if !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
                *request.uri_mut() = with_dry_run(request.uri())?;
            }
            if request.method() == Method::DELETE {
                let (parts, body) = request.into_parts();
                let options = body.collect().await.map_err(BoxError::from)?.to_bytes();
                request = Request::from_parts(parts, Body::from(with_dry_run_option(&options)?));
            }
            Ok(kube.send(request).await?)
        })
    }
}

/// Adds `dryRun` to the DeleteOptions of a request. If it has such a body, the server does not read the options of its query.
///
/// Upstream: `handlers.DeleteResource`.
fn with_dry_run_option(options: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    if options.is_empty() {
        return Ok(Vec::new());
    }
    let mut options: Map<String, Value> = serde_json::from_slice(options)?;
    options.insert("dryRun".to_owned(), json!(["All"]));
    serde_json::to_vec(&options)
}

/// Adds `dryRun=All` to a query.
fn with_dry_run(uri: &Uri) -> Result<Uri, BoxError> {
    let separator = if uri.query().is_some() { '&' } else { '?' };
    Ok(format!("{uri}{separator}dryRun=All").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_names_its_namespace_and_refuses_others() {
        let secret = Kind::new("", "v1", "Secret", "secrets", true);
        let node = Kind::new("", "v1", "Node", "nodes", false);
        let view = ClientView { namespace: Some("web".into()), dry_run: false };
        let none = ClientView::default();
        let table = [
            (&view, &secret, "", Ok("web")),
            (&view, &secret, "web", Ok("web")),
            (
                &view,
                &secret,
                "shop",
                Err("Secret in namespace shop is outside of this view of namespace web"),
            ),
            (&view, &node, "", Ok("")),
            (&none, &secret, "", Ok("")),
            (&none, &secret, "shop", Ok("shop")),
        ];
        for (view, kind, namespace, wanted) in table {
            let found = view.namespace(kind, namespace).map_err(|error| error.to_string());
            assert_eq!(found, wanted.map_err(str::to_owned), "{kind:?} {namespace:?}");
        }
    }

    #[test]
    fn a_dry_run_keeps_the_query() {
        let uri = |text: &str| with_dry_run(&text.parse().unwrap()).unwrap().to_string();
        assert_eq!(uri("/api/v1/pods"), "/api/v1/pods?dryRun=All");
        assert_eq!(uri("/api/v1/pods?force=true"), "/api/v1/pods?force=true&dryRun=All");
        let options = |text: &str| with_dry_run_option(text.as_bytes()).unwrap();
        assert_eq!(options(""), b"");
        assert_eq!(
            options(r#"{"gracePeriodSeconds":0}"#),
            br#"{"dryRun":["All"],"gracePeriodSeconds":0}"#
        );
        assert!(with_dry_run_option(b"x").is_err());
    }
}
