//! Requests that are sent on to another server over a stream of bytes: their headers, the exchange, switches to another
//! protocol. Who sends them on decides where they lead.
//!
//! Upstream: `UpgradeAwareHandler` of `util/proxy`.

pub(crate) mod headers;
pub(crate) mod upgrade;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};

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
