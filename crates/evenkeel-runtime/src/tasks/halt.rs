//! Stops a program between two steps, as a signal stops a process: for simulations.

use futures::future::Either;
use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

tokio::task_local! {
    /// What the task that runs now obeys to.
    static OBEYED: Halt;
}

/// Halts and resumes a future and all tasks that are spawned in it by [`super::Tasks`]. While it is halted none of them is
/// touched: time goes on, and all that was to happen meanwhile is due at once when it resumes. Clones are one switch.
///
/// ```
/// use evenkeel_runtime::tasks::Halt;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let halt = Halt::default();
/// halt.halt();
/// let work = halt.over(async { 1 });
/// assert!(tokio::time::timeout(Duration::from_secs(60), work).await.is_err());
/// halt.resume();
/// assert_eq!(halt.over(async { 1 }).await, 1);
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Halt(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    halted: bool,
    waiting: Vec<Waker>,
}

impl Halt {
    /// From now on nothing is touched, but for the step that is under way.
    pub fn halt(&self) {
        self.lock().halted = true;
    }

    /// Everything goes on.
    pub fn resume(&self) {
        let waiting = {
            let mut state = self.lock();
            state.halted = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Runs `work` as long as this is not halted.
    pub fn over<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let this = self.clone();
        OBEYED.scope(self.clone(), async move {
            let mut work = pin!(work);
            poll_fn(|context| {
                {
                    let mut state = this.lock();
                    if state.halted {
                        state.waiting.push(context.waker().clone());
                        return Poll::Pending;
                    }
                }
                work.as_mut().poll(context)
            })
            .await
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task, under what the task that spawns it obeys to.
pub(super) fn inherited<F: Future>(task: F) -> impl Future<Output = F::Output> + use<F> {
    match OBEYED.try_with(Clone::clone) {
        Ok(halt) => Either::Left(halt.over(task)),
        Err(_) => Either::Right(task),
    }
}
