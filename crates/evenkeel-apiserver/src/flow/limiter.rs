//! The shell around the queue sets: classifies requests, waits for seats, and gives them back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::allocation::{self, borrow};
use super::config::{self, CATCH_ALL, Schema};
use super::estimate::{self, ObjectStats, WorkEstimate};
use super::level::{FlowSchema, Permit, Phase, PriorityLevel, RequestDigest, Shared, Waiting};
use super::queueset::{Arrival, QueuePosition, Queuing, Start};
use super::stats::Reason;
use super::watches::{CountedWatch, WatchTracker};
use crate::clock::Clock;
use crate::request::RequestInfo;

/// Retry-After in seconds of requests beyond the in-flight limits.
const RETRY_AFTER: i64 = 1;
/// No request waits longer.
const MAX_WAIT_LIMIT: Duration = Duration::from_secs(60);
/// How long a request without a deadline may wait: a quarter of `--request-timeout`.
const DEFAULT_WAIT_LIMIT: Duration = Duration::from_secs(15);

/// How many requests are executed at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// `--enable-priority-and-fairness`. The sum of the limits is then one for all requests.
    pub(crate) priority_and_fairness: bool,
    /// `--max-requests-inflight`; 0 for no limit.
    pub(crate) max_requests_inflight: usize,
    /// `--max-mutating-requests-inflight`; 0 for no limit.
    pub(crate) max_mutating_requests_inflight: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            priority_and_fairness: true,
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
        }
    }
}

/// Whether a request is executed.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is, outside of all limits.
    Unlimited,
    /// It is, and takes seats until the permit is dropped.
    Execute(Permit),
    /// It is not.
    Reject(Rejection),
}

/// A rejected request.
#[derive(Debug)]
pub(crate) struct Rejection {
    class: Option<Arc<FlowSchema>>,
    /// Seconds after which the client may try again.
    pub(crate) retry_after: i64,
}

impl Rejection {
    /// Sets the uids of FlowSchema and priority level in the response headers.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if let Some(class) = &self.class {
            class.mark(headers);
        }
    }
}

/// Limits the requests that are executed at once.
pub(crate) struct Flows {
    options: Options,
    shared: Arc<Shared>,
    effective: RwLock<Effective>,
    watches: WatchTracker,
    /// Requests that are executed without priority and fairness: reads, writes.
    executing: [Arc<AtomicUsize>; 2],
}

/// The configuration in effect.
#[derive(Debug, Default)]
struct Effective {
    /// In the order in which they are matched.
    schemas: Vec<Arc<FlowSchema>>,
    levels: Vec<Arc<PriorityLevel>>,
    /// Fraction of its target that each level got at the last adjustment.
    fair_fraction: f64,
}

impl Flows {
    /// Makes limits with the mandatory levels only.
    pub(crate) fn new(options: Options, clock: Clock) -> Self {
        let flows = Self {
            options,
            shared: Arc::new(Shared::new(clock)),
            effective: RwLock::default(),
            watches: WatchTracker::default(),
            executing: Default::default(),
        };
        flows.configure(&[], &[]);
        flows
    }

    /// Whether priority levels are in use.
    pub(crate) fn is_fair(&self) -> bool {
        self.options.priority_and_fairness
    }

    fn server_limit(&self) -> usize {
        let Options { max_requests_inflight, max_mutating_requests_inflight, .. } = self.options;
        max_requests_inflight.saturating_add(max_mutating_requests_inflight)
    }

    /// Takes seats for a request, or waits for them. `stats` tells of the objects that a list reads; `wait_limit` is from
    /// [`wait_limit`].
    ///
    /// Upstream: `WithPriorityAndFairness`, `WithMaxInFlightLimit`.
    pub(crate) async fn start(
        &self,
        request: &RequestDigest<'_>,
        stats: impl FnOnce() -> Option<ObjectStats>,
        wait_limit: Duration,
    ) -> Admission {
        let long_running = is_long_running(request.info, request.path);
        if !self.options.priority_and_fairness {
            if long_running || request.info.verb == "watch" {
                return Admission::Unlimited;
            }
            return self.start_in_flight(request);
        }
        if long_running {
            return Admission::Unlimited;
        }
        let Some(class) = self.classify(request) else { return Admission::Unlimited };
        let max_seats = class.level.max_seats.load(Ordering::Relaxed);
        let mut watches = None;
        let work = match request.info.verb {
            "list" | "watch" => estimate::list(request.info, request.query, stats(), max_seats),
            "create" | "update" | "patch" | "delete" => {
                let interested = self.watches.interested(request.info);
                watches = Some(interested);
                estimate::mutating(request.info, interested, max_seats)
            }
            _ => WorkEstimate::default(),
        };
        let arrival = Arrival {
            flow: class.flow,
            hash: class.hash(request),
            work,
            watch: request.info.verb == "watch",
        };
        let mutating = request.is_mutating();
        let mut receiver = None;
        let started = class.level.with(|state, now| {
            if let Some(watches) = watches {
                state.queues.flows[class.flow].watch_count.observe(watches as f64);
            }
            state.queues.start(now, arrival, || {
                let (sender, waiter) = oneshot::channel();
                receiver = Some(waiter);
                class.level.shared.count(Phase::Waiting, mutating, 1);
                Waiting { class: class.clone(), mutating, sender }
            })
        });
        match (started, receiver) {
            (Start::Execute(ticket), _) => {
                Admission::Execute(Permit::seats(class, ticket, mutating))
            }
            (Start::Wait(place), Some(receiver)) => {
                wait(class, place, mutating, receiver, wait_limit).await
            }
            (Start::Reject(reason), _) => reject(class, reason),
            (Start::Wait(_), None) => reject(class, Reason::TimeOut),
        }
    }

    /// Upstream: `WithMaxInFlightLimit`.
    fn start_in_flight(&self, request: &RequestDigest<'_>) -> Admission {
        let [reads, writes] = &self.executing;
        let Options { max_requests_inflight, max_mutating_requests_inflight, .. } = self.options;
        let (executing, limit) = if request.is_mutating() {
            (writes, max_mutating_requests_inflight)
        } else {
            (reads, max_requests_inflight)
        };
        if limit == 0 {
            return Admission::Unlimited;
        }
        let permit = Permit::slot(executing.clone());
        if executing.fetch_add(1, Ordering::Relaxed) < limit {
            return Admission::Execute(permit);
        }
        drop(permit);
        // Administrators always get an answer.
        if request.user.is_in("system:masters") {
            return Admission::Unlimited;
        }
        Admission::Reject(Rejection { class: None, retry_after: RETRY_AFTER })
    }

    /// Returns the first FlowSchema that matches a request, else `catch-all`.
    ///
    /// Upstream: `matchesFlowSchema`.
    fn classify(&self, request: &RequestDigest<'_>) -> Option<Arc<FlowSchema>> {
        let RequestDigest { user, info, path, .. } = request;
        let effective = self.effective.read().unwrap_or_else(PoisonError::into_inner);
        let matches = |schema: &&Arc<FlowSchema>| {
            schema.rules.iter().any(|rule| rule.matches_policy_rule(user, info, path))
        };
        let last = |schema: &&Arc<FlowSchema>| &*schema.name == CATCH_ALL;
        let schemas = &effective.schemas;
        schemas.iter().find(matches).or_else(|| schemas.iter().find(last)).cloned()
    }

    /// Counts a watch among those that writes are sent to, until the result is dropped.
    pub(crate) fn register_watch(&self, info: &RequestInfo<'_>) -> Option<CountedWatch> {
        self.watches.register(info)
    }

    /// Puts a configuration into effect. Levels that are gone go on until they are idle.
    pub(crate) fn configure(&self, schemas: &[Value], levels: &[Value]) {
        let config::Digest { levels, schemas, problems } = config::digest(schemas, levels);
        for problem in problems {
            tracing::warn!(problem, "API Priority and Fairness");
        }
        let mut effective = self.effective.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::take(&mut effective.levels);
        let removed_levels = old.iter().filter(|level| {
            let wanted = levels.iter().any(|wanted| wanted.name == level.name);
            let mut state = level.lock();
            state.quiescing = !wanted;
            !wanted && !state.queues.is_idle()
        });
        let removed_levels: Vec<Arc<PriorityLevel>> = removed_levels.cloned().collect();
        let shares_of_gone = removed_levels.iter().map(|level| level.lock().config.shares.nominal);
        let shares = levels.iter().map(|level| level.shares.nominal).chain(shares_of_gone);
        let sum: u64 = shares.map(u64::from).sum();
        let limit = self.server_limit();
        for config in levels {
            let limits = allocation::limits(config.shares, sum, limit);
            let hand_size = config.hand_size;
            let kept = old.iter().find(|level| level.name == config.name).cloned();
            let level = kept.unwrap_or_else(|| {
                let current = allocation::initial_limit(limits);
                let shared = self.shared.clone();
                Arc::new(PriorityLevel::new(shared, config.clone(), limits, current))
            });
            level.set_max_seats(match hand_size {
                0 => 0,
                hand_size => allocation::max_seats(limits.nominal, hand_size),
            });
            let mut state = level.lock();
            (state.config, state.limits) = (config, limits);
            drop(state);
            effective.levels.push(level);
        }
        for level in &removed_levels {
            let mut state = level.lock();
            state.limits = allocation::limits(state.config.shares, sum, limit);
        }
        effective.levels.extend(removed_levels);
        let bind = |schema: Schema| bind(schema, &effective.levels);
        effective.schemas = schemas.into_iter().filter_map(bind).collect();
        self.adjust(&mut effective);
    }

    /// Adjusts the limits of all levels to what they needed since the last time; drops levels that are gone and idle.
    ///
    /// Upstream: `updateBorrowing`.
    pub(crate) fn update_borrowing(&self) {
        let mut effective = self.effective.write().unwrap_or_else(PoisonError::into_inner);
        self.adjust(&mut effective);
        effective.levels.retain(|level| {
            let state = level.lock();
            !state.quiescing || !state.queues.is_idle()
        });
    }

    fn adjust(&self, effective: &mut Effective) {
        let now = self.shared.now();
        let levels = &effective.levels;
        let observed: Vec<_> = levels.iter().map(|level| level.lock().observe(now)).collect();
        let (limits, fair_fraction) = borrow(&observed);
        effective.fair_fraction = fair_fraction;
        let server_limit = self.server_limit();
        let (mut waiting, mut executing) = (0_usize, 0_usize);
        for (level, limit) in levels.iter().zip(limits) {
            level.with(|state, now| {
                if let Queuing::Queue { queues, length_limit, .. } = state.config.queuing {
                    waiting = waiting.saturating_add(queues.saturating_mul(length_limit));
                }
                executing += state.limits.nominal;
                ((), state.apply(now, limit, server_limit))
            });
        }
        self.shared.set_denominators(waiting, executing);
    }

    /// Releases seats whose time is over. Returns when the next ones are due that a waiting request may get.
    pub(crate) fn release_due(&self) -> Option<Instant> {
        let next = self.levels().iter().filter_map(|level| level.release_due()).min();
        next.map(|at| self.shared.instant(at))
    }

    /// Wakes who calls [`Flows::release_due`].
    pub(crate) fn wake(&self) -> Arc<Notify> {
        self.shared.wake.clone()
    }

    /// Writes the metrics of priority and fairness.
    pub(crate) fn render(&self, out: &mut String) {
        if !self.options.priority_and_fairness {
            return;
        }
        let fair = self.effective.read().unwrap_or_else(PoisonError::into_inner).fair_fraction;
        super::metrics::render(out, &self.levels(), fair, &self.shared);
    }

    fn levels(&self) -> Vec<Arc<PriorityLevel>> {
        self.effective.read().unwrap_or_else(PoisonError::into_inner).levels.clone()
    }
}

/// Puts a FlowSchema into effect.
fn bind(schema: Schema, levels: &[Arc<PriorityLevel>]) -> Option<Arc<FlowSchema>> {
    let Schema { name, uid, level, distinguisher, rules } = schema;
    let level = levels.iter().find(|one| one.name == level)?.clone();
    let mut state = level.lock();
    let flow = state.queues.flow(&name);
    let sharded = matches!(state.config.queuing, Queuing::Queue { queues, .. } if queues > 1);
    let uids = [HeaderValue::from_str(&uid).ok()?, HeaderValue::from_str(&state.config.uid).ok()?];
    drop(state);
    Some(Arc::new(FlowSchema { name, rules, distinguisher, level, flow, sharded, uids }))
}

/// Rejects a request.
fn reject(class: Arc<FlowSchema>, reason: Reason) -> Admission {
    let (level, schema, reason) = (&*class.level.name, &*class.name, reason.as_str());
    tracing::debug!(level, schema, reason, "rejecting request");
    let retry_after = class.level.with(|state, now| {
        let second = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        (state.dropped.record(second), Vec::new())
    });
    Admission::Reject(Rejection { class: Some(class), retry_after })
}

/// Waits until a request is dispatched. When the wait ends otherwise, the request leaves its queue.
async fn wait(
    class: Arc<FlowSchema>,
    place: QueuePosition,
    mutating: bool,
    mut receiver: oneshot::Receiver<Permit>,
    limit: Duration,
) -> Admission {
    let mut queued = Queued { class: class.clone(), place, mutating, left: false };
    let dispatched = tokio::time::timeout(limit, &mut receiver).await;
    let permit = match dispatched {
        Ok(permit) => {
            queued.left = true;
            permit
        }
        // Where it was dispatched at this very moment, its permit is on the way.
        Err(_) if !queued.leave() => receiver.await,
        Err(_) => return reject(class, Reason::TimeOut),
    };
    match permit {
        Ok(permit) => Admission::Execute(permit),
        Err(_) => reject(class, Reason::TimeOut),
    }
}

/// A request in a queue, which it leaves when its client leaves.
struct Queued {
    class: Arc<FlowSchema>,
    place: QueuePosition,
    mutating: bool,
    left: bool,
}

impl Queued {
    /// Leaves the queue. False if the request was dispatched before.
    fn leave(&mut self) -> bool {
        if std::mem::replace(&mut self.left, true) {
            return false;
        }
        let level = &self.class.level;
        let left = level.with(|state, now| state.queues.cancel(now, self.place));
        if left {
            level.shared.count(Phase::Waiting, self.mutating, -1);
        }
        left
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns how long a request with this much time may wait: a quarter of it.
///
/// Upstream: `getRequestWaitContext`.
pub(crate) fn wait_limit(deadline: Option<Duration>) -> Duration {
    deadline.map_or(DEFAULT_WAIT_LIMIT, |time| time / 4).min(MAX_WAIT_LIMIT)
}

/// Returns whether upstream exempts a request from the request timeout: exec, attach, port-forward, logs, proxied requests.
/// Watches are long-running, too, but take seats until they are initialized.
///
/// Upstream: `BasicLongRunningRequestCheck`.
pub(crate) fn is_long_running(info: &RequestInfo<'_>, path: &str) -> bool {
    let parts = ["attach", "exec", "proxy", "log", "portforward"];
    info.verb != "watch"
        && (info.verb == "proxy"
            || info.is_resource && parts.contains(&info.subresource)
            || !info.is_resource && path.starts_with("/debug/pprof/"))
}
