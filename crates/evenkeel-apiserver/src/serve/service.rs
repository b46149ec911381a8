//! The server as a tower service.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use tokio::sync::Notify;

use crate::api::Api;
use crate::pipeline;
use crate::response::Body;
use evenkeel_apimachinery::user::User;

/// Serves requests in this process. Cheap to clone, always ready, never fails: errors are responses.
#[derive(Clone)]
pub struct Service {
    api: Arc<Api>,
    /// User of the connection's client certificate, if any.
    peer: Option<Arc<User>>,
    /// Notified of each unauthenticated request.
    on_anonymous: Option<Arc<Notify>>,
}

impl Service {
    pub(super) fn new(api: Arc<Api>, peer: Option<Arc<User>>) -> Self {
        Self { api, peer, on_anonymous: None }
    }

    /// Returns the service with a notification for each unauthenticated request.
    pub(super) fn notify_anonymous(mut self, notify: Arc<Notify>) -> Self {
        self.on_anonymous = Some(notify);
        self
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { api, peer, on_anonymous } = self.clone();
        async move {
            let response = pipeline::serve(&api, peer.as_ref(), request).await;
            if let Some(notify) = on_anonymous
                && response.extensions().get::<pipeline::Anonymous>().is_some()
            {
                notify.notify_one();
            }
            Ok(response)
        }
        .boxed()
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("peer", &self.peer.as_ref().map(|u| &u.name))
            .finish_non_exhaustive()
    }
}
