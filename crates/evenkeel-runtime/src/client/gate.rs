//! Whether this process may write, asked at the last moment: whoever was paused past the end of its lease must not.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};
use tokio::time::{Instant, sleep_until};

/// Says until when writes may be under way, as things stand; `None` when none may. Clones share it.
///
/// A client that [has one](super::Client::gated) asks it before a write is sent, each time that the write is sent again, and
/// whenever it goes on with one: a write that still waits for a token or a connection when the time is up never leaves.
///
/// ```
/// use evenkeel_runtime::client::Gate;
///
/// let closed = Gate::new(|| None);
/// assert!(!closed.is_open() && !Gate::open().and(&closed).is_open());
/// ```
#[derive(Clone)]
pub struct Gate(Arc<dyn Fn() -> Option<Instant> + Send + Sync>);

impl Gate {
    /// A gate that is open until the time that `until` gives. That is asked often, and must be quick.
    pub fn new(until: impl Fn() -> Option<Instant> + Send + Sync + 'static) -> Self {
        Self(Arc::new(until))
    }

    /// A gate that is never closed.
    pub fn open() -> Self {
        Self::new(|| Some(Instant::now() + std::time::Duration::from_secs(3600)))
    }

    /// A gate that is open while both are.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (one, other) = (self.clone(), other.clone());
        Self::new(move || Some(one.until()?.min(other.until()?)))
    }

    /// Whether a write may be sent now.
    pub fn is_open(&self) -> bool {
        self.until().is_some()
    }

    fn until(&self) -> Option<Instant> {
        (self.0)()
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gate").field(&self.is_open()).finish()
    }
}

/// What comes of `request` while the gate is open; `None` when it closes before. The request is not touched from then on.
pub(super) async fn guarded<T>(gate: &Gate, request: impl Future<Output = T>) -> Option<T> {
    let (mut request, mut timer) = (pin!(request), pin!(sleep_until(Instant::now())));
    poll_fn(|context| {
        // Before the request is touched, not beside it: a process that wakes late finds all its timers due at once.
        let Some(until) = gate.until() else { return Poll::Ready(None) };
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

    fn gate(until: &Arc<Mutex<Instant>>) -> Gate {
        let until = Arc::clone(until);
        Gate::new(move || Some(*until.lock().unwrap()).filter(|until| *until > Instant::now()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_goes_on_while_the_gate_is_open_and_no_longer() {
        let second = Duration::from_secs(1);
        let until = Arc::new(Mutex::new(Instant::now() + 5 * second));
        let open = gate(&until);
        assert_eq!(guarded(&open, sleep(4 * second)).await, Some(()));
        assert_eq!(guarded(&open, sleep(4 * second)).await, None, "one second was left");
        assert_eq!(guarded(&open, async {}).await, None, "not even begun");
        *until.lock().unwrap() = Instant::now() + 5 * second;
        let extended = async {
            sleep(4 * second).await;
            *until.lock().unwrap() += 5 * second;
        };
        let (answer, ()) = tokio::join!(guarded(&open, sleep(8 * second)), extended);
        assert_eq!(answer, Some(()), "it was renewed meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn who_wakes_late_does_not_send() {
        let until = Arc::new(Mutex::new(Instant::now() + Duration::from_secs(10)));
        let (open, sent) = (gate(&until), AtomicBool::new(false));
        let request = async {
            sleep(Duration::from_secs(1)).await;
            sent.store(true, Ordering::Relaxed);
        };
        let mut writing = pin!(guarded(&open, request));
        assert!(timeout(Duration::ZERO, &mut writing).await.is_err());
        // Nothing runs for a minute, then everything is due.
        advance(Duration::from_secs(60)).await;
        assert_eq!(writing.await, None);
        assert!(!sent.load(Ordering::Relaxed));
    }
}
