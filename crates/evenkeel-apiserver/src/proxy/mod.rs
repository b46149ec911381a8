//! Common parts of proxying requests to other servers: headers, one exchange over a byte stream, and switches to
//! another protocol. The callers choose and dial the server: aggregation, and the subresource `proxy`.
//!
//! Upstream: `UpgradeAwareHandler` of `util/proxy`.

pub(crate) mod headers;
pub(crate) mod upgrade;

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::response::BodyError;
use crate::tasks::Tasks;

/// Timeout for opening a network connection.
///
/// Upstream: the dialer of `http.DefaultTransport`.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Characters that Go escapes in the path of a URL.
///
/// Upstream: `shouldEscape` of Go's `net/url`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Percent-encodes a decoded path.
pub(crate) fn escaped(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// Byte stream to another server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Open connection to another server, over which one request is sent.
pub(crate) struct Link {
    /// Byte stream that carries the connection.
    pub(crate) stream: Box<dyn Stream>,
    /// Future that runs a simulated server in this process. It must be polled while the stream is used; it is ready
    /// immediately for a real server.
    pub(crate) server: BoxFuture<'static, ()>,
}

impl Link {
    /// Returns the connection to a real server over a network stream.
    pub(crate) fn over_network(stream: Box<dyn Stream>) -> Self {
        Self { stream, server: Box::pin(std::future::ready(())) }
    }
}

/// Waits at most [`DIAL_TIMEOUT`] for a network connection to open. `address` is only for the error message.
pub(crate) async fn within_dial_timeout<T>(
    address: &str,
    connected: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    tokio::time::timeout(DIAL_TIMEOUT, connected)
        .await
        .unwrap_or_else(|_| Err(format!("dial tcp {address}: i/o timeout")))
}

/// Sends a request over a new connection, and returns the response. A spawned task drives the connection until the body
/// is read, and then drops `held`, such as a slot of a limit. A response that switches protocols is an error.
pub(crate) async fn round_trip(
    tasks: &Tasks,
    link: Link,
    request: Request<Full<Bytes>>,
    held: impl Send + 'static,
) -> Result<Response<Incoming>, String> {
    let (response, driver) = send(link, request).await.map_err(|error| error.to_string())?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err("it switched protocols unasked".to_owned());
    }
    tasks.spawn_stream(async move {
        let _held = held;
        driver.await;
    });
    Ok(response)
}

/// Sends a request over a new connection. Returns the response, and a future that the caller must poll until the body
/// is read, because it drives the connection.
pub(crate) async fn send(
    link: Link,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, BoxFuture<'static, ()>), hyper::Error> {
    let Link { stream, server } = link;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
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
        // The server may close the connection right after a short response, which `sent` then still returns.
        () = &mut driver => {
            driver = Box::pin(std::future::ready(()));
            sent.await
        }
    };
    Ok((response?, driver))
}

/// Returns the chunks of a response body. If the connection breaks, the last item is an error.
pub(crate) fn pieces(
    body: Incoming,
) -> impl futures::Stream<Item = Result<Bytes, BodyError>> + Send {
    body.into_data_stream().map(|piece| piece.map_err(|error| BodyError::Broken(error.to_string())))
}
