//! Leader fencing: immediately before each write, checks that the lease of the process cannot have expired.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};
use tokio::time::{Instant, Sleep, sleep_until};

/// Fence that closes when the leader's lease may have expired. Clones share it.
///
/// client-go has no fence: after a pause, upstream's old leader may still write although another holds the
/// lease.
///
/// A [fenced client](super::Client::fenced) checks the fence before it sends or retries a write, and whenever
/// it polls the write. A write that still waits for the rate limiter or a connection when the fence closes is
/// never sent.
///
/// ```
/// use evenkeel_runtime::client::LeaderFence;
///
/// let closed = LeaderFence::new(|| None);
/// assert!(!closed.allows_writes() && !LeaderFence::always_open().and(&closed).allows_writes());
/// ```
#[derive(Clone)]
pub struct LeaderFence(Arc<dyn Fn() -> Window + Send + Sync>);

/// Window in which writes may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    Closed,
    OpenUntil(Instant),
    Open,
}

impl Window {
    /// Returns the intersection of both windows.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Closed, _) | (_, Self::Closed) => Self::Closed,
            (Self::Open, limit) | (limit, Self::Open) => limit,
            (Self::OpenUntil(first), Self::OpenUntil(second)) => Self::OpenUntil(first.min(second)),
        }
    }
}

impl LeaderFence {
    /// Creates a fence that is open until the time that `until` returns. `until` is called for each write and
    /// must be quick.
    pub fn new(until: impl Fn() -> Option<Instant> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || until().map_or(Window::Closed, Window::OpenUntil)))
    }

    /// Creates a fence that never closes, for programs without leader election.
    pub fn always_open() -> Self {
        Self(Arc::new(|| Window::Open))
    }

    /// Creates a fence that is open while both `self` and `other` are open.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (first, second) = (self.clone(), other.clone());
        Self(Arc::new(move || first.window().and(second.window())))
    }

    /// Returns whether a write may be sent now.
    pub fn allows_writes(&self) -> bool {
        self.window() != Window::Closed
    }

    /// Runs work while the fence is open. If the fence closes first, returns `None`, and the work is not polled again.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        run_fenced(self, work).await
    }

    fn window(&self) -> Window {
        (self.0)()
    }
}

impl std::fmt::Debug for LeaderFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LeaderFence").field(&self.allows_writes()).finish()
    }
}

/// Polls `request` while the fence is open. If the fence closes first, returns `None` and does not poll the
/// request again.
pub(super) async fn run_fenced<T>(
    fence: &LeaderFence,
    request: impl Future<Output = T>,
) -> Option<T> {
    let (mut request, mut timer) = (pin!(request), pin!(None::<Sleep>));
    poll_fn(|context| {
        // Check the fence before polling the request, because all timers of a paused process fire at the same time when it
        // resumes.
        let window = fence.window();
        if window == Window::Closed {
            return Poll::Ready(None);
        }
        if let Poll::Ready(answer) = request.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        let Window::OpenUntil(until) = window else { return Poll::Pending };
        if timer.as_ref().as_pin_ref().is_none_or(|timer| timer.deadline() != until) {
            timer.set(Some(sleep_until(until)));
        }
        if timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(context).is_ready()) {
            // Poll again immediately, to check whether the fence has closed.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };
    use tokio::time::{advance, sleep, timeout};

    /// Returns a fence that is open until the given time, which tests may change.
    fn fence(until: &Arc<Mutex<Instant>>) -> LeaderFence {
        let until = Arc::clone(until);
        LeaderFence::new(move || {
            Some(*until.lock().unwrap()).filter(|until| *until > Clock::system().instant())
        })
    }

    #[tokio::test(start_paused = true)]
    async fn two_fences_are_open_while_both_are() {
        let now = Clock::system().instant();
        let until = |seconds: u64| Window::OpenUntil(now + Duration::from_secs(seconds));
        for (one, other, both) in [
            (Window::Open, Window::Open, Window::Open),
            (Window::Open, until(5), until(5)),
            (until(7), until(5), until(5)),
            (Window::Closed, until(5), Window::Closed),
            (Window::Open, Window::Closed, Window::Closed),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_polled_only_while_the_fence_is_open() {
        let second = Duration::from_secs(1);
        let until = Arc::new(Mutex::new(Clock::system().instant() + 5 * second));
        let open = fence(&until);
        assert_eq!(run_fenced(&open, sleep(4 * second)).await, Some(()));
        assert_eq!(run_fenced(&open, sleep(4 * second)).await, None, "one second was left");
        assert_eq!(run_fenced(&open, async {}).await, None, "not even begun");
        *until.lock().unwrap() = Clock::system().instant() + 5 * second;
        let extended = async {
            sleep(4 * second).await;
            *until.lock().unwrap() += 5 * second;
        };
        let (answer, ()) = tokio::join!(run_fenced(&open, sleep(8 * second)), extended);
        assert_eq!(answer, Some(()), "it was renewed meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_process_does_not_send() {
        let until = Arc::new(Mutex::new(Clock::system().instant() + Duration::from_secs(10)));
        let (open, sent) = (fence(&until), AtomicBool::new(false));
        let request = async {
            sleep(Duration::from_secs(1)).await;
            sent.store(true, Ordering::Relaxed);
        };
        let mut writing = pin!(run_fenced(&open, request));
        assert!(timeout(Duration::ZERO, &mut writing).await.is_err());
        // Nothing runs for a minute, then all timers fire.
        advance(Duration::from_secs(60)).await;
        assert_eq!(writing.await, None);
        assert!(!sent.load(Ordering::Relaxed));
    }
}
