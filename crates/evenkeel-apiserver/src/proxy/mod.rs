//! Requests that are sent on to another server over a stream of bytes: their headers, the exchange, switches to another
//! protocol. Who sends them on decides where they lead.
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

use crate::tasks::Tasks;

/// Maximum duration until a connection over the network is made.
///
/// Upstream: the dialer of `http.DefaultTransport`.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// What Go escapes in the path of a URL.
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

/// Encodes a path that is decoded.
pub(crate) fn escaped(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// Stream of bytes to another server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connection to another server.
pub(crate) struct Link {
    /// Stream of the connection's bytes.
    pub(crate) stream: Box<dyn Stream>,
    /// Work of a simulated server, to be polled beside the stream.
    pub(crate) server: BoxFuture<'static, ()>,
}

impl Link {
    /// Returns the connection of a stream over the network.
    pub(crate) fn over_network(stream: Box<dyn Stream>) -> Self {
        Self { stream, server: Box::pin(std::future::ready(())) }
    }
}

/// Waits until a connection over the network is made, for [`DIAL_TIMEOUT`] at most. `address` is for the error.
pub(crate) async fn within_dial_timeout<T>(
    address: &str,
    connected: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    tokio::time::timeout(DIAL_TIMEOUT, connected)
        .await
        .unwrap_or_else(|_| Err(format!("dial tcp {address}: i/o timeout")))
}

/// Sends a request over a new connection that a task drives until the answer is read. `held` is dropped then. An answer
/// that switches protocols is an error.
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

/// Sends a request over a new connection. The returned future drives the connection until the answer is read; somebody
/// has to poll it.
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
        // A short answer may have come whole, and the service be gone.
        () = &mut driver => {
            driver = Box::pin(std::future::ready(()));
            sent.await
        }
    };
    Ok((response?, driver))
}

/// Returns the pieces of an answer's body. One that breaks off ends there.
pub(crate) fn pieces(body: Incoming) -> impl futures::Stream<Item = Bytes> + Send {
    let pieces = body.into_data_stream();
    pieces
        .take_while(|piece| std::future::ready(piece.is_ok()))
        .filter_map(async |piece| piece.ok())
}
