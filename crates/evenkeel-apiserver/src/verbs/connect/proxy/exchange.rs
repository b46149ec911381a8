//! A proxied request, as the service gets it.

use bytes::Bytes;
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::StatusError;
use futures::future::BoxFuture;
use http::header::{CONTENT_LENGTH, HOST};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::dial::Stream;
use super::links::Links;
use super::location::{Location, unreachable_service};
use super::{headers, path};
use crate::request::RequestContext;

/// A request on its way to a service.
pub(super) struct Exchange {
    pub(super) location: Location,
    pub(super) links: Links,
    /// Path and query as the service sees them.
    target: Uri,
    /// Value of the header `X-Forwarded-Uri`.
    forwarded_uri: String,
}

impl Exchange {
    pub(super) fn new(
        request: &RequestContext<'_>,
        location: Location,
        behind: &str,
    ) -> Result<Self, StatusError> {
        let asked = text(request.headers, HOST);
        let host = request.uri.authority().map_or(asked, |authority| authority.as_str());
        let prefix = path::prefix(request.uri.path(), behind);
        let escaped = path::escaped(if behind.is_empty() { "/" } else { behind });
        let mut forwarded_uri = path::join(&path::escaped(&prefix), &escaped);
        if behind.ends_with('/') {
            forwarded_uri.push('/');
        }
        let target = match request.uri.query() {
            Some(query) => format!("{escaped}?{query}"),
            None => escaped,
        };
        let target = target.parse().map_err(|_| StatusError::bad_request("invalid path"))?;
        let links = Links { authority: location.authority(), host: host.to_owned(), prefix };
        Ok(Self { location, links, target, forwarded_uri })
    }

    /// Returns the request for the service.
    pub(super) fn request<T>(
        &self,
        request: &RequestContext<'_>,
        is_upgrade: bool,
        body: T,
    ) -> Result<Request<T>, StatusError> {
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = request.method.clone();
        *outgoing.uri_mut() = self.target.clone();
        let host = match &*self.links.host {
            "" => &self.links.authority,
            host => host,
        };
        headers::of_request(request.headers, host, &self.forwarded_uri, is_upgrade, &mut outgoing);
        // The body is sent as one.
        outgoing.headers_mut().remove(CONTENT_LENGTH);
        Ok(outgoing)
    }
}

/// Sends a request over a new connection. The future drives the connection until the answer is read; somebody has to poll it.
pub(super) async fn send(
    stream: Box<dyn Stream>,
    server: BoxFuture<'static, ()>,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, BoxFuture<'static, ()>), StatusError> {
    let failed = |error: hyper::Error| unreachable_service(&error.to_string());
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(failed)?;
    let mut driver: BoxFuture<'static, ()> = Box::pin(async move {
        futures::join!(
            async {
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%error, "a connection of a proxy ended");
                }
            },
            server
        );
    });
    let mut sent = std::pin::pin!(sender.send_request(request));
    let response = tokio::select! {
        biased;
        response = &mut sent => response,
        // A short answer may have come whole, and the service be gone.
        () = &mut driver => {
            driver = Box::pin(std::future::ready(()));
            sent.await
        }
    };
    Ok((response.map_err(failed)?, driver))
}
