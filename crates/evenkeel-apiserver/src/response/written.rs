//! What an answer holds until it is written, and no longer than until its deadline.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Why an answer is cut off: its client does not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was not read in time")]
pub struct WriteTimeout;

/// Who has the guard of an answer.
enum State {
    Held(Box<dyn Send>),
    Written,
    TimedOut,
}

/// The body's side: while it lives, the answer is not written.
pub(super) struct Unwritten {
    state: Arc<Mutex<State>>,
    /// Closed with the body.
    _open: oneshot::Sender<()>,
}

/// The timer's side.
pub(crate) struct Writing {
    state: Arc<Mutex<State>>,
    closed: oneshot::Receiver<()>,
}

/// Divides a guard between a body and the timer that limits it.
pub(super) fn hold(guard: Box<dyn Send>) -> (Unwritten, Writing) {
    let state = Arc::new(Mutex::new(State::Held(guard)));
    let (open, closed) = oneshot::channel();
    (Unwritten { state: state.clone(), _open: open }, Writing { state, closed })
}

/// Drops the guard, if it is still held. Returns whether it was: the other side came first otherwise, and is done.
fn release(state: &Mutex<State>, next: State) -> bool {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let State::Held(guard) = std::mem::replace(&mut *state, next) else { return false };
    drop(state);
    // The guard gives seats to others, which is not done under the lock.
    drop(guard);
    true
}

impl Unwritten {
    /// Refuses to go on after the deadline.
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
    /// Waits until the answer is written, or for so long. Returns whether it was cut off.
    pub(crate) async fn timed_out(self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.closed).await.is_err()
            && release(&self.state, State::TimedOut)
    }
}
