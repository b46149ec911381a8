//! Transport of requests through a replaceable stack of layers.

use super::{
    connect::{self, ConnectError, ConnectOptions},
    connection_pool::PooledBody,
};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Either;
use kube::client::Body;
use std::{
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
};
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// Stack of layers that sends requests. Each request uses a clone.
pub(super) type Stack = BoxCloneSyncService<Request<Body>, Response<PooledBody>, BoxError>;

pub(crate) type ResponseBody = Either<PooledBody, Body>;

/// Transport of requests: kube's client, or a stack that bypasses the queue of kube's client.
#[derive(Clone)]
pub struct Transport {
    kube: kube::Client,
    stack: Option<ReplaceableStack>,
}

impl Transport {
    /// Connects with the inferred configuration: `$KUBECONFIG`, `~/.kube/config`, or the pod's service account, in this
    /// order. Takes the place of [`kube::Client::try_default`]: a request does not pass the queue and the layers of kube's
    /// client, which costs less CPU time.
    ///
    /// It uses HTTP/1.1, with a connection for each concurrent request. HTTP/2, which [`super::transport()`] uses, saves
    /// connections, but costs an operator with few watches more CPU time for a write.
    ///
    /// ```no_run
    /// use evenkeel_runtime::prelude::*;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let manager = Manager::builder(Transport::try_default().await?).build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if no configuration is found, or one of its files or fields cannot be used. The error names it. The function sends
    /// no request.
    pub async fn try_default() -> Result<Self, ConnectError> {
        connect::create_http1_transport(&connect::config(&ConnectOptions::default()).await?)
    }

    /// Creates a transport over a replaceable stack. Call it inside a tokio runtime.
    pub(super) fn new(stack: ReplaceableStack, namespace: &str) -> Self {
        Self { kube: kube::Client::new(stack.clone(), namespace), stack: Some(stack) }
    }

    /// Returns a kube client over the transport.
    pub fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// Sends one request.
    pub(super) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        match &self.stack {
            Some(stack) => Ok(stack.get().oneshot(request).await?.map(Either::Left)),
            None => Ok(self.kube.send(request).await?.map(Either::Right)),
        }
    }
}

impl From<kube::Client> for Transport {
    fn from(kube: kube::Client) -> Self {
        Self { kube, stack: None }
    }
}

impl From<Transport> for kube::Client {
    fn from(transport: Transport) -> Self {
        transport.kube
    }
}

/// Stack that can be replaced. Requests in flight keep the old one.
#[derive(Clone)]
pub(super) struct ReplaceableStack(Arc<RwLock<Stack>>);

impl ReplaceableStack {
    pub(super) fn new(stack: Stack) -> Self {
        Self(Arc::new(RwLock::new(stack)))
    }

    pub(super) fn set(&self, stack: Stack) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = stack;
    }

    fn get(&self) -> Stack {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Service<Request<Body>> for ReplaceableStack {
    type Response = Response<PooledBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<PooledBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.get().oneshot(request))
    }
}
