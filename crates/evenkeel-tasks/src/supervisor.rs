//! Supervisor: knows the long-lived tasks that failed, for the program that stops and for its health checks.

use crate::restarts::Restarts;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

tokio::task_local! {
    /// The supervisor of the task that runs now.
    static CURRENT: Supervisor;
}

/// The end of a long-lived task that nobody asked to stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("task {name:?} failed: {reason}")]
pub struct TaskFailure {
    /// Name of the task.
    pub name: Cow<'static, str>,
    /// The panic's message after `panic: `, or that the task returned.
    pub reason: String,
}

/// Failures of the long-lived tasks of a program. Clones share them.
///
/// A task that cannot be restarted and fails stays failed: the program has to stop ([`Supervisor::failed`]). A task that
/// is restarted counts as failed while its backoff is longer than [`TOLERATED_BACKOFF`](crate::TOLERATED_BACKOFF), and then
/// until it has run for [`RESET_DURATION`](crate::RESET_DURATION).
///
/// ```
/// use evenkeel_tasks::{Supervisor, Tasks};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let supervisor = Supervisor::default();
/// let tasks = Tasks::of(&supervisor);
/// tasks.spawn("monitor", async { panic!("no such zone") });
/// let failure = supervisor.failed().await;
/// assert_eq!(failure.to_string(), r#"task "monitor" failed: panic: no such zone"#);
/// assert_eq!(supervisor.check(), Err(failure.to_string()));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Supervisor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The first failure of a task that cannot be restarted.
    failed: watch::Sender<Option<TaskFailure>>,
    /// The tasks that were restarted and have not ended, by the number of their start.
    restarted: Mutex<BTreeMap<u64, Restarted>>,
}

#[derive(Debug)]
struct Restarted {
    restarts: Restarts,
    /// Why it ended the last time.
    failure: TaskFailure,
}

impl Default for Supervisor {
    fn default() -> Self {
        let (failed, _) = watch::channel(None);
        Self { inner: Arc::new(Inner { failed, restarted: Mutex::default() }) }
    }
}

impl Supervisor {
    /// Returns the supervisor of the task that runs now; a new one outside of tasks that [`Tasks`](crate::Tasks) started.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Makes this the current supervisor of a future.
    pub(crate) fn over<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), task)
    }

    /// Waits for the failure of a task that cannot be restarted.
    pub async fn failed(&self) -> TaskFailure {
        let mut failed = self.inner.failed.subscribe();
        match failed.wait_for(Option::is_some).await.map(|failure| failure.clone()) {
            Ok(Some(failure)) => failure,
            // The sender lives as long as this supervisor.
            _ => std::future::pending().await,
        }
    }

    /// Returns the tasks that health checks are to fail for: the first that cannot be restarted, and those whose restarts
    /// keep failing.
    pub fn failures(&self) -> Vec<TaskFailure> {
        let now = now();
        let mut failures: Vec<TaskFailure> = self.inner.failed.borrow().iter().cloned().collect();
        let restarted = self.restarted();
        let failing = restarted.values().filter(|task| task.restarts.is_failing(now));
        failures.extend(failing.map(|task| task.failure.clone()));
        failures
    }

    /// A health check: fails with the names of the failed tasks and their reasons.
    ///
    /// # Errors
    /// When there are [failures](Supervisor::failures).
    pub fn check(&self) -> Result<(), String> {
        let failures: Vec<String> = self.failures().iter().map(ToString::to_string).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// Records the end of a task, or of a thread beside the tasks, that cannot be restarted.
    pub fn record(&self, failure: TaskFailure) {
        self.inner.failed.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }

    /// Records the failure of a task that is restarted; returns how long to wait before.
    pub(crate) fn restart(&self, id: u64, failure: TaskFailure) -> Duration {
        let mut restarted = self.restarted();
        let task = restarted.entry(id).or_insert_with(|| Restarted {
            restarts: Restarts::default(),
            failure: failure.clone(),
        });
        task.failure = failure;
        task.restarts.failed(now())
    }

    /// Removes a task that was stopped.
    pub(crate) fn forget(&self, id: u64) {
        self.restarted().remove(&id);
    }

    fn restarted(&self) -> MutexGuard<'_, BTreeMap<u64, Restarted>> {
        self.inner.restarted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "the time that timers follow, for backoff")]
fn now() -> Instant {
    Instant::now()
}
