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
use super::integrator::{HistogramReading, TimingHistogram};
use super::queueset::{Dispatched, QueueSet, Queuing, Ticket};
use super::rule::Rule;
use crate::clock::Clock;
use crate::request::{Query, RequestInfo};
use evenkeel_apimachinery::user::User;

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// Bucket bounds of `read_vs_write_current_requests`: the used fraction of the limit.
const READ_VS_WRITE_BUCKETS: [f64; 15] =
    [0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// FlowSchema in effect.
#[derive(Debug)]
pub(super) struct FlowSchema {
    pub(super) name: Box<str>,
    pub(super) rules: Vec<Rule>,
    pub(super) distinguisher: Distinguisher,
    pub(super) level: Arc<PriorityLevel>,
    /// Index of the schema's counters in the level's queue set.
    pub(super) schema_index: usize,
    /// Whether the level has several queues, so that the hash of a flow chooses its queue.
    pub(super) sharded: bool,
    pub(super) schema_uid: HeaderValue,
    pub(super) level_uid: HeaderValue,
}

impl FlowSchema {
    /// Sets the UIDs of FlowSchema and priority level in the response headers.
    pub(super) fn set_uid_headers(&self, headers: &mut HeaderMap) {
        headers.insert(SCHEMA_HEADER, self.schema_uid.clone());
        headers.insert(LEVEL_HEADER, self.level_uid.clone());
    }

    /// Returns the hash of a request's flow: the FlowSchema and the flow distinguisher.
    ///
    /// Upstream: `hashFlowID`, `computeFlowDistinguisher`.
    pub(super) fn flow_hash(&self, request: &RequestDigest<'_>) -> u64 {
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
    /// Seats of a priority level.
    Seats { flow_schema: Arc<FlowSchema>, ticket: Ticket, mutating: bool },
    /// One of the in-flight requests, without priority and fairness.
    Slot { executing: Arc<AtomicUsize> },
}

impl Permit {
    /// Creates the permit of a dispatched request.
    pub(super) fn seats(flow_schema: Arc<FlowSchema>, ticket: Ticket, mutating: bool) -> Self {
        flow_schema.level.shared.count(Phase::Executing, mutating, 1);
        Self(Occupied::Seats { flow_schema, ticket, mutating })
    }

    /// Creates the permit of a request without priority and fairness.
    pub(super) fn slot(executing: Arc<AtomicUsize>) -> Self {
        Self(Occupied::Slot { executing })
    }

    /// Sets the UIDs of FlowSchema and priority level in the response headers.
    pub(crate) fn set_uid_headers(&self, headers: &mut HeaderMap) {
        if let Occupied::Seats { flow_schema, .. } = &self.0 {
            flow_schema.set_uid_headers(headers);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match &self.0 {
            Occupied::Seats { flow_schema, ticket, mutating } => {
                let level = &flow_schema.level;
                level.shared.count(Phase::Executing, *mutating, -1);
                level.update(|state, now| ((), state.queues.finish(now, ticket)));
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
    pub(super) flow_schema: Arc<FlowSchema>,
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

    /// Calls `change` on the state, and sends permits to the requests that it dispatched. Returns its result. Wakes the
    /// task that releases seats if a waiting request needs a timed release.
    pub(super) fn update<T>(
        &self,
        change: impl FnOnce(&mut LevelState, Duration) -> (T, Dispatched<Waiting>),
    ) -> T {
        let (result, next_release) = self.update_and_dispatch(change);
        if next_release.is_some() {
            self.shared.wake.notify_one();
        }
        result
    }

    /// Releases the seats whose additional latency has passed. Returns the time of the next release if requests wait.
    pub(super) fn release_due(&self) -> Option<Duration> {
        self.update_and_dispatch(|state, now| ((), state.queues.release_due(now))).1
    }

    /// Calls `change` and sends permits to the requests that it dispatched. Returns its result and the next time at
    /// which seats must be released for a waiting request.
    fn update_and_dispatch<T>(
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
            let Waiting { flow_schema, mutating, sender } = waiting;
            self.shared.count(Phase::Waiting, mutating, -1);
            // If the client has disconnected, the permit drops here and releases its seats for the next request.
            let _ = sender.send(Permit::seats(flow_schema, ticket, mutating));
        }
        (result, next_release)
    }
}

impl LevelState {
    /// Updates the demand by the observation since the last adjustment. Returns the level as `borrow` reads it.
    pub(super) fn observe(&mut self, now: Duration) -> Borrower {
        let observation = self.queues.stats.demand.reset(now);
        self.demand.update(&observation);
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
        // The ratio metrics of a level without seats divide by a tenth of the server's limit.
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
    /// Counters by phase (waiting, executing), then by kind (read, write).
    counters: [[Mutex<RequestCounter>; 2]; 2],
}

/// Number of read or write requests in one phase, with its ratio to the limit.
#[derive(Debug)]
struct RequestCounter {
    requests: i64,
    ratio: TimingHistogram,
}

/// Phase of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    Waiting,
    Executing,
}

/// Metrics of the read or write requests in one phase.
pub(super) struct CounterReading {
    pub(super) requests: i64,
    /// Time-weighted histogram of the number's ratio to the limit.
    pub(super) ratio: HistogramReading,
}

impl Shared {
    pub(super) fn new(clock: Clock) -> Self {
        let start = clock.instant();
        let counter = || {
            Mutex::new(RequestCounter {
                requests: 0,
                ratio: TimingHistogram::new(&READ_VS_WRITE_BUCKETS, Duration::ZERO),
            })
        };
        let counters = [[counter(), counter()], [counter(), counter()]];
        Self { clock, start, wake: Arc::new(Notify::new()), counters }
    }

    /// Returns the time since the server's start.
    pub(super) fn now(&self) -> Duration {
        self.clock.instant().saturating_duration_since(self.start)
    }

    /// Converts a time since the server's start to an instant.
    pub(super) fn instant(&self, time: Duration) -> Instant {
        self.start + time
    }

    /// Adds `difference` to the number of read or write requests in a phase.
    pub(super) fn count(&self, phase: Phase, mutating: bool, difference: i64) {
        let now = self.now();
        let mut counter = self.counter(phase, mutating);
        counter.requests += difference;
        let requests = counter.requests as f64;
        counter.ratio.set(now, requests);
    }

    /// Sets the limits of waiting and executing requests that the ratios divide by.
    pub(super) fn set_denominators(&self, waiting: usize, executing: usize) {
        let now = self.now();
        for mutating in [false, true] {
            for (phase, limit) in [(Phase::Waiting, waiting), (Phase::Executing, executing)] {
                self.counter(phase, mutating).ratio.set_denominator(now, limit.max(1) as f64);
            }
        }
    }

    /// Returns the metrics of the read or write requests in a phase.
    pub(super) fn read(&self, phase: Phase, mutating: bool) -> CounterReading {
        let now = self.now();
        let mut counter = self.counter(phase, mutating);
        CounterReading { requests: counter.requests, ratio: counter.ratio.read(now) }
    }

    fn counter(&self, phase: Phase, mutating: bool) -> MutexGuard<'_, RequestCounter> {
        let [reads, writes] = match phase {
            Phase::Waiting => &self.counters[0],
            Phase::Executing => &self.counters[1],
        };
        let counter = if mutating { writes } else { reads };
        counter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PriorityLevel {
    /// Sets the maximum number of seats of a request.
    pub(super) fn set_max_seats(&self, seats: u64) {
        self.max_seats.store(seats, Ordering::Relaxed);
    }
}
