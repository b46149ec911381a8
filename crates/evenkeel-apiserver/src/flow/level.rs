//! Priority levels with their requests, the state that all levels share, and the permits of requests.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::allocation::{Borrower, Limits, SeatDemand};
use super::config::{Distinguisher, Level};
use super::dropped::DroppedRequests;
use super::integrator::TimingHistogram;
use super::queueset::{Dispatched, QueueSet, Queuing, Ticket};
use super::rule::Rule;
use crate::clock::Clock;
use crate::request::{Query, RequestInfo};
use evenkeel_apimachinery::user::User;

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// Bucket bounds of `read_vs_write_current_requests`: the used fraction of the limit.
const READ_VS_WRITE: [f64; 15] =
    [0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// FlowSchema in effect.
#[derive(Debug)]
pub(super) struct FlowSchema {
    pub(super) name: Box<str>,
    pub(super) rules: Vec<Rule>,
    pub(super) distinguisher: Distinguisher,
    pub(super) level: Arc<PriorityLevel>,
    /// Index of the schema's counters in the level.
    pub(super) flow: usize,
    /// Whether the level has several queues, which keep flows apart.
    pub(super) sharded: bool,
    /// UIDs of the FlowSchema and of the priority level.
    pub(super) uids: [HeaderValue; 2],
}

impl FlowSchema {
    /// Sets the UIDs of FlowSchema and priority level in the response headers.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        let [schema, level] = self.uids.clone();
        headers.insert(SCHEMA_HEADER, schema);
        headers.insert(LEVEL_HEADER, level);
    }

    /// Returns the hash of a request's flow.
    ///
    /// Upstream: `hashFlowID`, `computeFlowDistinguisher`.
    pub(super) fn hash(&self, request: &RequestDigest<'_>) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        if !self.sharded {
            return 0;
        }
        let distinguisher = match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &*request.user.name,
            Distinguisher::Namespace => request.info.namespace,
        };
        let mut hasher = DefaultHasher::new();
        (&*self.name, distinguisher).hash(&mut hasher);
        hasher.finish()
    }
}

/// Attributes of a request that determine its FlowSchema.
#[derive(Clone, Copy)]
pub(crate) struct RequestDigest<'a> {
    pub(crate) user: &'a User,
    pub(crate) info: &'a RequestInfo<'a>,
    pub(crate) path: &'a str,
    pub(crate) query: &'a Query,
}

impl RequestDigest<'_> {
    /// Returns whether the request counts as a write.
    pub(super) fn is_mutating(&self) -> bool {
        !matches!(self.info.verb, "get" | "list" | "watch")
    }
}

/// Seats of a request. The drop releases them when the request ends, its client disconnects, or its handler panics.
#[derive(Debug)]
pub(crate) struct Permit(Occupied);

/// Resources that a permit releases.
#[derive(Debug)]
enum Occupied {
    Seats { class: Arc<FlowSchema>, ticket: Ticket, mutating: bool },
    Slot { executing: Arc<AtomicUsize> },
}

impl Permit {
    /// Creates the permit of a dispatched request.
    pub(super) fn seats(class: Arc<FlowSchema>, ticket: Ticket, mutating: bool) -> Self {
        class.level.shared.count(Phase::Executing, mutating, 1);
        Self(Occupied::Seats { class, ticket, mutating })
    }

    /// Creates the permit of a request without priority and fairness.
    pub(super) fn slot(executing: Arc<AtomicUsize>) -> Self {
        Self(Occupied::Slot { executing })
    }

    /// Sets the UIDs of FlowSchema and priority level in the response headers.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if let Occupied::Seats { class, .. } = &self.0 {
            class.mark(headers);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match &self.0 {
            Occupied::Seats { class, ticket, mutating } => {
                let level = &class.level;
                level.shared.count(Phase::Executing, *mutating, -1);
                level.with(|state, now| ((), state.queues.finish(now, ticket)));
            }
            Occupied::Slot { executing } => {
                executing.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Priority level with its requests.
#[derive(Debug)]
pub(super) struct PriorityLevel {
    pub(super) name: Box<str>,
    pub(super) shared: Arc<Shared>,
    /// Maximum number of seats of a request; 0 for the estimator's own limit.
    pub(super) max_seats: AtomicU64,
    state: Mutex<LevelState>,
}

/// Mutable state of a priority level.
#[derive(Debug)]
pub(super) struct LevelState {
    pub(super) queues: QueueSet<Waiting>,
    pub(super) config: Level,
    pub(super) limits: Limits,
    pub(super) demand: SeatDemand,
    /// Current limit of the seats in use (CurrentCL).
    pub(super) current: usize,
    /// Target of seats at the last adjustment.
    pub(super) target: f64,
    /// Whether the level's object is deleted. The limiter then drops the level after its last request.
    pub(super) quiescing: bool,
    pub(super) dropped: DroppedRequests,
}

/// Waiting request in a queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) class: Arc<FlowSchema>,
    pub(super) mutating: bool,
    pub(super) sender: oneshot::Sender<Permit>,
}

impl PriorityLevel {
    pub(super) fn new(shared: Arc<Shared>, config: Level, limits: Limits, current: usize) -> Self {
        let queues = QueueSet::new(shared.now(), config.queuing, current);
        Self {
            name: config.name.clone(),
            shared,
            max_seats: AtomicU64::new(0),
            state: Mutex::new(LevelState {
                queues,
                config,
                limits,
                demand: SeatDemand::default(),
                current,
                target: 0.0,
                quiescing: false,
                dropped: DroppedRequests::default(),
            }),
        }
    }

    /// Locks the state to read it.
    pub(super) fn lock(&self) -> MutexGuard<'_, LevelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and sends permits to the requests that the change dispatched. Wakes the task that releases
    /// seats if a waiting request needs a timed release.
    pub(super) fn with<T>(
        &self,
        change: impl FnOnce(&mut LevelState, Duration) -> (T, Dispatched<Waiting>),
    ) -> T {
        let (result, next_release) = self.change(change);
        if next_release.is_some() {
            self.shared.wake.notify_one();
        }
        result
    }

    /// Releases seats whose time has passed. Returns the next such time that a waiting request depends on.
    pub(super) fn release_due(&self) -> Option<Duration> {
        self.change(|state, now| ((), state.queues.release_due(now))).1
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut LevelState, Duration) -> (T, Dispatched<Waiting>),
    ) -> (T, Option<Duration>) {
        let now = self.shared.now();
        let (result, dispatched, next_release) = {
            let mut state = self.lock();
            let (result, dispatched) = change(&mut state, now);
            (result, dispatched, state.queues.next_release())
        };
        for (waiting, ticket) in dispatched {
            let Waiting { class, mutating, sender } = waiting;
            self.shared.count(Phase::Waiting, mutating, -1);
            // If the client has disconnected, the permit drops here and releases its seats for the next request.
            let _ = sender.send(Permit::seats(class, ticket, mutating));
        }
        (result, next_release)
    }
}

impl LevelState {
    /// Updates the demand by the observation since the last adjustment. Returns the level as `borrow` reads it.
    pub(super) fn observe(&mut self, now: Duration) -> Borrower {
        let seen = self.queues.stats.demand.reset(now);
        self.demand.update(&seen);
        let exempt = self.config.queuing == Queuing::Exempt;
        let Self { limits, demand, current, .. } = *self;
        let borrower = Borrower { exempt, limits, demand, current };
        self.target = borrower.target();
        borrower
    }

    /// Applies the configuration and a new current limit, and dispatches requests that fit.
    pub(super) fn apply(
        &mut self,
        now: Duration,
        current: usize,
        server_limit: usize,
    ) -> Dispatched<Waiting> {
        self.current = current;
        let denominator = if current > 0 { current } else { (server_limit / 10).max(1) };
        self.queues.configure(now, self.config.queuing, current, denominator)
    }
}

/// State that all levels share.
#[derive(Debug)]
pub(super) struct Shared {
    clock: Clock,
    /// Server start, the origin of all times.
    start: Instant,
    /// Wakes the task that releases seats when their time has passed.
    pub(super) wake: Arc<Notify>,
    kinds: [[Mutex<Kind>; 2]; 2],
}

/// Number of read or write requests in one phase, with its ratio to the limit.
#[derive(Debug)]
struct Kind {
    requests: i64,
    ratio: TimingHistogram,
}

/// Phase of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    Waiting,
    Executing,
}

/// Number of requests of a kind, and the time-weighted histogram of its ratio to the limit: buckets, count and sum.
pub(super) type KindReading = (i64, (Vec<(f64, u64)>, u64, f64));

impl Shared {
    pub(super) fn new(clock: Clock) -> Self {
        let start = clock.instant();
        let kind = || {
            Mutex::new(Kind {
                requests: 0,
                ratio: TimingHistogram::new(&READ_VS_WRITE, Duration::ZERO),
            })
        };
        let kinds = [[kind(), kind()], [kind(), kind()]];
        Self { clock, start, wake: Arc::new(Notify::new()), kinds }
    }

    /// Returns the time since the server's start.
    pub(super) fn now(&self) -> Duration {
        self.clock.instant().saturating_duration_since(self.start)
    }

    /// Converts a time since the server's start to an instant.
    pub(super) fn instant(&self, time: Duration) -> Instant {
        self.start + time
    }

    /// Adds `by` to the number of requests of a kind.
    pub(super) fn count(&self, phase: Phase, mutating: bool, by: i64) {
        let now = self.now();
        let mut kind = self.kind(phase, mutating);
        kind.requests += by;
        let requests = kind.requests as f64;
        kind.ratio.set(now, requests);
    }

    /// Sets the limits that the ratios divide by.
    pub(super) fn set_denominators(&self, waiting: usize, executing: usize) {
        let now = self.now();
        for mutating in [false, true] {
            for (phase, limit) in [(Phase::Waiting, waiting), (Phase::Executing, executing)] {
                self.kind(phase, mutating).ratio.set_denominator(now, limit.max(1) as f64);
            }
        }
    }

    /// Returns the metrics of a kind.
    pub(super) fn read(&self, phase: Phase, mutating: bool) -> KindReading {
        let now = self.now();
        let mut kind = self.kind(phase, mutating);
        (kind.requests, kind.ratio.read(now))
    }

    fn kind(&self, phase: Phase, mutating: bool) -> MutexGuard<'_, Kind> {
        let of_phase = match phase {
            Phase::Waiting => &self.kinds[0],
            Phase::Executing => &self.kinds[1],
        };
        let kind = if mutating { &of_phase[1] } else { &of_phase[0] };
        kind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PriorityLevel {
    /// Sets the maximum number of seats of a request.
    pub(super) fn set_max_seats(&self, seats: u64) {
        self.max_seats.store(seats, Ordering::Relaxed);
    }
}
