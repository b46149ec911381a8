//! Queues of one priority level: decides which requests execute, which ones wait, and which one is dispatched next.
//!
//! The queue set is a pure state machine with time as an argument. Each waiting request has a waiter `W`; a dispatch
//! returns it with the request's ticket.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A level without queues executes requests while it has seats and rejects the rest; an exempt level executes all | `start` |
//! | Shuffle sharding: a request joins the queue with the least work in its flow's hand | `shuffle_shard` |
//! | A request is rejected when its queue is full and no seat is free | `start` |
//! | Fair queuing: the next request is the one that would finish first in virtual time | `find_dispatch_queue` |
//! | Virtual time advances as if all busy queues shared the seats evenly | `sync_time` |
//! | A finished request corrects the virtual start of its queue by its true duration | `finish` |
//! | A write keeps its seats while its watchers are notified | `finish`, `release_due` |
//!
//! Upstream: `queueSet`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::estimate::WorkEstimate;
use super::sharding::Dealer;
use super::stats::{Bounds, DispatchStats, FlowStats, LevelStats, Reason};

/// Work in seat-nanoseconds. The progress meter R has the same unit. 128 bits never overflow.
type SeatNanos = i128;

/// Assumed duration of a request that has not finished.
///
/// Upstream: `estimatedServiceDuration`.
const ESTIMATED_SERVICE_DURATION: Duration = Duration::from_millis(3);

/// How a priority level handles a request if it has no free seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queuing {
    /// The level has no limit.
    Exempt,
    /// The level rejects them.
    Reject,
    /// The level queues them.
    Queue {
        /// Number of queues.
        queues: usize,
        /// Dealer of the queues of a flow.
        dealer: Dealer,
        /// Maximum number of waiting requests in a queue.
        length_limit: usize,
    },
}

/// Request that arrives at the level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Index of the FlowSchema's counters.
    pub(super) schema_index: usize,
    /// Hash of the FlowSchema and the flow distinguisher.
    pub(super) flow_hash: u64,
    /// Seats that the request needs, by the estimate.
    pub(super) work: WorkEstimate,
    /// Whether the request is a watch, whose execution ends when the watch is initialized.
    pub(super) watch: bool,
}

/// Executing request. The caller passes the ticket to [`QueueSet::finish`].
#[derive(Debug)]
pub(crate) struct Ticket {
    schema_index: usize,
    /// Index of the queue; `None` in a level without queues.
    queue: Option<usize>,
    work: WorkEstimate,
    started: Duration,
    watch: bool,
}

/// Position of a waiting request in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuePosition {
    /// Index of the queue.
    queue: usize,
    /// Number of the request, unique in its level.
    number: u64,
}

/// Decision on an arrival.
#[derive(Debug)]
pub(super) enum Start {
    /// Execute the request now.
    Execute(Ticket),
    /// The request waits in a queue at this position.
    Wait(QueuePosition),
    /// Reject the request.
    Reject(Reason),
}

/// Dispatched requests with their waiters.
pub(super) type Dispatched<W> = Vec<(W, Ticket)>;

/// Requests of one priority level.
#[derive(Debug)]
pub(super) struct QueueSet<W> {
    queuing: Queuing,
    /// Maximum number of seats in use.
    limit: usize,
    /// Queues. Queues beyond the configured number remain until their requests end.
    queues: Vec<Queue<W>>,
    /// Queues with waiting or executing requests.
    active_queues: usize,
    /// Progress meter R, the virtual time: the work that the level did for each active queue.
    current_r: SeatNanos,
    /// Time up to which `current_r` advanced.
    synced_until: Duration,
    /// Index of the queue that dispatched last, after which the round robin continues.
    robin: usize,
    /// Number of requests that were assigned to a queue.
    enqueues: u64,
    requests_waiting: usize,
    requests_executing: usize,
    seats_waiting: usize,
    seats_in_use: usize,
    /// Seats in use by requests that belong to a queue.
    queued_seats_in_use: usize,
    /// Seats that outlive their requests, by the time of release.
    lingering: BinaryHeap<Reverse<LingeringSeats>>,
    /// Counters of each FlowSchema; `schema_index` fields are indices into them.
    pub(super) schema_stats: Vec<FlowStats>,
    pub(super) stats: LevelStats,
}

/// Queue of one priority level.
#[derive(Debug)]
struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
    /// Sum of the work of all waiting requests.
    work: SeatNanos,
    executing: usize,
    seats_in_use: usize,
    /// Reading of R at which the next request starts in virtual time.
    next_dispatch_r: SeatNanos,
}

/// Waiting request in a queue.
#[derive(Debug)]
struct Waiting<W> {
    /// Number of the request, unique in its level.
    number: u64,
    schema_index: usize,
    work: WorkEstimate,
    watch: bool,
    arrived: Duration,
    /// Reading of R at the arrival.
    arrival_r: SeatNanos,
    waiter: W,
}

/// Request that begins to execute.
#[derive(Debug, Clone, Copy)]
struct Execution {
    schema_index: usize,
    work: WorkEstimate,
    watch: bool,
    arrived: Duration,
}

/// Seats of a finished request during its additional latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LingeringSeats {
    until: Duration,
    queue: Option<usize>,
    schema_index: usize,
    seats: usize,
}

impl<W> Queue<W> {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            work: 0,
            executing: 0,
            seats_in_use: 0,
            next_dispatch_r: 0,
        }
    }

    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    /// Returns the virtual start of the queue's next request minus the estimated work in progress.
    fn discounted_start(&self) -> SeatNanos {
        self.next_dispatch_r - seats_times(self.seats_in_use as u64, ESTIMATED_SERVICE_DURATION)
    }

    /// Moves the next virtual start forward to the arrival of the oldest waiting request. A queue thus cannot save up
    /// seats while it is idle.
    ///
    /// Upstream: `boundNextDispatchLocked`.
    fn bound_next_dispatch(&mut self) {
        if let Some(oldest) = self.waiting.front() {
            self.next_dispatch_r = self.next_dispatch_r.max(oldest.arrival_r);
        }
    }
}

/// Returns seats times time in seat-nanoseconds.
fn seats_times(seats: u64, time: Duration) -> SeatNanos {
    SeatNanos::from(seats) * time.as_nanos() as SeatNanos
}

fn seat_seconds(work: SeatNanos) -> f64 {
    work as f64 / 1e9
}

/// Returns the estimated work of a request in both phases.
///
/// Upstream: `totalWork`.
fn total_work(work: &WorkEstimate) -> SeatNanos {
    seats_times(work.initial_seats, ESTIMATED_SERVICE_DURATION)
        + seats_times(work.final_seats, work.additional_latency)
}

impl<W> QueueSet<W> {
    /// Creates an idle level.
    pub(super) fn new(now: Duration, queuing: Queuing, limit: usize) -> Self {
        let mut set = Self {
            queuing,
            limit,
            queues: Vec::new(),
            active_queues: 0,
            current_r: 0,
            synced_until: now,
            robin: 0,
            enqueues: 0,
            requests_waiting: 0,
            requests_executing: 0,
            seats_waiting: 0,
            seats_in_use: 0,
            queued_seats_in_use: 0,
            lingering: BinaryHeap::new(),
            schema_stats: Vec::new(),
            stats: LevelStats::new(now),
        };
        set.add_queues();
        set
    }

    /// Returns the index of a FlowSchema's counters, which it adds if they are missing.
    pub(super) fn schema_index(&mut self, schema: &str) -> usize {
        let existing = self.schema_stats.iter().position(|stats| *stats.schema == *schema);
        existing.unwrap_or_else(|| {
            self.schema_stats.push(FlowStats::new(schema));
            self.schema_stats.len() - 1
        })
    }

    /// Applies a new configuration and limit. `denominator` is the limit that ratio metrics divide by.
    ///
    /// Upstream: `setConfiguration`.
    pub(super) fn configure(
        &mut self,
        now: Duration,
        queuing: Queuing,
        limit: usize,
        denominator: usize,
    ) -> Dispatched<W> {
        let mut dispatched = self.release_due(now);
        self.queuing = queuing;
        self.limit = limit;
        self.add_queues();
        self.remove_queues();
        let capacity = match queuing {
            Queuing::Queue { queues, length_limit, .. } => queues * length_limit.max(1),
            _ => 1,
        };
        let seats = denominator as f64;
        self.stats.requests_waiting.set_denominator(now, capacity as f64);
        self.stats.requests_executing.set_denominator(now, seats);
        self.stats.seats_executing.set_denominator(now, seats);
        self.stats.demand_ratio.set_denominator(now, seats);
        self.dispatch_as_much_as_possible(now, &mut dispatched);
        dispatched
    }

    fn desired_queues(&self) -> usize {
        match self.queuing {
            Queuing::Queue { queues, .. } => queues,
            _ => 0,
        }
    }

    fn add_queues(&mut self) {
        while self.queues.len() < self.desired_queues() {
            self.queues.push(Queue::new());
        }
    }

    /// Removes idle surplus queues from the end.
    fn remove_queues(&mut self) {
        let idle = |queue: &Queue<W>| !queue.is_active() && queue.seats_in_use == 0;
        while self.queues.len() > self.desired_queues() && self.queues.last().is_some_and(idle) {
            self.queues.pop();
        }
        if self.robin >= self.queues.len() {
            self.robin = 0;
        }
    }

    /// Executes, queues or rejects a request. Calls `waiter` only for a request that waits.
    ///
    /// Upstream: `StartRequest`.
    pub(super) fn start(
        &mut self,
        now: Duration,
        arrival: Arrival,
        waiter: impl FnOnce() -> W,
    ) -> (Start, Dispatched<W>) {
        let mut dispatched = self.release_due(now);
        let Arrival { schema_index, flow_hash, work, watch } = arrival;
        let seats = work.max_seats();
        let execution = |work| Execution { schema_index, work, watch, arrived: now };
        self.schema_stats[schema_index].estimated_seats.observe(seats as f64);
        let Queuing::Queue { dealer, length_limit, .. } = self.queuing else {
            if !self.can_accommodate(seats) {
                self.schema_stats[schema_index].reject(Reason::ConcurrencyLimit);
                return (Start::Reject(Reason::ConcurrencyLimit), dispatched);
            }
            let ticket = self.execute(now, None, execution(work));
            return (Start::Execute(ticket), dispatched);
        };
        let index = self.shuffle_shard(dealer, flow_hash);
        if self.seats_in_use >= self.limit && self.queues[index].waiting.len() >= length_limit {
            self.schema_stats[schema_index].reject(Reason::QueueFull);
            return (Start::Reject(Reason::QueueFull), dispatched);
        }
        if !self.queues[index].is_active() {
            self.queues[index].next_dispatch_r = self.current_r;
        }
        if self.requests_waiting == 0
            && self.seats_in_use < self.limit
            && self.can_accommodate(seats)
        {
            // No other request waits, so this is equivalent to enqueuing and dispatching.
            let queue = &mut self.queues[index];
            queue.next_dispatch_r = queue.next_dispatch_r.max(self.current_r);
            let (start, discounted) = (queue.next_dispatch_r, queue.discounted_start());
            let only = |value| Bounds { min: value, max: value };
            self.record_dispatch(start, only(start), only(discounted));
            self.robin = index;
            self.schema_stats[schema_index].queue_length.observe(1.0);
            let work = self.fit_final_seats(work);
            let ticket = self.execute(now, Some(index), execution(work));
            return (Start::Execute(ticket), dispatched);
        }
        let number = self.enqueues;
        let was_active = self.queues[index].is_active();
        let queue = &mut self.queues[index];
        queue.work += total_work(&work);
        let arrival_r = self.current_r;
        queue.waiting.push_back(Waiting {
            number,
            schema_index,
            work,
            watch,
            arrived: now,
            arrival_r,
            waiter: waiter(),
        });
        queue.bound_next_dispatch();
        let length = queue.waiting.len();
        self.active_queues += usize::from(!was_active);
        self.add_waiting(now, schema_index, seats);
        self.schema_stats[schema_index].queue_length.observe(length as f64);
        self.dispatch_as_much_as_possible(now, &mut dispatched);
        (Start::Wait(QueuePosition { queue: index, number }), dispatched)
    }

    /// Ends the execution of a request. Its seats stay in use for the estimate's additional latency.
    ///
    /// Upstream: `finishRequestLocked`.
    pub(super) fn finish(&mut self, now: Duration, ticket: &Ticket) -> Dispatched<W> {
        let mut dispatched = self.release_due(now);
        let duration = now.saturating_sub(ticket.started);
        let stats = &mut self.schema_stats[ticket.schema_index];
        stats.requests_executing -= 1;
        let seconds = duration.as_secs_f64();
        let executed =
            if ticket.watch { &mut stats.watch_initialized } else { &mut stats.executed };
        executed.observe(seconds);
        self.requests_executing -= 1;
        self.stats.requests_executing.set(now, self.requests_executing as f64);
        if let Some(index) = ticket.queue {
            let queue = &mut self.queues[index];
            queue.executing -= 1;
            // The dispatch added the work of the estimated duration. Replace it by the work of the true duration.
            let initial_seats = ticket.work.initial_seats;
            queue.next_dispatch_r -= seats_times(initial_seats, ESTIMATED_SERVICE_DURATION);
            queue.next_dispatch_r += seats_times(initial_seats, duration);
            queue.bound_next_dispatch();
            self.active_queues -= usize::from(!queue.is_active());
        }
        let seats = LingeringSeats {
            until: now + ticket.work.additional_latency,
            queue: ticket.queue,
            schema_index: ticket.schema_index,
            seats: ticket.work.max_seats(),
        };
        if ticket.work.additional_latency.is_zero() {
            self.release(now, &seats);
            self.dispatch_as_much_as_possible(now, &mut dispatched);
        } else {
            self.lingering.push(Reverse(seats));
        }
        dispatched
    }

    /// Removes a waiting request after its time limit or its client's disconnect. Returns false if the request was
    /// already dispatched.
    pub(super) fn cancel(
        &mut self,
        now: Duration,
        position: QueuePosition,
    ) -> (bool, Dispatched<W>) {
        let mut dispatched = self.release_due(now);
        let Some(queue) = self.queues.get_mut(position.queue) else { return (false, dispatched) };
        let Some(index) =
            queue.waiting.iter().position(|waiting| waiting.number == position.number)
        else {
            return (false, dispatched);
        };
        let Some(cancelled) = queue.waiting.remove(index) else { return (false, dispatched) };
        queue.work -= total_work(&cancelled.work);
        queue.bound_next_dispatch();
        self.active_queues -= usize::from(!queue.is_active());
        self.remove_waiting(now, cancelled.schema_index, cancelled.work.max_seats());
        let stats = &mut self.schema_stats[cancelled.schema_index];
        stats.reject(Reason::TimeOut);
        stats.waited_in_vain.observe(now.saturating_sub(cancelled.arrived).as_secs_f64());
        self.dispatch_as_much_as_possible(now, &mut dispatched);
        self.remove_queues();
        (true, dispatched)
    }

    /// Releases the seats whose additional latency has passed, earliest first, and dispatches requests that then fit.
    pub(super) fn release_due(&mut self, now: Duration) -> Dispatched<W> {
        let mut dispatched = Vec::new();
        while let Some(Reverse(next)) = self.lingering.peek().copied()
            && next.until <= now
        {
            self.lingering.pop();
            self.sync_time(next.until);
            self.release(next.until.max(self.synced_until), &next);
            self.dispatch_as_much_as_possible(now, &mut dispatched);
        }
        self.sync_time(now);
        dispatched
    }

    /// Returns the next time at which seats are released, if requests wait for them.
    pub(super) fn next_release(&self) -> Option<Duration> {
        let next = self.lingering.peek().filter(|_| self.requests_waiting > 0);
        next.map(|Reverse(next)| next.until)
    }

    /// Returns whether no request waits, executes or occupies seats.
    pub(super) fn is_idle(&self) -> bool {
        self.requests_waiting == 0 && self.requests_executing == 0 && self.lingering.is_empty()
    }

    /// Returns R in seat-seconds.
    pub(super) fn current_r(&self) -> f64 {
        seat_seconds(self.current_r)
    }

    /// Releases the seats of a finished request.
    ///
    /// Upstream: `releaseSeatsLocked`.
    fn release(&mut self, now: Duration, released: &LingeringSeats) {
        let seats = released.seats;
        self.seats_in_use -= seats;
        self.schema_stats[released.schema_index].seats_executing -= seats;
        if let Some(index) = released.queue {
            self.queued_seats_in_use -= seats;
            self.queues[index].seats_in_use -= seats;
            self.remove_queues();
        }
        self.record_seats(now);
    }

    /// Advances R to `now`: adds the work of the seats that queued requests use or wait for, up to the limit, divided
    /// by the number of active queues.
    ///
    /// Upstream: `syncTimeLocked`.
    fn sync_time(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.synced_until);
        self.synced_until = self.synced_until.max(now);
        if self.active_queues > 0 {
            let seats = (self.queued_seats_in_use + self.seats_waiting).min(self.limit);
            self.current_r += seats_times(seats as u64, passed) / self.active_queues as SeatNanos;
        }
    }

    /// Returns whether a request with this many seats may execute now.
    ///
    /// Upstream: `canAccommodateSeatsLocked`.
    fn can_accommodate(&self, seats: usize) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            // A request that needs more seats than the limit executes alone.
            _ if seats > self.limit => self.requests_executing == 0,
            _ => self.seats_in_use + seats <= self.limit,
        }
    }

    /// Returns the queue of the flow's hand with the least waiting work.
    ///
    /// Upstream: `shuffleShardLocked`.
    fn shuffle_shard(&mut self, dealer: Dealer, flow_hash: u64) -> usize {
        let hand = dealer.deal(flow_hash);
        let cards = hand.cards();
        // Begin each time at another card, so that equal queues are chosen evenly.
        let offset = (self.enqueues % cards.len() as u64) as usize;
        self.enqueues += 1;
        let (first_cards, last_cards) = cards.split_at(offset);
        let best =
            last_cards.iter().chain(first_cards).min_by_key(|index| self.queues[**index].work);
        best.copied().unwrap_or_default()
    }

    fn dispatch_as_much_as_possible(&mut self, now: Duration, dispatched: &mut Dispatched<W>) {
        while self.requests_waiting > 0
            && self.seats_in_use < self.limit
            && let Some(index) = self.find_dispatch_queue()
            && let Some(next) = self.queues[index].waiting.pop_front()
        {
            let Waiting { schema_index, work, watch, arrived, waiter, .. } = next;
            self.queues[index].work -= total_work(&work);
            self.remove_waiting(now, schema_index, work.max_seats());
            // `execute` counts the queue as active again.
            self.active_queues -= usize::from(!self.queues[index].is_active());
            let work = self.fit_final_seats(work);
            let execution = Execution { schema_index, work, watch, arrived };
            let ticket = self.execute(now, Some(index), execution);
            self.queues[index].bound_next_dispatch();
            dispatched.push((waiter, ticket));
        }
    }

    /// Returns the queue whose oldest request would finish first in virtual time, round robin among equals. Returns
    /// `None` if no seats are free for that request, because later requests must not overtake it.
    ///
    /// Upstream: `findDispatchQueueToBoundLocked`.
    fn find_dispatch_queue(&mut self) -> Option<usize> {
        let (mut best, mut earliest_finish) = (None, SeatNanos::MAX);
        let mut next_s = Bounds { min: SeatNanos::MAX, max: SeatNanos::MIN };
        let mut discounted_s = next_s;
        let count = self.queues.len();
        for step in 1..=count {
            let index = (self.robin + step) % count;
            let queue = &self.queues[index];
            let Some(oldest) = queue.waiting.front() else { continue };
            let start = queue.next_dispatch_r;
            next_s.include(start);
            discounted_s.include(queue.discounted_start());
            let finish = start + total_work(&oldest.work);
            if finish < earliest_finish {
                best = Some((index, oldest.schema_index, oldest.work.max_seats()));
                earliest_finish = finish;
            }
        }
        let (index, schema_index, seats) = best?;
        if !self.can_accommodate(seats) {
            self.schema_stats[schema_index].no_accommodation += 1;
            return None;
        }
        self.robin = index;
        let start = self.queues[index].next_dispatch_r;
        self.record_dispatch(start, next_s, discounted_s);
        Some(index)
    }

    /// Records the metrics of a dispatch: virtual start of the request, and bounds over all queues with requests.
    fn record_dispatch(
        &mut self,
        start: SeatNanos,
        next_s: Bounds<SeatNanos>,
        discounted_s: Bounds<SeatNanos>,
    ) {
        let in_seconds = |bounds: Bounds<SeatNanos>| Bounds {
            min: seat_seconds(bounds.min),
            max: seat_seconds(bounds.max),
        };
        self.stats.dispatch = DispatchStats {
            r: self.current_r(),
            latest_s: seat_seconds(start),
            next_s: in_seconds(next_s),
            discounted_s: in_seconds(discounted_s),
        };
    }

    /// Reduces final seats to the level's limit, and extends their time for the same amount of work.
    fn fit_final_seats(&self, mut work: WorkEstimate) -> WorkEstimate {
        let limit = self.limit as u64;
        if limit > 0 && work.final_seats > limit {
            let total = seats_times(work.final_seats, work.additional_latency);
            let latency = total / SeatNanos::from(limit);
            work.additional_latency =
                Duration::from_nanos(u64::try_from(latency).unwrap_or(u64::MAX));
            work.final_seats = limit;
        }
        work
    }

    /// Occupies the seats of a request. `queue` is the index of its queue; `None` in a level without queues.
    fn execute(&mut self, now: Duration, queue: Option<usize>, execution: Execution) -> Ticket {
        let Execution { schema_index, work, watch, arrived } = execution;
        let seats = work.max_seats();
        self.requests_executing += 1;
        self.seats_in_use += seats;
        if let Some(index) = queue {
            let queue = &mut self.queues[index];
            self.active_queues += usize::from(!queue.is_active());
            queue.executing += 1;
            queue.seats_in_use += seats;
            queue.next_dispatch_r += total_work(&work);
            self.queued_seats_in_use += seats;
        }
        let stats = &mut self.schema_stats[schema_index];
        stats.dispatched += 1;
        stats.requests_executing += 1;
        stats.seats_executing += seats;
        if self.queuing != Queuing::Exempt {
            stats.waited.observe(now.saturating_sub(arrived).as_secs_f64());
        }
        self.stats.requests_executing.set(now, self.requests_executing as f64);
        self.record_seats(now);
        Ticket { schema_index, queue, work, started: now, watch }
    }

    /// Counts a request that joins a queue.
    fn add_waiting(&mut self, now: Duration, schema_index: usize, seats: usize) {
        self.requests_waiting += 1;
        self.seats_waiting += seats;
        let stats = &mut self.schema_stats[schema_index];
        stats.requests_waiting += 1;
        stats.seats_waiting += seats;
        self.record_waiting(now);
    }

    /// Counts a request that leaves its queue.
    fn remove_waiting(&mut self, now: Duration, schema_index: usize, seats: usize) {
        self.requests_waiting -= 1;
        self.seats_waiting -= seats;
        let stats = &mut self.schema_stats[schema_index];
        stats.requests_waiting -= 1;
        stats.seats_waiting -= seats;
        self.record_waiting(now);
    }

    fn record_waiting(&mut self, now: Duration) {
        self.stats.requests_waiting.set(now, self.requests_waiting as f64);
        self.record_seats(now);
    }

    fn record_seats(&mut self, now: Duration) {
        let demand = (self.seats_in_use + self.seats_waiting) as f64;
        self.stats.demand.set(now, demand);
        self.stats.demand_ratio.set(now, demand);
        self.stats.seats_executing.set(now, self.seats_in_use as f64);
    }
}

#[cfg(test)]
mod tests;
