//! Supervisor: collects the failures of long-lived tasks. The program stops on them or fails its health check.

use crate::restarts::Restarts;
use crate::watch;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

tokio::task_local! {
    /// The supervisor of the current task.
    static CURRENT: Supervisor;
}

/// Failure of a long-lived task: it panicked, or it returned before it was stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("task {name:?} failed: {reason}")]
pub struct TaskFailure {
    /// Name of the task.
    pub name: Cow<'static, str>,
    /// `panic: ` and the panic's message, or `returned before it was stopped`.
    pub reason: String,
}

/// Collects the failures of a program's long-lived tasks. Clones share one collection.
///
/// If a task that cannot be restarted fails, it stays failed, and the program has to stop
/// ([`Supervisor::failed`]). A restarted task counts as failed once its backoff reaches
/// [`TOLERATED_BACKOFF`](crate::TOLERATED_BACKOFF). It recovers when it has run for
/// [`RESET_DURATION`](crate::RESET_DURATION).
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

/// State that the clones of the supervisor share.
#[derive(Debug)]
struct Inner {
    /// The first failure of a task that cannot be restarted.
    first_failure: watch::Sender<Option<TaskFailure>>,
    /// The tasks that were restarted and have not ended, by task id.
    restarted: Mutex<BTreeMap<u64, RestartedTask>>,
}

/// Task that was restarted, with its last failure.
#[derive(Debug)]
struct RestartedTask {
    restarts: Restarts,
    /// The task's last failure.
    failure: TaskFailure,
}

impl Default for Supervisor {
    fn default() -> Self {
        let (first_failure, _) = watch::channel(None);
        Self { inner: Arc::new(Inner { first_failure, restarted: Mutex::default() }) }
    }
}

impl Supervisor {
    /// Returns the supervisor of the current task. Outside of [`Tasks`](crate::Tasks) it returns a new one.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Makes this the current supervisor of a future.
    pub(crate) fn scope<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), task)
    }

    /// Waits until a task that cannot be restarted fails.
    pub async fn failed(&self) -> TaskFailure {
        let mut failed = self.inner.first_failure.subscribe();
        match failed.wait_for(Option::is_some).await.map(|failure| failure.clone()) {
            Ok(Some(failure)) => failure,
            // This supervisor owns the sender, so the wait does not fail.
            _ => std::future::pending().await,
        }
    }

    /// Returns the failures for health checks: the first of a task that cannot be restarted, and those of tasks
    /// whose restarts keep failing.
    pub fn failures(&self) -> Vec<TaskFailure> {
        let now = now();
        let mut failures: Vec<TaskFailure> =
            self.inner.first_failure.borrow().iter().cloned().collect();
        let restarted = self.lock_restarted();
        let failing = restarted.values().filter(|task| task.restarts.is_failing(now));
        failures.extend(failing.map(|task| task.failure.clone()));
        failures
    }

    /// Checks the health: fails with the names of the failed tasks and the reasons.
    ///
    /// # Errors
    /// Fails if there are [failures](Supervisor::failures).
    pub fn check(&self) -> Result<(), String> {
        let failures: Vec<String> = self.failures().iter().map(ToString::to_string).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// Records the failure of a task or thread that cannot be restarted. Only the first such failure is kept.
    pub fn record(&self, failure: TaskFailure) {
        self.inner.first_failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }

    /// Records the failure of a restarted task and returns the backoff before the restart.
    pub(crate) fn record_restart(&self, id: u64, failure: TaskFailure) -> Duration {
        let mut restarted = self.lock_restarted();
        let mut restarts = restarted.remove(&id).map(|task| task.restarts).unwrap_or_default();
        let backoff = restarts.record_failure(now());
        restarted.insert(id, RestartedTask { restarts, failure });
        backoff
    }

    /// Removes a task that has ended.
    pub(crate) fn forget(&self, id: u64) {
        self.lock_restarted().remove(&id);
    }

    fn lock_restarted(&self) -> MutexGuard<'_, BTreeMap<u64, RestartedTask>> {
        self.inner.restarted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "tokio's clock, which tests can pause")]
fn now() -> Instant {
    Instant::now()
}
