//! Counts the requests of a connection and records when bytes arrive, for the watchdog.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use hyper::service::Service;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::abort::{AbortResponse, Stream};
use crate::watchdog::ConnectionActivity;

/// Counters of a connection, updated while it is served.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    requests: AtomicU64,
    in_flight: AtomicU64,
    /// Whether bytes arrived since the last response ended. Only recorded for HTTP/1.
    partial_head: AtomicBool,
}

impl Activity {
    /// Returns the current counters.
    pub(crate) fn snapshot(&self) -> ConnectionActivity {
        ConnectionActivity {
            requests: self.requests.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            partial_head: self.partial_head.load(Ordering::Relaxed),
        }
    }
}

/// Guard of a request in flight.
struct InFlight(Arc<Activity>);

impl InFlight {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        activity.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(activity.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.partial_head.store(false, Ordering::Relaxed);
    }
}

/// Service wrapper that counts requests until their responses are sent.
pub(crate) struct CountedService<S> {
    service: S,
    activity: Arc<Activity>,
}

impl<S> CountedService<S> {
    pub(crate) fn new(service: S, activity: Arc<Activity>) -> Self {
        Self { service, activity }
    }
}

impl<S, R, B> Service<R> for CountedService<S>
where
    S: Service<R, Response = Response<B>>,
    S::Future: Unpin,
{
    type Response = Response<CountedBody<B>>;
    type Error = S::Error;
    type Future = CountedFuture<S::Future>;

    fn call(&self, request: R) -> Self::Future {
        let in_flight = InFlight::begin(&self.activity);
        CountedFuture { future: self.service.call(request), in_flight: Some(in_flight) }
    }
}

/// Future of a counted response.
pub(crate) struct CountedFuture<F> {
    future: F,
    in_flight: Option<InFlight>,
}

impl<F, B, E> Future for CountedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = Result<Response<CountedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        Pin::new(&mut this.future).poll(cx).map(|answered| {
            let in_flight = this.in_flight.take();
            answered.map(|response| {
                Stream::begin(response.extensions().get::<AbortResponse>());
                response.map(|body| CountedBody { body, _in_flight: in_flight })
            })
        })
    }
}

/// Response body that counts as in flight until it is sent or dropped.
pub(crate) struct CountedBody<B> {
    body: B,
    _in_flight: Option<InFlight>,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// I/O stream that records that bytes arrived.
pub(crate) struct RecordedIo<I> {
    io: I,
    activity: Arc<Activity>,
}

impl<I> RecordedIo<I> {
    pub(crate) fn new(io: I, activity: Arc<Activity>) -> Self {
        Self { io, activity }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for RecordedIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            this.activity.partial_head.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for RecordedIo<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
