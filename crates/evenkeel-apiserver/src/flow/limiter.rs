//! Limiter of concurrent requests: classifies a request, waits for its seats in a queue set, and releases them.

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
use crate::resource::is_long_running_subresource;

/// Retry-After, in seconds, of requests beyond the in-flight limits.
const IN_FLIGHT_RETRY_AFTER: i64 = 1;
/// Maximum time that a request waits in a queue.
const MAX_WAIT_LIMIT: Duration = Duration::from_secs(60);
/// Maximum wait of a request without a deadline: a quarter of the default of `--request-timeout`.
const DEFAULT_WAIT_LIMIT: Duration = Duration::from_secs(15);

/// Limits on concurrent requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// `--enable-priority-and-fairness`. If true, the server's limit is the sum of the two limits below.
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

/// Decision whether to execute a request.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Execute the request outside of all limits.
    Unlimited,
    /// Execute the request, which occupies seats until the permit drops.
    Execute(Permit),
    /// Reject the request.
    Reject(Rejection),
}

/// Rejection of a request, with its Retry-After.
#[derive(Debug)]
pub(crate) struct Rejection {
    /// FlowSchema of the request; `None` without priority and fairness.
    flow_schema: Option<Arc<FlowSchema>>,
    /// Seconds after which the client may retry.
    pub(crate) retry_after: i64,
}

impl Rejection {
    /// Sets the UIDs of FlowSchema and priority level in the response headers.
    pub(crate) fn set_uid_headers(&self, headers: &mut HeaderMap) {
        if let Some(flow_schema) = &self.flow_schema {
            flow_schema.set_uid_headers(headers);
        }
    }
}

/// Limiter of concurrent requests, either by priority and fairness or by the in-flight limits.
pub(crate) struct Flows {
    options: Options,
    shared: Arc<Shared>,
    effective: RwLock<Effective>,
    watches: WatchTracker,
    /// Number of executing reads without priority and fairness.
    executing_reads: Arc<AtomicUsize>,
    /// Number of executing writes without priority and fairness.
    executing_writes: Arc<AtomicUsize>,
}

/// Configuration in effect.
#[derive(Debug, Default)]
struct Effective {
    /// Schemas in matching order.
    schemas: Vec<Arc<FlowSchema>>,
    levels: Vec<Arc<PriorityLevel>>,
    /// Fraction of its target that each level got at the last adjustment.
    fair_fraction: f64,
}

impl Flows {
    /// Creates a limiter with only the mandatory levels.
    pub(crate) fn new(options: Options, clock: Clock) -> Self {
        let flows = Self {
            options,
            shared: Arc::new(Shared::new(clock)),
            effective: RwLock::default(),
            watches: WatchTracker::default(),
            executing_reads: Arc::default(),
            executing_writes: Arc::default(),
        };
        flows.configure(&[], &[]);
        flows
    }

    /// Returns whether priority and fairness is enabled.
    pub(crate) fn is_fair(&self) -> bool {
        self.options.priority_and_fairness
    }

    fn server_limit(&self) -> usize {
        let Options { max_requests_inflight, max_mutating_requests_inflight, .. } = self.options;
        max_requests_inflight.saturating_add(max_mutating_requests_inflight)
    }

    /// Takes seats for a request, or waits for them. `stats` returns the statistics of the objects that a list reads.
    /// `wait_limit` comes from [`wait_limit`].
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
        let Some(flow_schema) = self.classify(request) else { return Admission::Unlimited };
        let max_seats = flow_schema.level.max_seats.load(Ordering::Relaxed);
        let mut interested_watches = None;
        let work = match request.info.verb {
            "list" | "watch" => estimate::list(request.info, request.query, stats(), max_seats),
            "create" | "update" | "patch" | "delete" => {
                let watch_count = self.watches.interested_watch_count(request.info);
                interested_watches = Some(watch_count);
                estimate::mutating(request.info, watch_count, max_seats)
            }
            _ => WorkEstimate::default(),
        };
        let arrival = Arrival {
            schema_index: flow_schema.schema_index,
            flow_hash: flow_schema.flow_hash(request),
            work,
            watch: request.info.verb == "watch",
        };
        let mutating = request.is_mutating();
        let mut receiver = None;
        let started = flow_schema.level.update(|state, now| {
            if let Some(watch_count) = interested_watches {
                let stats = &mut state.queues.schema_stats[flow_schema.schema_index];
                stats.watch_count.observe(watch_count as f64);
            }
            state.queues.start(now, arrival, || {
                let (sender, waiter) = oneshot::channel();
                receiver = Some(waiter);
                flow_schema.level.shared.count(Phase::Waiting, mutating, 1);
                Waiting { flow_schema: flow_schema.clone(), mutating, sender }
            })
        });
        match (started, receiver) {
            (Start::Execute(ticket), _) => {
                Admission::Execute(Permit::seats(flow_schema, ticket, mutating))
            }
            (Start::Wait(position), Some(receiver)) => {
                wait(flow_schema, position, mutating, receiver, wait_limit).await
            }
            (Start::Reject(reason), _) => reject(flow_schema, reason),
            // Unreachable: a request that waits has a receiver.
            (Start::Wait(_), None) => reject(flow_schema, Reason::TimeOut),
        }
    }

    /// Executes a request if the number of executing reads or writes is below its limit.
    ///
    /// Upstream: `WithMaxInFlightLimit`.
    fn start_in_flight(&self, request: &RequestDigest<'_>) -> Admission {
        let Options { max_requests_inflight, max_mutating_requests_inflight, .. } = self.options;
        let (executing, limit) = if request.is_mutating() {
            (&self.executing_writes, max_mutating_requests_inflight)
        } else {
            (&self.executing_reads, max_requests_inflight)
        };
        if limit == 0 {
            return Admission::Unlimited;
        }
        let permit = Permit::slot(executing.clone());
        if executing.fetch_add(1, Ordering::Relaxed) < limit {
            return Admission::Execute(permit);
        }
        drop(permit);
        // Never reject administrators.
        if request.user.is_in("system:masters") {
            return Admission::Unlimited;
        }
        Admission::Reject(Rejection { flow_schema: None, retry_after: IN_FLIGHT_RETRY_AFTER })
    }

    /// Returns the first FlowSchema that matches a request, or else `catch-all`.
    ///
    /// Upstream: `matchesFlowSchema`.
    fn classify(&self, request: &RequestDigest<'_>) -> Option<Arc<FlowSchema>> {
        let RequestDigest { user, info, path, .. } = request;
        let effective = self.effective.read().unwrap_or_else(PoisonError::into_inner);
        let matches = |schema: &&Arc<FlowSchema>| {
            schema.rules.iter().any(|rule| rule.matches_policy_rule(user, info, path))
        };
        let is_catch_all = |schema: &&Arc<FlowSchema>| &*schema.name == CATCH_ALL;
        let schemas = &effective.schemas;
        schemas.iter().find(matches).or_else(|| schemas.iter().find(is_catch_all)).cloned()
    }

    /// Counts a watch as a receiver of writes until the result drops.
    pub(crate) fn register_watch(&self, info: &RequestInfo<'_>) -> Option<CountedWatch> {
        self.watches.register(info)
    }

    /// Applies a configuration. Removed levels remain until they are idle.
    pub(crate) fn configure(&self, schemas: &[Value], levels: &[Value]) {
        let config::Digest { levels, schemas, problems } = config::digest(schemas, levels);
        for problem in problems {
            tracing::warn!(problem, "API Priority and Fairness");
        }
        let mut effective = self.effective.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::take(&mut effective.levels);
        // Levels without an object that still have requests.
        let mut removed_levels: Vec<Arc<PriorityLevel>> = Vec::new();
        for level in &old {
            let has_object = levels.iter().any(|config| config.name == level.name);
            let mut state = level.lock();
            state.quiescing = !has_object;
            if !has_object && !state.queues.is_idle() {
                removed_levels.push(level.clone());
            }
        }
        let removed_shares = removed_levels.iter().map(|level| level.lock().config.shares.nominal);
        let shares = levels.iter().map(|level| level.shares.nominal).chain(removed_shares);
        let sum_of_shares: u64 = shares.map(u64::from).sum();
        let server_limit = self.server_limit();
        for config in levels {
            let limits = allocation::limits(config.shares, sum_of_shares, server_limit);
            let hand_size = config.hand_size;
            let existing = old.iter().find(|level| level.name == config.name).cloned();
            let level = existing.unwrap_or_else(|| {
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
            state.limits = allocation::limits(state.config.shares, sum_of_shares, server_limit);
        }
        effective.levels.extend(removed_levels);
        let bound = schemas.into_iter().filter_map(|schema| bind(schema, &effective.levels));
        effective.schemas = bound.collect();
        self.adjust(&mut effective);
    }

    /// Adjusts the limits of all levels to their demand since the last adjustment. Drops removed levels that are idle.
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

    /// Sets the current limit of each level by its demand, and the limits that the metrics' ratios divide by.
    fn adjust(&self, effective: &mut Effective) {
        let now = self.shared.now();
        let levels = &effective.levels;
        let observed: Vec<_> = levels.iter().map(|level| level.lock().observe(now)).collect();
        let (limits, fair_fraction) = borrow(&observed);
        effective.fair_fraction = fair_fraction;
        let server_limit = self.server_limit();
        let (mut waiting_limit, mut executing_limit) = (0_usize, 0_usize);
        for (level, limit) in levels.iter().zip(limits) {
            level.update(|state, now| {
                if let Queuing::Queue { queues, length_limit, .. } = state.config.queuing {
                    waiting_limit =
                        waiting_limit.saturating_add(queues.saturating_mul(length_limit));
                }
                executing_limit += state.limits.nominal;
                ((), state.apply(now, limit, server_limit))
            });
        }
        self.shared.set_denominators(waiting_limit, executing_limit);
    }

    /// Releases the seats whose additional latency has passed. Returns the time of the next release if requests wait.
    pub(crate) fn release_due(&self) -> Option<Instant> {
        let next = self.levels().iter().filter_map(|level| level.release_due()).min();
        next.map(|time| self.shared.instant(time))
    }

    /// Returns the notifier that signals when to call [`Flows::release_due`] again.
    pub(crate) fn wake(&self) -> Arc<Notify> {
        self.shared.wake.clone()
    }

    /// Writes the metrics of priority and fairness to `out`.
    pub(crate) fn render(&self, out: &mut String) {
        if !self.options.priority_and_fairness {
            return;
        }
        let effective = self.effective.read().unwrap_or_else(PoisonError::into_inner);
        let fair_fraction = effective.fair_fraction;
        drop(effective);
        super::metrics::render(out, &self.levels(), fair_fraction, &self.shared);
    }

    fn levels(&self) -> Vec<Arc<PriorityLevel>> {
        self.effective.read().unwrap_or_else(PoisonError::into_inner).levels.clone()
    }
}

/// Binds a FlowSchema to its level. Returns `None` if the level does not exist or a UID is not a valid header value.
fn bind(schema: Schema, levels: &[Arc<PriorityLevel>]) -> Option<Arc<FlowSchema>> {
    let Schema { name, uid, level, distinguisher, rules } = schema;
    let level = levels.iter().find(|existing| existing.name == level)?.clone();
    let mut state = level.lock();
    let schema_index = state.queues.schema_index(&name);
    let sharded = matches!(state.config.queuing, Queuing::Queue { queues, .. } if queues > 1);
    let schema_uid = HeaderValue::from_str(&uid).ok()?;
    let level_uid = HeaderValue::from_str(&state.config.uid).ok()?;
    drop(state);
    Some(Arc::new(FlowSchema {
        name,
        rules,
        distinguisher,
        level,
        schema_index,
        sharded,
        schema_uid,
        level_uid,
    }))
}

/// Rejects a request and records it for the level's Retry-After.
fn reject(flow_schema: Arc<FlowSchema>, reason: Reason) -> Admission {
    let (level, schema, reason) = (&*flow_schema.level.name, &*flow_schema.name, reason.as_str());
    tracing::debug!(level, schema, reason, "rejecting request");
    let retry_after = flow_schema.level.update(|state, now| {
        let second = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        (state.dropped.record(second), Vec::new())
    });
    Admission::Reject(Rejection { flow_schema: Some(flow_schema), retry_after })
}

/// Waits until a request is dispatched. If the time limit expires first, the request leaves its queue.
async fn wait(
    flow_schema: Arc<FlowSchema>,
    position: QueuePosition,
    mutating: bool,
    mut receiver: oneshot::Receiver<Permit>,
    limit: Duration,
) -> Admission {
    let mut queued =
        Queued { flow_schema: flow_schema.clone(), position, mutating, has_left: false };
    let dispatched = tokio::time::timeout(limit, &mut receiver).await;
    let permit = match dispatched {
        Ok(permit) => {
            queued.has_left = true;
            permit
        }
        // The level dispatched the request just before the timeout, so the permit is already in the channel or about to
        // arrive.
        Err(_) if !queued.leave() => receiver.await,
        Err(_) => return reject(flow_schema, Reason::TimeOut),
    };
    match permit {
        Ok(permit) => Admission::Execute(permit),
        Err(_) => reject(flow_schema, Reason::TimeOut),
    }
}

/// Request in a queue. It leaves the queue when its client disconnects.
struct Queued {
    flow_schema: Arc<FlowSchema>,
    position: QueuePosition,
    mutating: bool,
    /// Whether the request was dispatched or removed from its queue.
    has_left: bool,
}

impl Queued {
    /// Leaves the queue. Returns false if the request was already dispatched.
    fn leave(&mut self) -> bool {
        if std::mem::replace(&mut self.has_left, true) {
            return false;
        }
        let level = &self.flow_schema.level;
        let was_waiting = level.update(|state, now| state.queues.cancel(now, self.position));
        if was_waiting {
            level.shared.count(Phase::Waiting, self.mutating, -1);
        }
        was_waiting
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the maximum wait of a request with this deadline: a quarter of it, at most [`MAX_WAIT_LIMIT`].
///
/// Upstream: `getRequestWaitContext`.
pub(crate) fn wait_limit(deadline: Option<Duration>) -> Duration {
    deadline.map_or(DEFAULT_WAIT_LIMIT, |time| time / 4).min(MAX_WAIT_LIMIT)
}

/// Returns whether upstream exempts a request from the request timeout: exec, attach, port-forward, logs or proxied
/// requests. Watches are exempt, too, but return false here because they take seats until they are initialized.
///
/// Upstream: `BasicLongRunningRequestCheck`.
pub(crate) fn is_long_running(info: &RequestInfo<'_>, path: &str) -> bool {
    info.verb != "watch"
        && (info.verb == "proxy"
            || info.is_resource && is_long_running_subresource(info.subresource)
            || !info.is_resource && path.starts_with("/debug/pprof/"))
}
