//! Leader fencing: refuses writes of a process whose lease may have expired, checked at the last moment before each send.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};
use tokio::time::{Instant, sleep_until};

/// The time until which a leader may write; `None` while it may not. Clones share it.
///
/// client-go has no fence: a paused leader of upstream may still write after another has taken the lease.
///
/// A [fenced client](super::Client::fenced) checks it before a write is sent, before each retry, and
/// whenever the write makes progress: a write that still waits for a token or a connection at that time is never sent.
///
/// ```
/// use evenkeel_runtime::client::LeaderFence;
///
/// let closed = LeaderFence::new(|| None);
/// assert!(!closed.allows_writes() && !LeaderFence::always_open().and(&closed).allows_writes());
/// ```
#[derive(Clone)]
pub struct LeaderFence(Arc<dyn Fn() -> Option<Instant> + Send + Sync>);

impl LeaderFence {
    /// A fence that is open until the time that `until` returns. `until` is called for each write and must be quick.
    pub fn new(until: impl Fn() -> Option<Instant> + Send + Sync + 'static) -> Self {
        Self(Arc::new(until))
    }

    /// A fence that never closes, for programs without leader election.
    pub fn always_open() -> Self {
        Self::new(|| Some(Instant::now() + std::time::Duration::from_secs(3600)))
    }

    /// A fence that is open while both `self` and `other` are open.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (one, other) = (self.clone(), other.clone());
        Self::new(move || Some(one.until()?.min(other.until()?)))
    }

    /// Whether a write may be sent now.
    pub fn allows_writes(&self) -> bool {
        self.until().is_some()
    }

    fn until(&self) -> Option<Instant> {
        (self.0)()
    }
}

impl std::fmt::Debug for LeaderFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LeaderFence").field(&self.allows_writes()).finish()
    }
}

/// Drives `request` while the fence is open. Returns `None` if the fence closes first; the request is not polled again.
pub(super) async fn run_fenced<T>(
    fence: &LeaderFence,
    request: impl Future<Output = T>,
) -> Option<T> {
    let (mut request, mut timer) = (pin!(request), pin!(sleep_until(Instant::now())));
    poll_fn(|context| {
        // Checked before the request is polled: when a paused process resumes, all its timers are due at once.
        let Some(until) = fence.until() else { return Poll::Ready(None) };
        if let Poll::Ready(answer) = request.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        if timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };
    use tokio::time::{advance, sleep, timeout};

    fn fence(until: &Arc<Mutex<Instant>>) -> LeaderFence {
        let until = Arc::clone(until);
        LeaderFence::new(move || {
            Some(*until.lock().unwrap()).filter(|until| *until > Instant::now())
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_goes_on_while_the_fence_is_open_and_no_longer() {
        let second = Duration::from_secs(1);
        let until = Arc::new(Mutex::new(Instant::now() + 5 * second));
        let open = fence(&until);
        assert_eq!(run_fenced(&open, sleep(4 * second)).await, Some(()));
        assert_eq!(run_fenced(&open, sleep(4 * second)).await, None, "one second was left");
        assert_eq!(run_fenced(&open, async {}).await, None, "not even begun");
        *until.lock().unwrap() = Instant::now() + 5 * second;
        let extended = async {
            sleep(4 * second).await;
            *until.lock().unwrap() += 5 * second;
        };
        let (answer, ()) = tokio::join!(run_fenced(&open, sleep(8 * second)), extended);
        assert_eq!(answer, Some(()), "it was renewed meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_process_does_not_send() {
        let until = Arc::new(Mutex::new(Instant::now() + Duration::from_secs(10)));
        let (open, sent) = (fence(&until), AtomicBool::new(false));
        let request = async {
            sleep(Duration::from_secs(1)).await;
            sent.store(true, Ordering::Relaxed);
        };
        let mut writing = pin!(run_fenced(&open, request));
        assert!(timeout(Duration::ZERO, &mut writing).await.is_err());
        // Nothing runs for a minute, then everything is due.
        advance(Duration::from_secs(60)).await;
        assert_eq!(writing.await, None);
        assert!(!sent.load(Ordering::Relaxed));
    }
}
