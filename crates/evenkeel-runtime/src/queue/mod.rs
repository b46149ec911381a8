//! Workqueue of keys: deduplicated, prioritized, delayed and rate limited.
//!
//! A key is in the queue at most once, and only one worker processes it at a time. A key that is added during its processing is
//! processed again afterwards. Behavior and metrics equal those of client-go's `util/workqueue`, priorities those of
//! controller-runtime's priority queue.

mod limiter;
mod metrics;
mod state;
#[cfg(test)]
mod tests;

pub use limiter::{Backoff, BackoffLimiter, Bucket, RateLimiter};
pub use metrics::Metrics;
pub use state::KeyStatus;

use crate::{clock::Clock, tasks::catch_panic};
use limiter::Limiter;
use metrics::QueueMetrics;
use state::{Added, State, Taken};
use std::{
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// Delay that replaces a delay beyond the range of the clock.
const MAX_DELAY: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Priority of a key. Keys with greater values are processed first, keys with equal values in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(pub i32);

impl Priority {
    /// Priority of a key enqueued by a change.
    pub const NORMAL: Self = Self(0);
    /// Priority of a key enqueued by the initial list or a resync (controller-runtime's `LowPriority`).
    pub const LOW: Self = Self(-100);
}

/// Snapshot of a queue's keys, for introspection.
#[derive(Debug, Clone)]
pub struct QueueSnapshot<K> {
    /// Number of keys that wait for a worker.
    pub ready: usize,
    /// Number of keys that workers are processing.
    pub running: usize,
    /// Number of keys that become ready at a later time.
    pub delayed: usize,
    /// Number of keys that failed and were not forgotten since.
    pub failing: usize,
    /// The first keys of each state: keys in process by age, ready keys in order, delayed keys by time.
    pub keys: Vec<(KeyStatus, K)>,
}

/// Workqueue of keys. Clones share it.
///
/// ```
/// use evenkeel_runtime::{clock::Clock, queue::{Priority, Queue}};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let queue = Queue::unnamed(&Clock::system());
/// queue.add("slow", Priority::LOW);
/// queue.add("fresh", Priority::NORMAL);
/// queue.add("fresh", Priority::NORMAL); // waits already
/// assert_eq!(queue.next().await, Some("fresh"));
/// queue.done(&"fresh");
/// assert_eq!(queue.next().await, Some("slow"));
/// # });
/// ```
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<K> {
    clock: Clock,
    state: Mutex<State<K>>,
    limiter: Mutex<Limiter<K>>,
    /// Wakes a worker: a key is ready, or the time of the next delayed key has changed.
    wake: Notify,
    /// Wakes tasks that wait for the queue to drain, so that they check again.
    idle: Notify,
    metrics: Option<QueueMetrics>,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// Creates a queue whose metrics have the label `name`. Delays follow `clock`.
    pub fn new(name: &str, metrics: &Metrics, clock: &Clock) -> Self {
        Self::with_backoff(name, metrics, Backoff::default(), clock)
    }

    /// Like [`Queue::new`], with a backoff policy.
    pub fn with_backoff(name: &str, metrics: &Metrics, backoff: Backoff, clock: &Clock) -> Self {
        let limiter = Limiter::Backoff(BackoffLimiter::new(backoff));
        Self::with_limiter(name, metrics, limiter, clock)
    }

    /// Like [`Queue::new`], with another rate limiter.
    pub fn with_rate_limiter(
        name: &str,
        metrics: &Metrics,
        limiter: Box<dyn RateLimiter<K>>,
        clock: &Clock,
    ) -> Self {
        Self::with_limiter(name, metrics, Limiter::Own(limiter), clock)
    }

    fn with_limiter(name: &str, metrics: &Metrics, limiter: Limiter<K>, clock: &Clock) -> Self {
        let queue = Self::with_metrics(Some(metrics.of_queue(name)), limiter, clock);
        let shared = Arc::downgrade(&queue.shared);
        metrics.observe_running(name, move || {
            let shared = shared.upgrade()?;
            let now = shared.clock.instant();
            Some(lock(&shared.state).running_ages(now))
        });
        let shared = Arc::downgrade(&queue.shared);
        metrics.observe_depths(name, move || Some(lock(&shared.upgrade()?.state).depths()));
        queue
    }

    /// Creates a queue without metrics.
    pub fn unnamed(clock: &Clock) -> Self {
        Self::with_metrics(None, Limiter::Backoff(BackoffLimiter::default()), clock)
    }

    fn with_metrics(metrics: Option<QueueMetrics>, limiter: Limiter<K>, clock: &Clock) -> Self {
        let shared = Shared {
            clock: clock.clone(),
            state: Mutex::new(State::default()),
            limiter: Mutex::new(limiter),
            wake: Notify::new(),
            idle: Notify::new(),
            metrics,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the clock of the delays.
    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Adds a key. A key that already waits keeps its position unless this priority is greater. A key in process is
    /// processed again afterwards. Does nothing after the queue is shut down.
    pub fn add(&self, key: K, priority: Priority) {
        let added = lock(&self.shared.state).add(key, priority, self.shared.clock.instant());
        self.handle_added(added);
    }

    /// Adds a key after `delay`. If several delays are requested for a key, the shortest applies. A key in
    /// process keeps its priority.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_delayed(key, delay, None);
    }

    /// Like [`Queue::add_after`], with a priority.
    pub fn add_after_with_priority(&self, key: K, delay: Duration, priority: Priority) {
        self.add_delayed(key, delay, Some(priority));
    }

    /// Adds a key after the delay of the rate limiter, which by default grows with each call since [`Queue::forget`]. The
    /// default is client-go's `DefaultTypedControllerRateLimiter`; see [`Backoff`]. A key in process keeps its priority.
    pub fn add_rate_limited(&self, key: K) {
        let delay = lock(&self.shared.limiter).when(&key, self.shared.clock.instant());
        self.add_delayed(key, delay, None);
    }

    /// Resets a key's backoff.
    pub fn forget(&self, key: &K) {
        lock(&self.shared.limiter).forget(key);
    }

    /// Returns the number of calls of [`Queue::add_rate_limited`] for a key since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        lock(&self.shared.limiter).as_dyn().num_requeues(key)
    }

    /// Waits for a key to process. Returns `None` when the queue is shut down and empty. The worker calls
    /// [`Queue::done`] with the key.
    #[doc(alias = "Get")]
    pub async fn next(&self) -> Option<K> {
        loop {
            let wake = self.shared.wake.notified();
            let (promoted, taken, delayed) = {
                let mut state = lock(&self.shared.state);
                let now = self.shared.clock.instant();
                (state.promote_due(now), state.take(now), state.has_delayed())
            };
            promoted.into_iter().for_each(|added| self.handle_added(added));
            match taken {
                Taken::Key { key, waited } => {
                    self.measure(|metrics| metrics.record_take(waited));
                    if delayed {
                        // Another worker must now wait for the next delayed key.
                        self.shared.wake.notify_one();
                    }
                    return Some(key);
                }
                Taken::ShutDown => {
                    // The other workers must end, too.
                    self.shared.wake.notify_waiters();
                    return None;
                }
                Taken::Wait(Some(at)) => {
                    // Wait for the time or for a new key, then check both again.
                    let _ = tokio::time::timeout_at(at, wake).await;
                }
                Taken::Wait(None) => wake.await,
            }
        }
    }

    /// Processes a key: awaits `work` and marks the key as processed. If `work` panics, logs the panic and retries the
    /// key with backoff.
    #[doc(alias("RecoverPanic"))]
    pub async fn process(&self, key: &K, work: impl Future<Output = ()>) {
        if let Err(panic) = catch_panic(work).await {
            tracing::error!(panic, "processing of a key panicked; retrying with backoff");
            self.add_rate_limited(key.clone());
        }
        self.done(key);
    }

    /// Marks a key as processed.
    pub fn done(&self, key: &K) {
        let done = lock(&self.shared.state).done(key, self.shared.clock.instant());
        if let Some(worked) = done.worked {
            self.measure(|metrics| metrics.record_done(worked));
        }
        if done.again {
            self.shared.wake.notify_one();
        }
        self.shared.idle.notify_waiters();
    }

    /// Returns since when a key waits or is in process, or until when it is delayed.
    pub fn key_status(&self, key: &K) -> KeyStatus {
        lock(&self.shared.state).key_status(key)
    }

    /// Returns the number of keys in each state, and the first `max_keys` keys of each state.
    pub fn snapshot(&self, max_keys: usize) -> QueueSnapshot<K> {
        let state = lock(&self.shared.state);
        let [ready, running, delayed] = state.counts();
        let keys =
            state.first(max_keys).into_iter().map(|key| (state.key_status(&key), key)).collect();
        drop(state);
        let failing = lock(&self.shared.limiter).as_dyn().failing();
        QueueSnapshot { ready, running, delayed, failing, keys }
    }

    /// Returns the number of keys that wait for a worker.
    pub fn len(&self) -> usize {
        lock(&self.shared.state).waiting()
    }

    /// Returns whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuts the queue down: it accepts no further keys and drops delayed ones. Workers still process waiting keys.
    pub fn shut_down(&self) {
        lock(&self.shared.state).shut_down(false);
        self.shared.wake.notify_waiters();
        self.shared.idle.notify_waiters();
    }

    /// Like [`Queue::shut_down`], but also drops waiting keys.
    pub fn shut_down_now(&self) {
        let dropped = lock(&self.shared.state).shut_down(true);
        self.measure(|metrics| metrics.record_drop(dropped));
        self.shared.wake.notify_waiters();
        self.shared.idle.notify_waiters();
    }

    /// Shuts the queue down and waits until all waiting keys are processed.
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        self.drained().await;
    }

    /// Waits until no key waits or is in process.
    pub async fn drained(&self) {
        loop {
            let idle = self.shared.idle.notified();
            tokio::pin!(idle);
            // Registers for notifications before the check, so that none is missed.
            idle.as_mut().enable();
            if lock(&self.shared.state).is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Returns whether the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        lock(&self.shared.state).is_shut_down()
    }

    /// Adds a key after a delay. Without `priority`, a key in process keeps its priority.
    fn add_delayed(&self, key: K, delay: Duration, priority: Option<Priority>) {
        let now = self.shared.clock.instant();
        {
            let mut state = lock(&self.shared.state);
            if state.is_shut_down() {
                return;
            }
            self.measure(QueueMetrics::record_retry);
            if !delay.is_zero() {
                // An object may specify a delay beyond the range of the clock.
                let due = now.checked_add(delay).unwrap_or(now + MAX_DELAY);
                state.add_at(key, due, priority);
                drop(state);
                self.shared.wake.notify_one();
                return;
            }
            let priority = priority.unwrap_or_else(|| state.priority_of(&key));
            let added = state.add(key, priority, now);
            drop(state);
            self.handle_added(added);
        }
    }

    /// Counts an added key, and wakes a worker if the key is ready.
    fn handle_added(&self, added: Added) {
        if added != Added::Unchanged {
            self.measure(QueueMetrics::record_add);
        }
        if added == Added::Ready {
            self.shared.wake.notify_one();
        }
    }

    fn measure(&self, record: impl FnOnce(&QueueMetrics)) {
        if let Some(metrics) = &self.shared.metrics {
            record(metrics);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
