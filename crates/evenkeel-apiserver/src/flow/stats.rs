//! Statistics of a priority level and of its FlowSchemas, under upstream's names.

use std::time::Duration;

use super::integrator::{Distribution, Integrator, TimingHistogram};

// Bucket bounds of the histograms.
const WAIT_SECONDS: [f64; 13] =
    [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const QUEUE_LENGTH: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const WATCH_COUNT: [f64; 6] = [0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0];
const ESTIMATED_SEATS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const SEAT_UTILIZATION: [f64; 13] =
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUEST_UTILIZATION: [f64; 10] = [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND: [f64; 12] = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// Reason for the rejection of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The level has no queues and no free seat.
    ConcurrencyLimit,
    /// The chosen queue of the flow's hand is full.
    QueueFull,
    /// The request waited for its time limit, or its client disconnected.
    TimeOut,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub(super) const ALL: [Self; 3] = [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut];

    /// Returns the value of the label `reason`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// Smallest and greatest value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds<T> {
    pub(super) min: T,
    pub(super) max: T,
}

impl<T: Ord + Copy> Bounds<T> {
    /// Extends the bounds to a value.
    pub(super) fn include(&mut self, value: T) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
}

/// Counters of one FlowSchema in a priority level.
#[derive(Debug, Clone)]
pub(super) struct FlowStats {
    pub(super) schema: Box<str>,
    pub(super) rejected: [u64; Reason::ALL.len()],
    pub(super) dispatched: u64,
    pub(super) requests_waiting: usize,
    pub(super) seats_waiting: usize,
    pub(super) requests_executing: usize,
    pub(super) seats_executing: usize,
    /// Dispatch attempts that failed because seats were missing.
    pub(super) no_accommodation: u64,
    pub(super) queue_length: Distribution,
    pub(super) watch_count: Distribution,
    pub(super) estimated_seats: Distribution,
    /// Seconds of waiting before execution.
    pub(super) waited: Distribution,
    /// Seconds of waiting before rejection.
    pub(super) waited_in_vain: Distribution,
    /// Seconds of execution, except watches.
    pub(super) executed: Distribution,
    /// Seconds until a watch was initialized.
    pub(super) watch_initialized: Distribution,
}

impl FlowStats {
    /// Creates counters at zero.
    pub(super) fn new(schema: &str) -> Self {
        Self {
            schema: schema.into(),
            rejected: [0; Reason::ALL.len()],
            dispatched: 0,
            requests_waiting: 0,
            seats_waiting: 0,
            requests_executing: 0,
            seats_executing: 0,
            no_accommodation: 0,
            queue_length: Distribution::new(&QUEUE_LENGTH),
            watch_count: Distribution::new(&WATCH_COUNT),
            estimated_seats: Distribution::new(&ESTIMATED_SEATS),
            waited: Distribution::new(&WAIT_SECONDS),
            waited_in_vain: Distribution::new(&WAIT_SECONDS),
            executed: Distribution::new(&WAIT_SECONDS),
            watch_initialized: Distribution::new(&WAIT_SECONDS),
        }
    }

    /// Counts a rejected request.
    pub(super) fn reject(&mut self, reason: Reason) {
        let index = match reason {
            Reason::ConcurrencyLimit => 0,
            Reason::QueueFull => 1,
            Reason::TimeOut => 2,
        };
        self.rejected[index] += 1;
    }
}

/// Statistics of a priority level over time.
#[derive(Debug, Clone)]
pub(super) struct LevelStats {
    /// Seats in use and seats that waiting requests need.
    pub(super) demand: Integrator,
    /// Demand as a fraction of the level's limit.
    pub(super) demand_ratio: TimingHistogram,
    pub(super) seats_executing: TimingHistogram,
    pub(super) requests_executing: TimingHistogram,
    pub(super) requests_waiting: TimingHistogram,
    /// Readings of the progress meter at the last dispatch, in seat-seconds.
    pub(super) dispatch: DispatchStats,
}

/// Readings at the last dispatch from a queue, in seat-seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DispatchStats {
    /// Progress meter R, the virtual time.
    pub(super) r: f64,
    /// Virtual start of the dispatched request.
    pub(super) latest_s: f64,
    /// Virtual starts of the next request of each queue.
    pub(super) next_s: Bounds<f64>,
    /// The bounds `next_s` with the estimated work in progress subtracted for each queue.
    pub(super) discounted_s: Bounds<f64>,
}

impl LevelStats {
    /// Creates statistics that begin at `now`.
    pub(super) fn new(now: Duration) -> Self {
        let mut demand = Integrator::default();
        demand.set(now, 0.0);
        Self {
            demand,
            demand_ratio: TimingHistogram::new(&DEMAND, now),
            seats_executing: TimingHistogram::new(&SEAT_UTILIZATION, now),
            requests_executing: TimingHistogram::new(&REQUEST_UTILIZATION, now),
            requests_waiting: TimingHistogram::new(&REQUEST_UTILIZATION, now),
            dispatch: DispatchStats::default(),
        }
    }
}
