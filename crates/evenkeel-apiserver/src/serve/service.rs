//! Server as a tower service.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use evenkeel_tasks::watch;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::api::Api;
use crate::auth::refused_peer;
use crate::pipeline;
use crate::request::body::boxed;
use crate::request::{RemoteAddress, RequestBody, Upgrade};
use crate::response::Body;
use evenkeel_apimachinery::user::User;

/// In-process service. It is cheap to clone and always ready; errors are responses.
#[derive(Clone)]
pub struct Service {
    api: Arc<Api>,
    /// User of the connection: the client certificate's, or the in-process caller.
    peer: Option<Peer>,
    /// End of the certificate's validity if the client is a front proxy, whose requests name their users in headers.
    front_proxy_not_after: Option<Timestamp>,
    /// Notified of each unauthenticated request.
    on_anonymous: Option<Arc<Notify>>,
    /// Changes to true when the listener of the connection stops.
    stopped: Option<watch::Receiver<bool>>,
    /// Address that the connection comes from.
    remote: Option<RemoteAddress>,
}

/// Peer of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) user: Arc<User>,
    /// End of the certificate's validity; `None` without a certificate.
    pub(super) not_after: Option<Timestamp>,
}

impl Peer {
    /// Returns a peer whose certificate is refused. Its requests need other credentials.
    pub(super) fn refused() -> Self {
        Self { user: Arc::new(refused_peer()), not_after: None }
    }

    /// Returns the user of a request at `now`, or a refused one if the certificate has expired since the handshake.
    fn user_at(&self, now: Timestamp) -> Arc<User> {
        let is_valid = self.not_after.is_none_or(|not_after| now <= not_after);
        if is_valid { self.user.clone() } else { Arc::new(refused_peer()) }
    }
}

impl Service {
    pub(super) fn new(api: Arc<Api>, peer: Option<Peer>) -> Self {
        Self {
            api,
            peer,
            front_proxy_not_after: None,
            on_anonymous: None,
            stopped: None,
            remote: None,
        }
    }

    /// Returns the service of a connection that can be upgraded, until its listener stops.
    pub(super) fn upgradable(mut self, stopped: watch::Receiver<bool>) -> Self {
        self.stopped = Some(stopped);
        self
    }

    /// Sets the address that the connection comes from.
    pub(super) fn with_remote(mut self, remote: IpAddr) -> Self {
        self.remote = Some(RemoteAddress(remote));
        self
    }

    /// Trusts the users in the headers of requests until the front proxy's certificate expires.
    pub(super) fn with_front_proxy(mut self, not_after: Option<Timestamp>) -> Self {
        self.front_proxy_not_after = not_after;
        self
    }

    /// Returns the user in the headers of a front proxy's request, and removes other credentials, which do not apply.
    fn take_header_user(&self, headers: &mut HeaderMap) -> Option<User> {
        self.front_proxy_not_after.filter(|not_after| self.api.clock.now() <= *not_after)?;
        let user = self.api.authenticator.front_proxy.as_ref()?.user(headers)?;
        headers.remove(AUTHORIZATION);
        Some(user)
    }

    /// Notifies `notify` of each unauthenticated request.
    pub(super) fn notify_anonymous(mut self, notify: Arc<Notify>) -> Self {
        self.on_anonymous = Some(notify);
        self
    }

    /// Returns the response to a request. It is never an error.
    fn respond(
        &self,
        mut request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
        let header_user = self.take_header_user(request.headers_mut());
        let Self { api, peer, on_anonymous, stopped, remote, .. } = self.clone();
        if let Some(remote) = remote {
            request.extensions_mut().insert(remote);
        }
        let connection = request.extensions_mut().remove::<OnUpgrade>();
        if let (Some(connection), Some(stopped)) = (connection, stopped) {
            request.extensions_mut().insert(Upgrade { connection, stopped });
        }
        async move {
            let peer = match header_user {
                Some(user) => Some(Arc::new(user)),
                None => peer.map(|peer| peer.user_at(api.clock.now())),
            };
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
        self.respond(request.map(boxed))
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("peer", &self.peer.as_ref().map(|peer| &peer.user.name))
            .finish_non_exhaustive()
    }
}
