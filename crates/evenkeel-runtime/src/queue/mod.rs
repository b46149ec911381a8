//! Which keys are to be worked on, in which order and when.
//!
//! A key waits at most once, is never handed out twice at a time, and when it is added while being worked on it runs
//! again afterwards. Behaviour and metrics are those of client-go's `util/workqueue` with the priorities of
//! controller-runtime's queue.

mod limiter;
mod metrics;
mod state;
#[cfg(test)]
mod tests;

pub use limiter::Backoff;
pub use metrics::Metrics;
pub use state::Place;

use limiter::Limiter;
use metrics::Handles;
use state::{Added, State, Taken};
use std::{
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// How urgent a key is; greater goes first, equals in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(pub i32);

impl Priority {
    /// A fresh change.
    pub const NORMAL: Self = Self(0);
    /// From the initial list or a resync: gives way to fresh changes (controller-runtime's `LowPriority`).
    pub const LOW: Self = Self(-100);
}

/// What is in a queue.
#[derive(Debug, Clone)]
pub struct Look<K> {
    /// Keys that could be handed out.
    pub ready: usize,
    /// Keys that are being worked on.
    pub running: usize,
    /// Keys that become ready at a time.
    pub delayed: usize,
    /// Keys that failed and were not forgotten since.
    pub failing: usize,
    /// The first keys: those worked on, oldest first, ready ones in their order, delayed ones by time.
    pub keys: Vec<(Place, K)>,
}

/// A queue of keys to work on; clones share it.
///
/// ```
/// use evenkeel_runtime::queue::{Priority, Queue};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let queue = Queue::unnamed();
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
    state: Mutex<State<K>>,
    limiter: Mutex<Limiter<K>>,
    /// Somebody may take a key, or has to look at its timer again.
    wake: Notify,
    /// Nothing waits or is worked on any more, perhaps.
    idle: Notify,
    metrics: Option<Handles>,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// A queue whose metrics carry `name`.
    pub fn new(name: &str, metrics: &Metrics) -> Self {
        Self::with_backoff(name, metrics, Backoff::default())
    }

    /// The same whose keys wait like this after a failure.
    pub fn with_backoff(name: &str, metrics: &Metrics, backoff: Backoff) -> Self {
        let queue = Self::with_metrics(Some(metrics.handles(name)), backoff);
        let shared = Arc::downgrade(&queue.shared);
        metrics.observe_running(name, move || {
            let shared = shared.upgrade()?;
            let now = Instant::now();
            Some(lock(&shared.state).running_ages(now))
        });
        queue
    }

    /// A queue without metrics.
    pub fn unnamed() -> Self {
        Self::with_metrics(None, Backoff::default())
    }

    fn with_metrics(metrics: Option<Handles>, backoff: Backoff) -> Self {
        let shared = Shared {
            state: Mutex::new(State::default()),
            limiter: Mutex::new(Limiter::new(backoff)),
            wake: Notify::new(),
            idle: Notify::new(),
            metrics,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a key now. One that waits already keeps its place unless this priority is greater; one that is being worked
    /// on runs again afterwards. Ignored once the queue is shut down.
    pub fn add(&self, key: K, priority: Priority) {
        let added = lock(&self.shared.state).add(key, priority, Instant::now());
        self.added(added);
    }

    /// Adds a key after `delay`; of several delays for one key the earliest counts. Its priority is the one it is being
    /// worked on with, if any.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.delayed(key, delay, None);
    }

    /// As [`Queue::add_after`] with a priority.
    pub fn add_after_with(&self, key: K, delay: Duration, priority: Priority) {
        self.delayed(key, delay, Some(priority));
    }

    /// Adds a key after its back-off: 5 ms doubled with each call since [`Queue::forget`] up to 1000 s, and within ten a
    /// second over all keys with a burst of 100 (client-go's `DefaultTypedControllerRateLimiter`).
    pub fn add_rate_limited(&self, key: K) {
        let delay = lock(&self.shared.limiter).delay(&key, Instant::now());
        self.delayed(key, delay, None);
    }

    /// Forgets how often a key failed.
    pub fn forget(&self, key: &K) {
        lock(&self.shared.limiter).forget(key);
    }

    /// How often [`Queue::add_rate_limited`] was called for a key since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        lock(&self.shared.limiter).failures(key)
    }

    /// Waits for a key and hands it out; `None` when the queue is shut down and nothing waits any more.
    /// Who takes a key calls [`Queue::done`] with it.
    pub async fn next(&self) -> Option<K> {
        loop {
            let wake = self.shared.wake.notified();
            let (promoted, taken, delayed) = {
                let mut state = lock(&self.shared.state);
                let now = Instant::now();
                (state.promote(now), state.take(now), state.has_delayed())
            };
            promoted.into_iter().for_each(|added| self.added(added));
            match taken {
                Taken::Key { key, waited } => {
                    self.measure(|m| m.taken(waited));
                    if delayed {
                        // Somebody else has to watch the time now.
                        self.shared.wake.notify_one();
                    }
                    return Some(key);
                }
                Taken::ShutDown => {
                    // Others wait for the same answer.
                    self.shared.wake.notify_waiters();
                    return None;
                }
                Taken::Later(Some(at)) => {
                    // Whichever comes first; the result does not matter.
                    let _ = tokio::time::timeout_at(at, wake).await;
                }
                Taken::Later(None) => wake.await,
            }
        }
    }

    /// Work on a key has ended.
    pub fn done(&self, key: &K) {
        let done = lock(&self.shared.state).done(key, Instant::now());
        if let Some(worked) = done.worked {
            self.measure(|m| m.done(worked));
        }
        if done.again {
            self.shared.wake.notify_one();
        }
        self.shared.idle.notify_waiters();
    }

    /// Where a key is.
    pub fn place(&self, key: &K) -> Place {
        lock(&self.shared.state).place(key)
    }

    /// What is in it: how many keys in each state, and where the first `most` of each state are.
    pub fn look(&self, most: usize) -> Look<K> {
        let state = lock(&self.shared.state);
        let [ready, running, delayed] = state.counts();
        let keys = state.first(most).into_iter().map(|key| (state.place(&key), key)).collect();
        drop(state);
        let failing = lock(&self.shared.limiter).len();
        Look { ready, running, delayed, failing, keys }
    }

    /// Keys that wait and could be handed out.
    pub fn len(&self) -> usize {
        lock(&self.shared.state).waiting()
    }

    /// Whether no key waits that could be handed out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No key is added any more; those that wait are still handed out, delayed ones are dropped.
    pub fn shut_down(&self) {
        lock(&self.shared.state).shut_down(false);
        self.shared.wake.notify_waiters();
        self.shared.idle.notify_waiters();
    }

    /// As [`Queue::shut_down`], and those that wait are dropped too.
    pub fn shut_down_now(&self) {
        let dropped = lock(&self.shared.state).shut_down(true);
        self.measure(|m| m.dropped(dropped));
        self.shared.wake.notify_waiters();
        self.shared.idle.notify_waiters();
    }

    /// Shuts down and waits until everything that waited was handed out and done.
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        self.drained().await;
    }

    /// Waits until no key waits or is being worked on.
    pub async fn drained(&self) {
        loop {
            let idle = self.shared.idle.notified();
            tokio::pin!(idle);
            // From here on a notification is not missed.
            idle.as_mut().enable();
            if lock(&self.shared.state).is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Whether the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        lock(&self.shared.state).is_shut_down()
    }

    fn delayed(&self, key: K, delay: Duration, priority: Option<Priority>) {
        let now = Instant::now();
        {
            let mut state = lock(&self.shared.state);
            if state.is_shut_down() {
                return;
            }
            self.measure(Handles::retried);
            if !delay.is_zero() {
                state.add_at(key, now + delay, priority);
                drop(state);
                self.shared.wake.notify_one();
                return;
            }
            let priority = priority.unwrap_or_else(|| state.priority_of(&key));
            let added = state.add(key, priority, now);
            drop(state);
            self.added(added);
        }
    }

    fn added(&self, added: Added) {
        if added != Added::Nothing {
            self.measure(Handles::added);
        }
        if added == Added::Waits {
            self.shared.wake.notify_one();
        }
    }

    fn measure(&self, f: impl FnOnce(&Handles)) {
        if let Some(handles) = &self.shared.metrics {
            f(handles);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
