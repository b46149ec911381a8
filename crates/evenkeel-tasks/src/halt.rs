//! Halts a program between two polls of its tasks, as SIGSTOP halts a process. Only simulations use it.

use futures::future::Either;
use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

tokio::task_local! {
    /// Switch that halts the current task.
    static CURRENT: Halt;
}

/// Switch that halts and resumes a future and all tasks that it spawns with [`super::Tasks`]. While halted,
/// none of them is polled. Time passes, so expired timers all fire on resume. Clones share the switch.
///
/// ```
/// use evenkeel_tasks::Halt;
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

/// Whether tasks are halted, and the tasks that wait.
#[derive(Debug, Default)]
struct State {
    halted: bool,
    /// Wakers of the tasks that were to be polled while halted.
    waiting: Vec<Waker>,
}

impl Halt {
    /// Stops polling. A poll in progress completes.
    pub fn halt(&self) {
        self.lock().halted = true;
    }

    /// Resumes polling of all halted tasks.
    pub fn resume(&self) {
        let waiting = {
            let mut state = self.lock();
            state.halted = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Wraps `work` so that it is only polled while the switch is not halted.
    pub fn over<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let this = self.clone();
        CURRENT.scope(self.clone(), async move {
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

/// Wraps a new task in the switch of the current task, which spawns it.
pub(super) fn with_current_halt<F: Future>(task: F) -> impl Future<Output = F::Output> + use<F> {
    match CURRENT.try_with(Clone::clone) {
        Ok(halt) => Either::Left(halt.over(task)),
        Err(_) => Either::Right(task),
    }
}
