//! Serves the requests of one connection.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::abort::{Stream, StreamExecutor};
use crate::activity::{Activity, CountedBody, CountedService, RecordedIo};
use crate::watchdog::{CHECK_INTERVAL, Verdict, Watchdog};

/// Default number of concurrent streams of an HTTP/2 connection, the same as upstream.
const DEFAULT_STREAMS: u32 = 100;
/// HTTP/2 flow control window of a stream, in bytes, the same as upstream.
const STREAM_WINDOW: u32 = 256 * 1024;
/// HTTP/2 flow control window of a connection, in bytes. Upstream's is 25 MiB.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Limit on the headers of an HTTP/2 request, in bytes. Upstream's is 1 MiB.
const MAX_HEADER_LIST: u32 = 64 * 1024;
/// Limit on streams that a client opened and reset before they were accepted. One more closes the connection
/// (rapid reset attack).
const MAX_PENDING_RESET_STREAMS: usize = 20;
/// Limit on streams that were reset for the client's protocol errors. One more closes the connection.
const MAX_ERROR_RESET_STREAMS: usize = 256;
/// Maximum time until a client without TLS sends its first bytes, which show the protocol.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of HTTP that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, or 1.0.
    Http1,
    /// HTTP/2, which carries many requests at the same time.
    Http2,
}

impl Protocol {
    /// Returns the protocol that TLS negotiated with ALPN.
    pub fn negotiated(alpn: Option<&[u8]>) -> Self {
        if alpn == Some(b"h2") { Self::Http2 } else { Self::Http1 }
    }

    /// Returns the protocol of a client without TLS by its first bytes, or `None` if none arrive within 10 s.
    pub async fn detect(stream: &TcpStream) -> Option<Self> {
        // Each HTTP/2 connection begins with `PRI * HTTP/2.0`.
        let mut first_bytes = [0; 3];
        let peek = stream.peek(&mut first_bytes);
        let length = tokio::time::timeout(DETECTION_TIMEOUT, peek).await.ok()?.ok()?;
        if length == 0 {
            return None;
        }
        Some(if &first_bytes == b"PRI" { Self::Http2 } else { Self::Http1 })
    }
}

/// HTTP options of connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct HttpOptions {
    /// Value of `--http2-max-streams-per-connection`. Zero means 100.
    pub http2_streams: u32,
}

/// Reason why a connection ended early.
#[derive(Debug)]
pub enum ConnectionError {
    /// An error of HTTP or of the connection.
    Http(hyper::Error),
    /// No request arrived in time.
    Overdue,
    /// The service aborted a response.
    Aborted,
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::Overdue => f.write_str("no request came in time"),
            Self::Aborted => f.write_str("a response was cut off"),
        }
    }
}

impl Error for ConnectionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Http(error) => error.source(),
            Self::Overdue | Self::Aborted => None,
        }
    }
}

/// Stream of a connection: TCP, or TLS over it.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Body of a response.
type ResponseBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Response, once the service has it.
type ResponseFuture = BoxFuture<'static, Result<Response<ResponseBody>, Infallible>>;

/// Service of a connection.
struct ErasedService(Box<dyn Fn(Request<Incoming>) -> ResponseFuture + Send>);

impl Service<Request<Incoming>> for ErasedService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        (self.0)(request)
    }
}

/// Serves requests until the peer closes the connection, or until it is idle for about 90 s. When `stop` resolves,
/// the connection ends after the responses in flight. Connections can be upgraded.
/// # Errors
/// Fails if the connection breaks, no request arrives in time, or the service aborts a response.
pub async fn serve<I, S, B>(
    io: I,
    protocol: Protocol,
    options: HttpOptions,
    service: S,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), ConnectionError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = ErasedService(Box::new(move |request| {
        let response = service.call(request);
        Box::pin(async move {
            let response = response.await?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }));
    serve_erased(Box::new(io), protocol, options, service, Box::pin(stop)).await
}

/// Serves a connection of any stream, service and body. HTTP/1.1 and HTTP/2 are compiled for these types once, in this crate, and
/// not for each combination in each crate that listens.
fn serve_erased(
    io: Box<dyn ByteStream>,
    protocol: Protocol,
    options: HttpOptions,
    service: ErasedService,
    stop: BoxFuture<'_, ()>,
) -> BoxFuture<'_, Result<(), ConnectionError>> {
    let activity = Arc::new(Activity::default());
    let service = CountedService::new(service, activity.clone());
    match protocol {
        Protocol::Http1 => Box::pin(async move {
            let io = TokioIo::new(RecordedIo::new(io, activity.clone()));
            let mut server = http1::Builder::new();
            // hyper's timeout would also close idle connections; the watchdog distinguishes idle connections
            // from overdue heads.
            server.timer(TokioTimer::new()).header_read_timeout(None);
            drive(server.serve_connection(io, service).with_upgrades(), &activity, stop).await
        }),
        Protocol::Http2 => Box::pin(async move {
            let streams =
                if options.http2_streams == 0 { DEFAULT_STREAMS } else { options.http2_streams };
            let mut server = http2::Builder::new(StreamExecutor::default());
            server
                .timer(TokioTimer::new())
                .max_concurrent_streams(streams)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(MAX_HEADER_LIST)
                .max_pending_accept_reset_streams(MAX_PENDING_RESET_STREAMS)
                .max_local_error_reset_streams(MAX_ERROR_RESET_STREAMS);
            // Do not record when bytes arrive. Between requests they need not be a request's head:
            // clients send PING, WINDOW_UPDATE and SETTINGS frames.
            drive(server.serve_connection(TokioIo::new(io), service), &activity, stop).await
        }),
    }
}

/// A connection of either protocol.
trait Connection: Future<Output = hyper::Result<()>> {
    /// Ends the connection after the responses in flight.
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S, B> Connection for http1::UpgradeableConnection<I, S>
where
    Self: Future<Output = hyper::Result<()>>,
    S: Service<Request<Incoming>, Response = Response<CountedBody<B>>, Error = Infallible>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: http_body::Body + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }
}

impl<I, S, B> Connection for http2::Connection<I, S, StreamExecutor>
where
    Self: Future<Output = hyper::Result<()>>,
    S: Service<Request<Incoming>, Response = Response<CountedBody<B>>, Error = Infallible>,
    S::Future: Send + 'static,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: http_body::Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }
}

/// Polls a connection until it ends.
async fn drive(
    connection: impl Connection,
    activity: &Activity,
    stop: impl Future<Output = ()>,
) -> Result<(), ConnectionError> {
    let mut connection = std::pin::pin!(connection);
    let mut stop = std::pin::pin!(stop);
    let mut stopping = false;
    let mut watchdog = Watchdog::default();
    // This stream serves HTTP/1.1 only. Each HTTP/2 stream has its own in its task.
    let stream = Stream::default();
    loop {
        tokio::select! {
            ended = poll_fn(|cx| stream.poll(connection.as_mut(), cx)) => {
                return match ended {
                    Some(result) => result.map_err(ConnectionError::Http),
                    None => Err(ConnectionError::Aborted),
                };
            }
            () = stop.as_mut(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(CHECK_INTERVAL) => match watchdog.check(activity.snapshot()) {
                Verdict::Keep => {}
                Verdict::Overdue => return Err(ConnectionError::Overdue),
                // The connection was asked to shut down, but the peer keeps it open.
                Verdict::Idle if stopping => return Ok(()),
                Verdict::Idle => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            },
        }
    }
}
