//! Leader election with a Lease, by the timing rules of client-go's `tools/leaderelection`.
//!
//! An elector never compares remote clocks with the local one. A lease is valid for its duration after this process
//! *observed* its last change. The program (see [`crate::manager`]) calls [`LeaderElector::acquire`], then
//! [`LeaderElector::renew`] during the work, then [`LeaderElector::step_down`] after all work has ended. A standby that
//! can be stopped uses [`LeaderElector::acquire_until`] and [`LeaderElector::withdraw`].
//!
//! | documented rule | implemented in |
//! |---|---|
//! | a candidate acquires an expired or released lease | `elector_state::slow_path` |
//! | the leader renews without reading | `elector_state::fast_path` |
//! | a leader that cannot renew within the renew deadline stops leading | `renew` |
//! | a leader that stops releases the lease (`ReleaseOnCancel`) | `step_down` |
//! | the leader writes nothing after its lease may have expired | `fence` |
//! | a leader whose term has ended does not acquire the lease again in `renew` (upstream's does) | `elector_state::has_term_ended` |
//!
//! # Guarantees
//!
//! The fences of two processes are never open at the same time, so all writes of a leader are sent before the first one of the
//! next leader. A request may still arrive after the next leader's first write. If it is a write with a resourceVersion as
//! precondition, the server refuses it if the next leader has written the object. There are two conditions:
//!
//! - Wall clocks may differ by any amount, but the fastest clock must run less than `lease_duration / renew_deadline` times
//!   (1.5 by default) as fast as the slowest.
//! - Identities are unique among running processes, and no other client deletes or edits the Lease of a leader.
//!
//! Without further faults, another process leads within the lease duration and two retry periods with their jitter.

mod candidate;
mod config;
mod elector_state;
mod lease_lock;
mod metrics;

pub use candidate::{Candidate, CandidateConfig};
pub use config::{Config, ConfigError};
pub use metrics::Metrics;

use crate::{
    client::{Client, LeaderFence},
    clock::Clock,
    events::EventRecorder,
    plan::EventRecord,
};
use elector_state::{ElectorState, FastPath, LeaderElectionRecord, SendTime, SlowPath};
use futures::future::BoxFuture;
use lease_lock::{LeaseLock, LockError};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Maximum random addition to the delay between two attempts to acquire, as a fraction of the retry period (upstream's
/// `JitterFactor`).
const JITTER: f64 = 1.2;

/// Elector of one process for one lease.
///
/// ```
/// # use evenkeel_test::TestServer;
/// # use std::sync::Arc;
/// use evenkeel_runtime::{
///     client::Client,
///     clock::Clock,
///     leaderelection::{Config, LeaderElector, Metrics},
/// };
/// # use evenkeel_runtime::prometheus::Registry;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
/// # let client = Client::new(TestServer::start().await?.client(), clock.clone());
/// # let metrics = Metrics::register(&Registry::new());
/// let config = Config::new("default", "maps.example.com", "replica-1");
/// let elector = Arc::new(LeaderElector::new(&client, config, clock, None, metrics)?);
/// elector.acquire().await;
/// assert!(elector.is_leader() && elector.leader() == "replica-1");
/// // Work, while `elector.renew()` has not completed; then:
/// elector.step_down().await;
/// assert!(!elector.is_leader());
/// # Ok(())
/// # }
/// ```
pub struct LeaderElector {
    config: Config,
    lock: LeaseLock,
    clock: Clock,
    events: Option<EventRecorder>,
    metrics: Metrics,
    state: Mutex<ElectorState>,
}

impl LeaderElector {
    /// Creates an elector. It records the events "`<identity>` became leader" and "… stopped leading" about the
    /// Lease in `events`.
    ///
    /// # Errors
    /// Fails if the configuration violates a rule of [`Config::check`].
    pub fn new(
        client: &Client,
        config: Config,
        clock: Clock,
        events: Option<EventRecorder>,
        metrics: Metrics,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let state = Mutex::new(ElectorState::new(&config.identity, config.lease_duration));
        let lock = LeaseLock::new(client.with_user_agent("leader-election"), &config);
        metrics.master.with_label_values(&[&config.name]).set(0);
        Ok(Self { config, lock, clock, events, metrics, state })
    }

    /// Contends until this process leads. If the future is dropped during a request, this process may hold the
    /// lease without leading. [`LeaderElector::withdraw`] then releases it.
    pub async fn acquire(&self) {
        self.acquire_until(&CancellationToken::new()).await;
    }

    /// Contends until this process leads or `stop` is cancelled. Completes a request in flight first. Returns whether
    /// this process leads.
    ///
    /// Upstream: `acquire`.
    pub fn acquire_until<'a>(&'a self, stop: &'a CancellationToken) -> BoxFuture<'a, bool> {
        Box::pin(self.contend(stop))
    }

    async fn contend(&self, stop: &CancellationToken) -> bool {
        let Config { namespace, name, retry_period, .. } = &self.config;
        tracing::info!(%namespace, %name, "attempting to acquire leader lease");
        self.state().start_acquiring();
        while !self.try_acquire_or_renew(stop).await {
            let jitter = 1.0 + JITTER * self.clock.draw(&(&self.config.identity, "acquire"));
            let pause = self.clock.sleep(retry_period.mul_f64(jitter));
            if stop.run_until_cancelled(pause).await.is_none() {
                return false;
            }
        }
        self.metrics.master.with_label_values(&[name]).set(1);
        self.record_event("became leader");
        tracing::info!(%namespace, %name, "acquired leader lease");
        true
    }

    /// Renews the lease until it is lost: the renew deadline has passed, another process holds the lease, or the server
    /// prefers another process. Dropping the future stops the renewals.
    ///
    /// Upstream: `renew`.
    pub fn renew(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.renew_until_lost())
    }

    async fn renew_until_lost(&self) {
        self.state().start_renewing();
        while self.renew_before_deadline().await {
            self.clock.sleep(self.config.retry_period).await;
        }
        let Config { namespace, name, .. } = &self.config;
        self.metrics.master.with_label_values(&[name]).set(0);
        let leader = self.leader();
        tracing::error!(%namespace, %name, %leader, "leader lease lost: not renewed in time, or another process should lead");
    }

    /// Stops leading: releases the lease if so configured, and records the event. Call it after all work under the
    /// lease has ended, because another process may immediately start the same work.
    ///
    /// Upstream: `release`.
    pub fn step_down(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.metrics.master.with_label_values(&[&self.config.name]).set(0);
            self.release_in_time().await;
            self.record_event("stopped leading");
        })
    }

    /// Stops contending: releases the lease if a request without a response may have acquired it.
    pub fn withdraw(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.state().may_lead() {
                self.release_in_time().await;
            }
        })
    }

    async fn release_in_time(&self) {
        self.state().start_releasing();
        if self.config.release_on_cancel
            && timeout(self.config.renew_deadline, self.release()).await.is_err()
        {
            tracing::warn!(name = %self.config.name, "leader lease not released in time");
        }
    }

    /// Returns the timeout of one request for the lease.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.config.request_timeout()
    }

    /// Returns the fence of this election. It is open while this process leads and has sent its last confirmed
    /// renewal less than the renew deadline ago. It closes before another process can acquire the lease, even
    /// if this process was paused.
    pub fn fence(self: &Arc<Self>) -> LeaderFence {
        let this = Arc::clone(self);
        LeaderFence::new(move || {
            let (wall, now) = (this.clock.now(), this.clock.instant());
            this.state().may_write_until(this.config.renew_deadline, wall, now)
        })
    }

    /// Returns whether this process is the leader, by its last observation.
    pub fn is_leader(&self) -> bool {
        self.state().is_leader()
    }

    /// Returns the identity of the last observed leader, or an empty string without one.
    pub fn leader(&self) -> String {
        self.state().leader().to_owned()
    }

    /// Fails if this process considers itself the leader, but has not renewed the lease for its duration plus
    /// `tolerance`. The process should have exited before.
    ///
    /// Upstream: `HealthzAdaptor`.
    ///
    /// # Errors
    /// Returns the message of the health check, which is upstream's.
    pub fn check(&self, tolerance: Duration) -> Result<(), String> {
        if self
            .state()
            .is_renewal_overdue(self.config.lease_duration + tolerance, self.clock.instant())
        {
            return Err(format!(
                "failed election to renew leadership on lease {}",
                self.config.name
            ));
        }
        Ok(())
    }

    /// Attempts to renew once per retry period, until an attempt succeeds, the lease is lost, or the renew deadline has
    /// passed. Returns whether the lease is renewed.
    async fn renew_before_deadline(&self) -> bool {
        let deadline = self.clock.instant() + self.config.renew_deadline;
        let mut ticks = interval(self.config.retry_period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // A renewal is never stopped: this token is not cancelled.
        let never = CancellationToken::new();
        let attempts = async {
            loop {
                ticks.tick().await;
                if self.try_acquire_or_renew(&never).await {
                    return true;
                }
                if self.state().is_lost() {
                    return false;
                }
            }
        };
        timeout_at(deadline, attempts).await.unwrap_or(false)
    }

    /// Attempts once to acquire or renew the lease. Returns whether this process leads afterwards.
    ///
    /// Upstream: `tryAcquireOrRenew`, `maybeReportTransition`.
    async fn try_acquire_or_renew(&self, stop: &CancellationToken) -> bool {
        let before = self.leader();
        let leads = match self.run_paths(stop).await {
            Ok(leads) => leads,
            Err(error) => {
                tracing::warn!(name = %self.config.name, %error, "leader lease not acquired or renewed");
                false
            }
        };
        let after = self.leader();
        if after != before {
            tracing::info!(name = %self.config.name, leader = %after, "new leader elected");
        }
        leads
    }

    /// Renews the lease on the fast path, or else acquires or renews it on the slow path. Returns whether this process
    /// leads.
    async fn run_paths(&self, stop: &CancellationToken) -> Result<bool, LockError> {
        let fast_path = self.state().fast_path(self.clock.now(), self.clock.instant());
        if let FastPath::Update(record) = fast_path
            && !self.config.coordinated
        {
            // Assume that the last observed record is current. Otherwise the server responds with a conflict.
            match self.write(self.lock.update(&record), &record).await {
                Ok(()) => return Ok(true),
                Err(error) => {
                    tracing::debug!(%error, "optimistic renewal failed, reading the lease");
                }
            }
        }
        let found = self.lock.read().await?;
        if stop.is_cancelled() {
            return Ok(false);
        }
        let (wall, now) = (self.clock.now(), self.clock.instant());
        let path = if self.config.coordinated {
            self.state().coordinated_path(found, wall, now)
        } else {
            self.state().slow_path(found, wall, now)
        };
        match path {
            SlowPath::Held => return Ok(false),
            SlowPath::Create(record) => self.write(self.lock.create(&record), &record).await?,
            SlowPath::Update { record, renewal } => {
                if renewal {
                    self.metrics.slowpath.with_label_values(&[&self.config.name]).inc();
                }
                self.write(self.lock.update(&record), &record).await?;
            }
        }
        Ok(true)
    }

    /// Sends a record with this process as the holder. The record stays unconfirmed until the server has
    /// responded.
    async fn write(
        &self,
        request: impl Future<Output = Result<(), LockError>>,
        record: &LeaderElectionRecord,
    ) -> Result<(), LockError> {
        self.state().record_sent();
        let sent = self.send_time();
        request.await?;
        self.state().record_written(record.clone(), sent, self.clock.instant());
        Ok(())
    }

    /// Clears the lease's holder unless another process holds it. Retries after a conflict with a renewal in
    /// flight.
    async fn release(&self) {
        loop {
            let found = match self.lock.read().await {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(name = %self.config.name, %error, "leader lease not released");
                    return;
                }
            };
            let Some(record) = self.state().release_record(&found, self.clock.now()) else {
                return;
            };
            match self.lock.update(&record).await {
                Ok(()) => {
                    self.state().record_written(record, self.send_time(), self.clock.instant());
                    return;
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(name = %self.config.name, %error, "leader lease not released");
                    return;
                }
            }
        }
    }

    fn send_time(&self) -> SendTime {
        SendTime { at: self.clock.instant(), wall: self.clock.now() }
    }

    fn record_event(&self, change: &str) {
        if let Some(events) = &self.events {
            let message = format!("{} {change}", self.config.identity);
            events.record(&EventRecord::normal(self.lock.target(), "LeaderElection", message));
        }
    }

    fn state(&self) -> MutexGuard<'_, ElectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
