//! Responses that their service cuts off while they are sent.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;

tokio::task_local! {
    /// The stream whose task is running.
    static STREAM: Stream;
}

/// Cuts a response off: its HTTP/2 stream is reset, its HTTP/1.1 connection closed. A service puts one into the extensions of a
/// response whose body the client might not read; a body alone cannot end, since nothing asks it for more.
///
/// Upstream: `ErrAbortHandler`.
#[derive(Debug, Clone, Default)]
pub struct AbortResponse(Arc<Mutex<Abort>>);

#[derive(Debug, Default)]
struct Abort {
    aborted: bool,
    waker: Option<Waker>,
}

impl AbortResponse {
    /// Cuts the response off, if it is still being sent.
    pub fn abort(&self) {
        let mut abort = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        abort.aborted = true;
        let waker = abort.waker.take();
        drop(abort);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_aborted(&self, cx: &Context<'_>) -> bool {
        let mut abort = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        abort.waker = Some(cx.waker().clone());
        abort.aborted
    }
}

/// What sends one response after the other: an HTTP/1.1 connection, or a stream of HTTP/2, which sends one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream(Arc<Mutex<Option<AbortResponse>>>);

impl Stream {
    /// Notes how the response that is sent next can be cut off.
    pub(crate) fn begin(abort: Option<&AbortResponse>) {
        let _ = STREAM.try_with(|stream| {
            *stream.0.lock().unwrap_or_else(PoisonError::into_inner) = abort.cloned();
        });
    }

    /// Polls what sends the response. Ready with nothing if the response was cut off.
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

/// Runs each stream of an HTTP/2 connection as a task that can be cut off. A stream that is dropped before its end is reset.
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
