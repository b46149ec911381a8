//! Responses that a service aborts while they are being sent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;

tokio::task_local! {
    /// The stream whose task is being polled.
    static STREAM: Stream;
}

/// Handle that aborts a response: it resets the HTTP/2 stream or closes the HTTP/1.1 connection. A service adds one
/// to the extensions of a response whose body the client might not read. The body cannot end such a response
/// itself, because hyper does not poll a body while the client does not read.
///
/// Upstream: `ErrAbortHandler`.
#[derive(Debug, Clone, Default)]
pub struct AbortResponse(Arc<Mutex<Abort>>);

/// Whether a response was aborted, and the waker of the task that sends it.
#[derive(Debug, Default)]
struct Abort {
    aborted: bool,
    waker: Option<Waker>,
}

impl AbortResponse {
    /// Aborts the response if it is still being sent.
    pub fn abort(&self) {
        let mut abort = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        abort.aborted = true;
        let waker = abort.waker.take();
        drop(abort);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether the response was aborted. If not, an abort wakes the task of `cx`.
    fn poll_aborted(&self, cx: &Context<'_>) -> bool {
        let mut abort = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        abort.waker = Some(cx.waker().clone());
        abort.aborted
    }
}

/// Abort handle of the response that is being sent, if it has one. Each HTTP/1.1 connection and each HTTP/2 stream
/// has its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream(Arc<Mutex<Option<AbortResponse>>>);

impl Stream {
    /// Stores the abort handle of the response that is sent next.
    pub(crate) fn begin(abort: Option<&AbortResponse>) {
        let _ = STREAM.try_with(|stream| {
            *stream.0.lock().unwrap_or_else(PoisonError::into_inner) = abort.cloned();
        });
    }

    /// Polls the future that sends the response. Returns `Ready(None)` if the response was aborted.
    pub(crate) fn poll<F: Future>(
        &self,
        future: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        let polled = STREAM.sync_scope(self.clone(), || future.poll(cx));
        if let Poll::Ready(output) = polled {
            return Poll::Ready(Some(output));
        }
        let abort = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let aborted = abort.is_some_and(|abort| abort.poll_aborted(cx));
        if aborted { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// Executor that makes each stream of an HTTP/2 connection abortable. hyper resets a stream that is dropped
/// before its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamExecutor(TokioExecutor);

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut future = Box::pin(future);
        let stream = Stream::default();
        self.0.execute(std::future::poll_fn(move |cx| stream.poll(future.as_mut(), cx).map(drop)));
    }
}
