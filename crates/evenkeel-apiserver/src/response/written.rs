//! Guards that a response holds until it is written or its deadline passes. The body and a timer share a guard, and the
//! first of them to finish releases it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Error of a response that the client did not read before the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was not read in time")]
pub struct WriteTimeout;

/// State of a response's guard.
enum State {
    Held(Box<dyn Send>),
    Written,
    TimedOut,
}

/// The body's half of a guard. The response counts as written when this drops.
pub(super) struct Unwritten {
    state: Arc<Mutex<State>>,
    /// Closes the channel when the body drops.
    _open: oneshot::Sender<()>,
}

/// The timer's half of a guard.
pub(crate) struct Writing {
    state: Arc<Mutex<State>>,
    closed: oneshot::Receiver<()>,
}

/// Creates the halves of a guard for a body and its timer.
pub(super) fn hold(guard: Box<dyn Send>) -> (Unwritten, Writing) {
    let state = Arc::new(Mutex::new(State::Held(guard)));
    let (open, closed) = oneshot::channel();
    (Unwritten { state: state.clone(), _open: open }, Writing { state, closed })
}

/// Drops the guard if it is still held. Returns false if the other half has already released it.
fn release(state: &Mutex<State>, next: State) -> bool {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let State::Held(guard) = std::mem::replace(&mut *state, next) else { return false };
    drop(state);
    // Dropping the guard dispatches other requests, so drop it without the lock.
    drop(guard);
    true
}

impl Unwritten {
    /// Returns an error after the deadline.
    pub(super) fn check(&self) -> Result<(), WriteTimeout> {
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::TimedOut => Err(WriteTimeout),
            State::Held(_) | State::Written => Ok(()),
        }
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        release(&self.state, State::Written);
    }
}

impl Writing {
    /// Waits until the response is written, at most for `limit`. Returns whether the limit passed first.
    pub(crate) async fn timed_out(self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.closed).await.is_err()
            && release(&self.state, State::TimedOut)
    }
}
