//! Task groups: every task of a program is named, stopped by a token, and joined.

mod halt;

pub use halt::Halt;

use futures::{FutureExt, future::BoxFuture};
use std::{
    any::Any,
    borrow::Cow,
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::{sync::watch, task::AbortHandle};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// A group of tasks that are stopped and joined together. Clones share the group.
///
/// ```
/// use evenkeel_runtime::tasks::Tasks;
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

#[derive(Debug)]
struct Group {
    token: CancellationToken,
    running: Mutex<Running>,
    count: watch::Sender<usize>,
}

/// All groups of the process, for [`everywhere`].
static GROUPS: Mutex<Vec<Weak<Group>>> = Mutex::new(Vec::new());

/// Counts the running tasks of the process by name.
pub fn everywhere() -> BTreeMap<Cow<'static, str>, usize> {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut names = BTreeMap::new();
    for group in groups.iter().filter_map(Weak::upgrade) {
        for (name, _) in group.lock().tasks.values() {
            *names.entry(name.clone()).or_default() += 1;
        }
    }
    names
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    tasks: BTreeMap<u64, (Cow<'static, str>, Option<AbortHandle>)>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// An empty group with a token of its own.
    pub fn new() -> Self {
        Self::under(CancellationToken::new())
    }

    /// An empty group that stops when `token` is cancelled.
    pub fn under(token: CancellationToken) -> Self {
        let (count, _) = watch::channel(0);
        let group = Arc::new(Group { token, running: Mutex::default(), count });
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(&group));
        Self { group }
    }

    /// A new group that also stops when this one does. The caller joins it.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::under(self.group.token.child_token())
    }

    /// The token that is cancelled to stop the tasks.
    pub fn token(&self) -> CancellationToken {
        self.group.token.clone()
    }

    /// Starts a task, which has to watch [`Tasks::token`] itself. A panic is logged with the task's name and ends only it.
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(name.into(), Box::pin(task));
    }

    /// Boxed, because each layer around a future doubles its size, and generic code is compiled for each task.
    #[expect(clippy::disallowed_methods, reason = "the one place that starts tasks")]
    fn start(&self, name: Cow<'static, str>, task: BoxFuture<'static, ()>) {
        let span = tracing::debug_span!("task", name = %name);
        let id = self.group.add(name.clone());
        let entry = Entry { group: Arc::clone(&self.group), id };
        let wrapped = async move {
            // Dropped when the task ends in any way, an abort included.
            let _entry = entry;
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                tracing::error!(task = %name, panic = panic_text(&*panic), "task panicked");
            }
        };
        let handle = tokio::spawn(halt::inherited(wrapped.instrument(span)));
        self.group.started(id, handle.abort_handle());
    }

    /// Starts a task that is dropped at its next await when the group stops.
    pub fn spawn_until_cancelled<F>(&self, name: impl Into<Cow<'static, str>>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (token, task) = (self.token(), Box::pin(task));
        self.spawn(name, async move {
            token.run_until_cancelled_owned(task).await;
        });
    }

    /// Names of the tasks that have not ended, oldest first.
    pub fn running(&self) -> Vec<Cow<'static, str>> {
        self.group.lock().tasks.values().map(|(name, _)| name.clone()).collect()
    }

    /// Waits until every task has ended.
    pub async fn join(&self) {
        let mut count = self.group.count.subscribe();
        // Waiting cannot fail: the sender lives as long as the group.
        let _ = count.wait_for(|n| *n == 0).await;
    }

    /// Stops the tasks, waits for them, and aborts those that have not ended after `deadline`. Returns the names of the
    /// aborted ones.
    pub async fn shut_down(&self, deadline: Duration) -> Vec<Cow<'static, str>> {
        self.group.token.cancel();
        if tokio::time::timeout(deadline, self.join()).await.is_ok() {
            return Vec::new();
        }
        let late = self.running();
        for (_, handle) in self.group.lock().tasks.values() {
            if let Some(handle) = handle {
                handle.abort();
            }
        }
        tracing::warn!(tasks = ?late, "tasks did not stop in time and were aborted");
        late
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: Cow<'static, str>) -> u64 {
        let mut running = self.lock();
        running.next += 1;
        let id = running.next;
        running.tasks.insert(id, (name, None));
        self.count.send_replace(running.tasks.len());
        id
    }

    fn started(&self, id: u64, handle: AbortHandle) {
        // A task that has ended already is no longer in the map.
        if let Some((_, slot)) = self.lock().tasks.get_mut(&id) {
            *slot = Some(handle);
        }
    }
}

struct Entry {
    group: Arc<Group>,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut running = self.group.lock();
        running.tasks.remove(&self.id);
        self.group.count.send_replace(running.tasks.len());
    }
}

/// The text of a caught panic, for a log line.
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
    async fn stops_and_joins() {
        let tasks = Tasks::new();
        for name in ["a", "b"] {
            tasks.spawn_until_cancelled(name, std::future::pending());
        }
        assert_eq!(tasks.running(), ["a", "b"]);
        assert!(["a", "b"].iter().all(|name| everywhere().contains_key(*name)));
        assert!(tasks.shut_down(Duration::from_secs(1)).await.is_empty());
        assert!(tasks.running().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_will_not_stop_is_aborted_and_named() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", std::future::pending());
        assert_eq!(tasks.shut_down(Duration::from_secs(5)).await, ["deaf"]);
        tasks.join().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_only_its_task() {
        let tasks = Tasks::new();
        let (tx, rx) = tokio::sync::oneshot::channel();
        tasks.spawn("bad", async { panic!("deliberate") });
        tasks.spawn("good", async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = tx.send(());
        });
        rx.await.unwrap();
        tasks.join().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_halted_does_nothing_until_it_resumes() {
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
        assert_eq!(ticks.len(), 5, "one that was due, and the next");
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
