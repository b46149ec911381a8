//! Task groups. Every task of a program has a name, stops with a token, is joined, and is supervised.
//!
//! | a task that | is started with | after a panic or an early return |
//! |---|---|---|
//! | works until it is stopped, and can restart | [`Tasks::spawn_restarting`] | is restarted with backoff |
//! | works until it is stopped | [`Tasks::spawn`], [`Tasks::spawn_until_cancelled`] | the program stops gracefully |
//! | ends by itself | [`Tasks::spawn_finite`] | a panic is logged |
//!
//! [`run_busy`] runs work that keeps a core busy for long. [`catch_panic`] guards work on a single item, such as a key of a queue: a panic only fails that item.

mod busy;
mod halt;
mod restarts;
mod supervisor;
pub mod watch;

pub use busy::run_busy;
pub use halt::Halt;
pub use restarts::{INITIAL_BACKOFF, MAX_BACKOFF, RESET_DURATION, TOLERATED_BACKOFF};
pub use supervisor::{Supervisor, TaskFailure};

use futures::{FutureExt, future::BoxFuture};
use std::{
    any::Any,
    borrow::Cow,
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// A group of tasks that stop together and are joined together. Clones share the group.
///
/// ```
/// use evenkeel_tasks::Tasks;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let tasks = Tasks::new();
/// let token = tasks.token();
/// tasks.spawn("ticker", async move { token.cancelled().await });
/// let late = tasks.shut_down(Duration::from_secs(10)).await;
/// assert!(late.is_empty());
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Tasks {
    group: Arc<Group>,
}

/// State of a task group.
#[derive(Debug)]
struct Group {
    token: CancellationToken,
    supervisor: Supervisor,
    running: Mutex<Running>,
    /// Number of running tasks, for [`Tasks::join`].
    count: watch::Sender<usize>,
}

/// All groups of the process, which [`running_by_name`] counts.
static GROUPS: Mutex<Vec<Weak<Group>>> = Mutex::new(Vec::new());

/// Returns the number of running tasks of the process, by name.
pub fn running_by_name() -> BTreeMap<Cow<'static, str>, usize> {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut names = BTreeMap::new();
    for group in groups.iter().filter_map(Weak::upgrade) {
        for task in group.lock().tasks.values() {
            *names.entry(task.name.clone()).or_default() += 1;
        }
    }
    names
}

/// Id of the next task, unique in the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Creates the future of a restarted task, once for each start.
type Factory = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

/// Running tasks of a group.
#[derive(Debug, Default)]
struct Running {
    /// Tasks that have not ended, by id.
    tasks: BTreeMap<u64, RunningTask>,
}

/// Task that has not ended.
#[derive(Debug)]
struct RunningTask {
    name: Cow<'static, str>,
    /// `None` until the task is spawned.
    abort_handle: Option<AbortHandle>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// Creates a group with its own token, under the current task's supervisor. Outside of a task the group
    /// gets a new supervisor, and the caller has to watch [`Tasks::supervisor`].
    pub fn new() -> Self {
        Self::under(CancellationToken::new())
    }

    /// Creates a group that stops when `token` is cancelled, with a supervisor as in [`Tasks::new`].
    pub fn under(token: CancellationToken) -> Self {
        Self::new_group(token, Supervisor::current())
    }

    /// Creates a group with its own token, under this supervisor.
    pub fn of(supervisor: &Supervisor) -> Self {
        Self::new_group(CancellationToken::new(), supervisor.clone())
    }

    fn new_group(token: CancellationToken, supervisor: Supervisor) -> Self {
        let (count, _) = watch::channel(0);
        let group = Arc::new(Group { token, supervisor, running: Mutex::default(), count });
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(&group));
        Self { group }
    }

    /// Creates a group under the same supervisor that also stops when this group stops. The caller joins it.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::new_group(self.group.token.child_token(), self.group.supervisor.clone())
    }

    /// Returns the supervisor of the group's tasks. Groups that these tasks create use it too.
    pub fn supervisor(&self) -> &Supervisor {
        &self.group.supervisor
    }

    /// Returns the token whose cancellation stops the tasks.
    pub fn token(&self) -> CancellationToken {
        self.group.token.clone()
    }

    /// Starts a task that runs until the group stops and cannot be restarted. The task has to watch
    /// [`Tasks::token`] itself. If it panics or returns earlier, the [`Supervisor`] records a failure, and the
    /// program has to stop.
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (name, group, task) = (name.into(), Arc::clone(&self.group), Box::pin(task));
        let watched = {
            let name = name.clone();
            async move {
                let Some(failure) = group.run_to_failure(name.clone(), task).await else { return };
                tracing::error!(task = %name, reason = failure.reason, "task failed and cannot be restarted");
                group.supervisor.record(failure);
            }
        };
        self.start(next_id(), name, Box::pin(watched));
    }

    /// Like [`Tasks::spawn`], but drops the task at its next await when the group stops.
    pub fn spawn_until_cancelled<F>(&self, name: impl Into<Cow<'static, str>>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (token, task) = (self.token(), Box::pin(task));
        self.spawn(name, async move {
            token.run_until_cancelled_owned(task).await;
        });
    }

    /// Starts a task that ends by itself. A panic is logged with the task's name and ends only this task.
    pub fn spawn_finite<F>(&self, name: impl Into<Cow<'static, str>>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (name, task) = (name.into(), Box::pin(task));
        let logged = {
            let name = name.clone();
            async move {
                if let Err(panic) = catch_panic(task).await {
                    tracing::error!(task = %name, panic, "task panicked");
                }
            }
        };
        self.start(next_id(), name, Box::pin(logged));
    }

    /// Starts a task that runs until the group stops. If it panics or returns earlier, `factory` makes a new
    /// future after a backoff. The task has to watch [`Tasks::token`] itself. State that the
    /// next future reads must be valid wherever a future panics.
    pub fn spawn_restarting<F, Fut>(&self, name: impl Into<Cow<'static, str>>, mut factory: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.start_restarting(name.into(), self.token(), Box::new(move || Box::pin(factory())));
    }

    /// Like [`Tasks::spawn_restarting`], but drops the future at its next await when the group stops.
    pub fn spawn_restarting_until_cancelled<F, Fut>(
        &self,
        name: impl Into<Cow<'static, str>>,
        factory: F,
    ) where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.spawn_restarting_until(name, &self.token(), factory);
    }

    /// Like [`Tasks::spawn_restarting_until_cancelled`], but the task also ends when `stop` is cancelled. The caller
    /// may cancel `stop`, and the task may cancel it when its work is done.
    pub fn spawn_restarting_until<F, Fut>(
        &self,
        name: impl Into<Cow<'static, str>>,
        stop: &CancellationToken,
        mut factory: F,
    ) where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (token, stop) = (self.token(), stop.clone());
        let stop_restarts = stop.clone();
        let factory: Factory = Box::new(move || {
            let (token, stop, task) = (token.clone(), stop.clone(), Box::pin(factory()));
            Box::pin(async move {
                stop.run_until_cancelled(token.run_until_cancelled(task)).await;
            })
        });
        self.start_restarting(name.into(), stop_restarts, factory);
    }

    /// Starts a task that is restarted after failures, until `stop` is cancelled or the group stops.
    fn start_restarting(
        &self,
        name: Cow<'static, str>,
        stop: CancellationToken,
        mut factory: Factory,
    ) {
        let (id, group) = (next_id(), Arc::clone(&self.group));
        let restarted = {
            let name = name.clone();
            async move {
                // Call the factory inside the guarded future, because it may panic too.
                while let Some(failure) =
                    group.run_to_failure(name.clone(), async { factory().await }).await
                    && !stop.is_cancelled()
                {
                    let reason = failure.reason.clone();
                    let backoff = group.supervisor.record_restart(id, failure);
                    tracing::error!(task = %name, reason, ?backoff, "task failed and will be restarted");
                    let wait = group.token.run_until_cancelled(tokio::time::sleep(backoff));
                    let waited = stop.run_until_cancelled(wait).await.flatten();
                    // `None` means that one of the tokens was cancelled.
                    if waited.is_none() {
                        return;
                    }
                }
            }
        };
        self.start(id, name, Box::pin(restarted));
    }

    /// Spawns a task. The future is boxed, because each wrapper around a future doubles its size, and generic
    /// code is compiled once per task.
    #[expect(clippy::disallowed_methods, reason = "the one place that starts tasks")]
    fn start(&self, id: u64, name: Cow<'static, str>, task: BoxFuture<'static, ()>) {
        let span = tracing::debug_span!("task", name = %name);
        self.group.add(id, name);
        let guard = RunningGuard { group: Arc::clone(&self.group), id };
        let wrapped = async move {
            // The guard is dropped however the task ends, also by an abort.
            let _guard = guard;
            task.await;
        };
        let supervised = self.group.supervisor.scope(wrapped.instrument(span));
        let handle = tokio::spawn(halt::with_current_halt(supervised));
        self.group.set_abort_handle(id, handle.abort_handle());
    }

    /// Returns the names of the tasks that have not ended, oldest first.
    pub fn running(&self) -> Vec<Cow<'static, str>> {
        self.group.lock().tasks.values().map(|task| task.name.clone()).collect()
    }

    /// Waits until every task has ended.
    pub async fn join(&self) {
        let mut count = self.group.count.subscribe();
        // The wait cannot fail, because the group owns the sender.
        let _ = count.wait_for(|n| *n == 0).await;
    }

    /// Stops the tasks, waits up to `deadline`, and aborts those that have not ended by then. Returns the names
    /// of the aborted tasks.
    pub async fn shut_down(&self, deadline: Duration) -> Vec<Cow<'static, str>> {
        self.group.token.cancel();
        if tokio::time::timeout(deadline, self.join()).await.is_ok() {
            return Vec::new();
        }
        let late = self.running();
        self.abort();
        tracing::warn!(tasks = ?late, "tasks did not stop in time and were aborted");
        late
    }

    /// Returns a guard that [aborts](Tasks::abort) the tasks when it is dropped, so that they do not outlive a future which is
    /// aborted itself.
    pub fn abort_on_drop(&self) -> AbortOnDrop {
        AbortOnDrop(self.clone())
    }

    /// Stops the tasks and aborts each at its next await, without waiting for them.
    pub fn abort(&self) {
        self.group.token.cancel();
        for task in self.group.lock().tasks.values() {
            if let Some(handle) = &task.abort_handle {
                handle.abort();
            }
        }
    }
}

/// Aborts the tasks of a group when it is dropped. See [`Tasks::abort_on_drop`].
#[derive(Debug)]
#[must_use = "tasks are aborted when it is dropped"]
pub struct AbortOnDrop(Tasks);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task that should run until the group stops. Returns a failure if it panics or returns earlier.
    async fn run_to_failure(
        &self,
        name: Cow<'static, str>,
        task: impl Future<Output = ()>,
    ) -> Option<TaskFailure> {
        let reason = match catch_panic(task).await {
            Ok(()) if self.token.is_cancelled() => return None,
            Ok(()) => "returned before it was stopped".to_owned(),
            Err(panic) => format!("panic: {panic}"),
        };
        Some(TaskFailure { name, reason })
    }

    fn add(&self, id: u64, name: Cow<'static, str>) {
        let mut running = self.lock();
        running.tasks.insert(id, RunningTask { name, abort_handle: None });
        self.count.send_replace(running.tasks.len());
    }

    fn set_abort_handle(&self, id: u64, handle: AbortHandle) {
        // A task that has ended already is no longer in the map.
        if let Some(task) = self.lock().tasks.get_mut(&id) {
            task.abort_handle = Some(handle);
        }
    }
}

/// Guard that removes a task from its group when the task ends.
struct RunningGuard {
    group: Arc<Group>,
    id: u64,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.group.supervisor.forget(self.id);
        let mut running = self.group.lock();
        running.tasks.remove(&self.id);
        self.group.count.send_replace(running.tasks.len());
    }
}

/// Awaits a future and catches its panic. State that the future shares must be valid at every point where the future
/// can panic.
///
/// # Errors
/// Returns the message of the panic.
#[doc(alias("catch_unwind", "HandleCrash"))]
pub async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.map_err(|panic| panic_text(&*panic).to_owned())
}

/// Calls a function and catches its panic, like [`catch_panic`].
///
/// # Errors
/// Returns the message of the panic.
pub fn catch_call_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    let ended = std::panic::catch_unwind(AssertUnwindSafe(call));
    ended.map_err(|panic| panic_text(&*panic).to_owned())
}

/// Returns the message of a caught panic, for a log line.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shut_down_stops_and_joins_all_tasks() {
        let tasks = Tasks::new();
        for name in ["a", "b"] {
            tasks.spawn_until_cancelled(name, std::future::pending());
        }
        assert_eq!(tasks.running(), ["a", "b"]);
        assert!(["a", "b"].iter().all(|name| running_by_name().contains_key(*name)));
        assert!(tasks.shut_down(Duration::from_secs(1)).await.is_empty());
        assert!(tasks.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_stop_is_aborted_and_named() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", std::future::pending());
        assert_eq!(tasks.shut_down(Duration::from_secs(5)).await, ["deaf"]);
        tasks.join().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_only_its_task() {
        let tasks = Tasks::new();
        let (tx, rx) = tokio::sync::oneshot::channel();
        tasks.spawn_finite("bad", async { panic!("deliberate") });
        tasks.spawn_finite("good", async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = tx.send(());
        });
        rx.await.unwrap();
        tasks.join().await;
        assert_eq!(tasks.supervisor().failures(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_returns_early_has_failed() {
        let tasks = Tasks::new();
        tasks.spawn("watch", async {});
        let failure = tasks.supervisor().failed().await;
        assert_eq!(failure.to_string(), r#"task "watch" failed: returned before it was stopped"#);
        // A later failure does not replace the first failure, which stopped the program.
        tasks.spawn("other", async { panic!("late") });
        tasks.join().await;
        assert_eq!(tasks.supervisor().failures(), [failure]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_is_restarted_with_backoff_and_fails_health_checks_while_it_keeps_failing() {
        let (tasks, (run, mut runs)) = (Tasks::new(), tokio::sync::mpsc::unbounded_channel());
        let now = || tokio::time::sleep(Duration::ZERO).deadline();
        let start = now();
        tasks.spawn_restarting_until_cancelled("keeper", move || {
            let run = run.clone();
            async move {
                let _ = run.send(now() - start);
                panic!("no reason")
            }
        });
        for at in [0, 1, 3, 7, 15] {
            assert_eq!(runs.recv().await.unwrap().as_secs(), at);
            assert_eq!(tasks.supervisor().check(), Ok(()));
        }
        // The sixth failure in a row has a backoff of 32 s, more than the tolerated 20 s.
        assert_eq!(runs.recv().await.unwrap().as_secs(), 31);
        let failed = Err(r#"task "keeper" failed: panic: no reason"#.to_owned());
        assert_eq!(tasks.supervisor().check(), failed);
        assert!(
            tasks.shut_down(Duration::from_secs(1)).await.is_empty(),
            "a task in its backoff stops at once"
        );
        assert_eq!(tasks.supervisor().check(), Ok(()), "a stopped task does not fail the check");
    }

    #[tokio::test(start_paused = true)]
    async fn groups_created_by_a_task_have_its_supervisor() {
        let outer = Tasks::new();
        outer.spawn_until_cancelled("program", async {
            let inner = Tasks::new();
            inner.spawn("worker", async { panic!("deep") });
            std::future::pending::<()>().await;
        });
        assert_eq!(outer.supervisor().failed().await.name, "worker");
        outer.shut_down(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_halted_future_is_not_polled_until_it_resumes() {
        let (tasks, halt) = (Tasks::new(), Halt::default());
        let (inner, (tick, mut ticks)) = (Tasks::new(), tokio::sync::mpsc::unbounded_channel());
        let spawner = inner.clone();
        tasks.spawn(
            "program",
            halt.over(async move {
                spawner.spawn_until_cancelled("ticker", async move {
                    loop {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        let _ = tick.send(());
                    }
                });
            }),
        );
        tokio::time::sleep(Duration::from_millis(3500)).await;
        assert_eq!(ticks.len(), 3);
        halt.halt();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(ticks.len(), 3);
        halt.resume();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(ticks.len(), 5, "the overdue tick, and the next one");
        assert!(ticks.recv().await.is_some());
        assert!(inner.shut_down(Duration::from_secs(1)).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_stops_with_its_parent() {
        let tasks = Tasks::new();
        let child = tasks.child();
        child.spawn_until_cancelled("x", std::future::pending());
        tasks.token().cancel();
        child.join().await;
    }
}
