use super::*;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn queues(queues: usize, hand_size: usize, length_limit: usize) -> Queuing {
    let dealer = Dealer::new(queues, hand_size).expect("a dealer");
    Queuing::Queue { queues, dealer, length_limit }
}

/// Priority level with two FlowSchemas, `a` (flow 0) and `b` (flow 1). Waiters are numbers in the order of arrival.
struct Level {
    set: QueueSet<u32>,
    waiters: u32,
}

impl Level {
    fn new(queuing: Queuing, limit: usize) -> Self {
        let mut set = QueueSet::new(Duration::ZERO, queuing, limit);
        assert_eq!(
            (set.schema_index("a"), set.schema_index("b"), set.schema_index("a")),
            (0, 1, 0)
        );
        Self { set, waiters: 0 }
    }

    fn start(&mut self, now: u64, flow: usize, work: WorkEstimate) -> (Start, Vec<(u32, Ticket)>) {
        let waiter = self.waiters;
        self.waiters += 1;
        let arrival = Arrival { schema_index: flow, flow_hash: flow as u64, work, watch: false };
        self.set.start(ms(now), arrival, || waiter)
    }

    /// Starts a request of one seat that executes immediately.
    #[track_caller]
    fn execute(&mut self, now: u64, flow: usize) -> Ticket {
        match self.start(now, flow, WorkEstimate::default()) {
            (Start::Execute(ticket), dispatched) if dispatched.is_empty() => ticket,
            other => panic!("not executed: {other:?}"),
        }
    }

    /// Starts a request that has to wait.
    #[track_caller]
    fn wait(&mut self, now: u64, flow: usize, work: WorkEstimate) -> QueuePosition {
        match self.start(now, flow, work) {
            (Start::Wait(position), dispatched) if dispatched.is_empty() => position,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    #[track_caller]
    fn rejected(&mut self, now: u64, flow: usize) -> Reason {
        match self.start(now, flow, WorkEstimate::default()) {
            (Start::Reject(reason), _) => reason,
            other => panic!("not rejected: {other:?}"),
        }
    }
}

fn seats(initial_seats: u64) -> WorkEstimate {
    WorkEstimate { initial_seats, ..WorkEstimate::default() }
}

#[test]
fn an_exempt_level_has_no_limit() {
    let mut level = Level::new(Queuing::Exempt, 0);
    let tickets: Vec<Ticket> = (0..1000).map(|_| level.execute(0, 0)).collect();
    assert_eq!((level.set.requests_executing, level.set.seats_in_use), (1000, 1000));
    for ticket in &tickets {
        assert!(level.set.finish(ms(1), ticket).is_empty());
    }
    assert!(level.set.is_idle());
    assert_eq!(level.set.stats.demand.reset(ms(1)).max, 1000.0);
}

#[test]
fn a_level_without_queues_rejects_requests_beyond_its_limit() {
    let mut level = Level::new(Queuing::Reject, 2);
    let [first, _second] = [level.execute(0, 0), level.execute(0, 0)];
    assert_eq!(level.rejected(0, 1), Reason::ConcurrencyLimit);
    level.set.finish(ms(5), &first);
    let _third = level.execute(5, 1);
    assert_eq!(level.set.schema_stats[1].rejected, [1, 0, 0]);
    assert_eq!(
        (level.set.schema_stats[1].dispatched, level.set.schema_stats[0].requests_executing),
        (1, 1)
    );
}

#[test]
fn a_queue_dispatches_in_order_and_rejects_beyond_its_length_limit() {
    let mut level = Level::new(queues(1, 1, 2), 1);
    let first = level.execute(0, 0);
    level.wait(1, 0, seats(1));
    level.wait(2, 0, seats(1));
    assert_eq!(level.rejected(3, 0), Reason::QueueFull);
    let mut done = level.set.finish(ms(10), &first);
    let (waiter, second) = done.pop().expect("a dispatch");
    assert_eq!((waiter, done.len()), (1, 0));
    let (waiter, third) = level.set.finish(ms(20), &second).pop().expect("a dispatch");
    assert_eq!(waiter, 2);
    level.set.finish(ms(30), &third);
    assert!(level.set.is_idle());
    assert_eq!(level.set.active_queues, 0);
}

#[test]
fn a_flow_that_floods_does_not_starve_another() {
    let mut level = Level::new(queues(8, 1, 100), 1);
    let mut executing = level.execute(0, 0);
    for _ in 0..50 {
        level.wait(0, 0, seats(1));
    }
    for _ in 0..5 {
        level.wait(1, 1, seats(1));
    }
    let mut order = Vec::new();
    for step in 1..=20 {
        let (_, ticket) = level.set.finish(ms(step * 10), &executing).pop().expect("a dispatch");
        order.push(ticket.schema_index);
        executing = ticket;
    }
    // The queues take turns while both have requests.
    assert_eq!(order[..10].iter().filter(|flow| **flow == 1).count(), 5, "{order:?}");
}

#[test]
fn later_requests_do_not_overtake_one_that_needs_more_seats() {
    let mut level = Level::new(queues(8, 1, 100), 4);
    let small: Vec<Ticket> = (0..3).map(|_| level.execute(0, 0)).collect();
    let wide = 3;
    level.wait(0, 1, seats(2));
    // A seat is free, but the level keeps it for the wide request, which is first in virtual time.
    level.wait(0, 0, seats(1));
    assert_eq!(level.set.schema_stats[1].no_accommodation, 2);
    let dispatched = level.set.finish(ms(1), &small[0]);
    assert_eq!(dispatched.iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>(), [wide]);
}

#[test]
fn a_request_that_needs_more_seats_than_the_limit_executes_alone() {
    let mut level = Level::new(queues(8, 1, 100), 4);
    let first = level.execute(0, 0);
    level.wait(0, 1, seats(9));
    let dispatched = level.set.finish(ms(10), &first);
    assert_eq!((dispatched.len(), level.set.seats_in_use), (1, 9));
    level.wait(10, 0, seats(1));
}

#[test]
fn a_cancelled_request_leaves_its_queue() {
    let mut level = Level::new(queues(2, 1, 10), 1);
    let first = level.execute(0, 0);
    let position = level.wait(0, 0, seats(1));
    let next = level.wait(0, 0, seats(1));
    assert!(level.set.cancel(ms(5), position).0);
    assert!(!level.set.cancel(ms(5), position).0);
    assert_eq!(level.set.schema_stats[0].rejected, [0, 0, 1]);
    let dispatched = level.set.finish(ms(6), &first);
    assert_eq!(dispatched.len(), 1);
    assert_eq!(dispatched[0].0, 2);
    assert!(!level.set.cancel(ms(7), next).0, "it was dispatched before");
    level.set.finish(ms(8), &dispatched[0].1);
    assert!(level.set.is_idle());
    assert_eq!((level.set.seats_waiting, level.set.queued_seats_in_use), (0, 0));
}

#[test]
fn seats_of_a_write_are_kept_while_watchers_are_notified() {
    let mut level = Level::new(queues(2, 1, 10), 3);
    let work = WorkEstimate { initial_seats: 1, final_seats: 3, additional_latency: ms(20) };
    let (Start::Execute(write), _) = level.start(0, 0, work) else { panic!("not executed") };
    level.wait(1, 1, seats(1));
    assert_eq!(level.set.next_release(), None);
    assert!(level.set.finish(ms(5), &write).is_empty());
    assert_eq!(level.set.next_release(), Some(ms(25)));
    assert!(level.set.release_due(ms(24)).is_empty());
    let dispatched = level.set.release_due(ms(26));
    assert_eq!(dispatched.len(), 1);
    assert_eq!(level.set.seats_in_use, 1);
    assert_eq!(level.set.next_release(), None);
}

#[test]
fn final_seats_are_reduced_to_the_limit_and_kept_for_longer() {
    let level = Level::new(queues(2, 1, 10), 2);
    let work = WorkEstimate { initial_seats: 1, final_seats: 8, additional_latency: ms(5) };
    let fitted = level.set.fit_final_seats(work);
    assert_eq!((fitted.final_seats, fitted.additional_latency), (2, ms(20)));
}

#[test]
fn a_smaller_limit_ends_no_request_and_a_larger_one_dispatches() {
    let mut level = Level::new(queues(4, 1, 10), 2);
    let [first, second] = [level.execute(0, 0), level.execute(0, 1)];
    level.wait(0, 0, seats(1));
    assert!(level.set.configure(ms(1), queues(4, 1, 10), 1, 1).is_empty());
    assert!(level.set.finish(ms(2), &first).is_empty());
    level.wait(2, 1, seats(1));
    assert_eq!(level.set.configure(ms(3), queues(2, 1, 10), 5, 5).len(), 2);
    level.set.finish(ms(4), &second);
    assert_eq!(level.set.stats.requests_executing.read(ms(4)).count, 4_000_000);
}

proptest::proptest! {
    /// In any sequence of arrivals, ends, cancellations and changes, the level keeps its limits, loses no request and
    /// ends idle.
    #[test]
    fn no_request_is_lost(
        limit in 1_usize..6,
        steps in proptest::collection::vec((0_u8..12, 0_usize..2, 1_u64..4, 0_u64..30), 1..200),
    ) {
        let mut level = Level::new(queues(6, 2, 4), limit);
        let mut now = 0;
        let mut executing: Vec<Ticket> = Vec::new();
        let mut waiting: std::collections::BTreeMap<u32, QueuePosition> = Default::default();
        let mut current = limit;
        for (action, flow, seats, passed) in steps {
            now += passed;
            let mut dispatched = Vec::new();
            match action {
                0..=5 => {
                    let latency = if seats == 3 { ms(7) } else { Duration::ZERO };
                    let work = WorkEstimate { initial_seats: seats, final_seats: seats, additional_latency: latency };
                    let waiter = level.waiters;
                    let (start, done) = level.start(now, flow, work);
                    dispatched = done;
                    match start {
                        Start::Execute(ticket) => executing.push(ticket),
                        Start::Wait(position) => { waiting.insert(waiter, position); }
                        Start::Reject(_) => proptest::prop_assert!(level.set.seats_in_use >= current),
                    }
                }
                6..=8 if !executing.is_empty() => {
                    let ticket = executing.remove(flow % executing.len());
                    dispatched = level.set.finish(ms(now), &ticket);
                }
                9 => if let Some((waiter, position)) = waiting.pop_first() {
                    let (gone, done) = level.set.cancel(ms(now), position);
                    dispatched = done;
                    if !gone {
                        proptest::prop_assert!(dispatched.iter().any(|(w, _)| *w == waiter));
                        waiting.insert(waiter, position);
                    }
                },
                10 => {
                    current = seats as usize;
                    dispatched = level.set.configure(ms(now), queues(2 + 2 * flow, 2, 4), current, current);
                }
                _ => dispatched = level.set.release_due(ms(now)),
            }
            for (waiter, ticket) in dispatched {
                proptest::prop_assert!(waiting.remove(&waiter).is_some());
                executing.push(ticket);
            }
            proptest::prop_assert_eq!(level.set.requests_waiting, waiting.len());
            proptest::prop_assert_eq!(level.set.requests_executing, executing.len());
            let active = level.set.queues.iter().filter(|queue| queue.is_active()).count();
            proptest::prop_assert_eq!(level.set.active_queues, active);
            let work: SeatNanos = level.set.queues.iter().flat_map(|queue| &queue.waiting).map(|w| total_work(&w.work)).sum();
            proptest::prop_assert_eq!(level.set.queues.iter().map(|queue| queue.work).sum::<SeatNanos>(), work);
        }
        for _ in 0..1000 {
            now += 100;
            let mut dispatched = level.set.release_due(ms(now));
            if let Some(ticket) = executing.pop() {
                dispatched.extend(level.set.finish(ms(now), &ticket));
            }
            for (waiter, ticket) in dispatched {
                proptest::prop_assert!(waiting.remove(&waiter).is_some());
                executing.push(ticket);
            }
        }
        proptest::prop_assert!(waiting.is_empty(), "{:?}", level.set);
        level.set.release_due(ms(now + 100));
        proptest::prop_assert!(level.set.is_idle());
        proptest::prop_assert_eq!((level.set.seats_in_use, level.set.seats_waiting), (0, 0));
        proptest::prop_assert!(level.set.schema_stats.iter().all(|flow| flow.seats_executing == 0 && flow.seats_waiting == 0));
    }
}
