//! State that all wires share, and their requests to the world.

use super::{Log, Part, faults::ArmedFaults};
use evenkeel_api::time::{SignedDuration, Timestamp};
use evenkeel_apiserver::Server;
use evenkeel_runtime::clock::Clock;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};

/// Duration of a pause, a disconnection, or the loss of leases.
pub(super) const OUTAGE: Duration = Duration::from_secs(60);

/// Time for which held or broken watches are stale.
pub(super) const HELD: Duration = Duration::from_secs(10);

/// Time for which reads are stale after a restart: longer than a new leader waits for the old lease.
pub(super) const STALE: Duration = Duration::from_secs(30);

/// Maximum time for a simulation to settle.
const SETTLE_TIMEOUT: SignedDuration = SignedDuration::from_hours(2);

/// Labels of the requests at one instant.
#[derive(Debug, Default)]
struct Labels {
    at: Option<Instant>,
    /// Number of requests by the hash of their equal parts.
    counts: HashMap<u64, u32>,
}

/// Shared state of all wires.
pub(super) struct Network {
    pub(super) server: Server,
    pub(super) clock: Clock,
    pub(super) log: Log,
    pub(super) armed: ArmedFaults,
    /// Maximum latency of a request, and of its response.
    pub(super) latency: Duration,
    /// Time after a restart or an outage in which the world does not count as settled.
    recovery: Duration,
    /// Sender of requests to the world, such as to restart a part.
    calls: mpsc::UnboundedSender<WorldCall>,
    /// Number of calls that the world has not executed.
    open_calls: AtomicU64,
    /// Time of the last restart, and end of the last outage; `None` before the first.
    recovers_from: Mutex<Option<Timestamp>>,
    labels: Mutex<Labels>,
}

impl Network {
    /// Returns a label of a request that no other request has at this instant. `parts` are parts of the request that few
    /// other requests share. They must be equal in each run, unlike generated keys.
    pub(super) fn label(&self, parts: impl Hash) -> u64 {
        let number = {
            let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Some(self.clock.instant());
            if labels.at != now {
                *labels = Labels { at: now, counts: HashMap::new() };
            }
            let count = labels.counts.entry(hash(&parts)).or_default();
            *count += 1;
            *count
        };
        hash((parts, number))
    }

    pub(super) fn new(
        server: Server,
        clock: Clock,
        log: Log,
        latency: Duration,
        recovery: Duration,
        calls: mpsc::UnboundedSender<WorldCall>,
    ) -> Self {
        Self {
            server,
            clock,
            log,
            armed: ArmedFaults::default(),
            latency,
            recovery,
            calls,
            open_calls: AtomicU64::new(0),
            recovers_from: Mutex::new(None),
            labels: Mutex::default(),
        }
    }

    /// Sends a request to the world.
    pub(super) fn call(&self, call: WorldCall) {
        self.open_calls.fetch_add(1, Ordering::Relaxed);
        // The world drops the receiver when the run ends.
        let _ = self.calls.send(call);
    }

    /// Records that the world has executed a call: a part was restarted or reconnected.
    pub(super) fn note_executed(&self) {
        self.open_calls.fetch_sub(1, Ordering::Relaxed);
        self.note_outage(Duration::ZERO);
    }

    /// Records an outage that ends by itself after `duration`.
    pub(super) fn note_outage(&self, duration: Duration) {
        let end = Some(self.clock.now() + duration);
        let mut last = self.recovers_from.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(end);
    }

    /// Returns the remaining time without writes until the world counts as settled. `from` is the start of the wait. Zero means
    /// that the world has settled.
    ///
    /// # Panics
    /// Panics if the wait has lasted two hours.
    pub(super) fn unsettled(&self, from: Timestamp, quiet: Duration) -> Duration {
        let recovers_from = *self.recovers_from.lock().unwrap_or_else(PoisonError::into_inner);
        let recovered = recovers_from.filter(|_| !self.recovery.is_zero());
        let recovered = recovered.map_or(from, |last| last + self.recovery);
        let settled = self.log.last().max(from).max(recovered) + quiet;
        let now = self.clock.now();
        let mut left = Duration::try_from(settled.duration_since(now)).unwrap_or_default();
        if self.open_calls.load(Ordering::Relaxed) > 0 {
            left = left.max(quiet).max(Duration::from_secs(1));
        }
        let busy = !left.is_zero() && now.duration_since(from) >= SETTLE_TIMEOUT;
        assert!(!busy, "still busy after two hours; last:\n{}", self.log.tail(20));
        left
    }
}

/// Waits until a simulation has settled, while [`Simulation::beside`](super::Simulation::beside) lets it run.
#[derive(Clone)]
pub struct Settling(pub(super) Arc<Network>);

impl Settling {
    /// Waits until no part has written anything but leases for `quiet`, and all have recovered.
    ///
    /// # Panics
    /// Panics if that takes more than two hours.
    pub async fn settle(&self, quiet: Duration) {
        let from = self.0.clock.now();
        loop {
            let left = self.0.unsettled(from, quiet);
            if left.is_zero() {
                return;
            }
            self.0.clock.sleep(left).await;
        }
    }
}

/// Request of a wire to the world.
#[derive(Debug)]
pub(super) enum WorldCall {
    /// The part crashed and must be restarted.
    Restart(Part),
    /// The part crashed, and must be restarted with caches that are stale at this revision for a while.
    RestartStale(Part, u64),
    /// The part ended by itself with this error, and must be restarted.
    Ended(Part, String),
    /// The part is paused and must be resumed.
    Resume(Part),
    /// The part is disconnected and must be reconnected.
    Reconnect(Part),
}

/// Hashes a value, in the same way in each run.
fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
