//! Leader election over a Lease, by the timing rules of client-go's `tools/leaderelection`.
//!
//! Remote clocks are never compared with the local one: a lease counts as held for its duration from when a change of it
//! was last *observed*. [`LeaderElection`] is driven by whoever owns the program's life (see [`crate::manager`]):
//! [`LeaderElection::acquire`], then [`LeaderElection::hold`] beside the work, then [`LeaderElection::step_down`] once all
//! work has ended; [`LeaderElection::acquire_until`] and [`LeaderElection::withdraw`] for a candidate that is told to stop.

mod candidate;
mod config;
mod election;
mod lock;
mod metrics;

pub use candidate::{Candidacy, Candidate};
pub use config::{Config, ConfigError};
pub use metrics::Metrics;

use crate::{
    client::{Client, Gate},
    clock::Clock,
    events::Recorder,
    plan::Note,
};
use election::{Election, First, Record, Sent, Then};
use lock::{Lock, LockError};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// The wait between two attempts to acquire is stretched by up to so much of it.
const JITTER: f64 = 1.2;

/// One contender for one lease.
pub struct LeaderElection {
    config: Config,
    lock: Lock,
    clock: Clock,
    events: Option<Recorder>,
    metrics: Metrics,
    election: Mutex<Election>,
}

impl LeaderElection {
    /// A contender. Events "<identity> became leader" and "… stopped leading" about the Lease go to `events`.
    ///
    /// # Errors
    /// When the times cannot work together; see [`Config::check`].
    pub fn new(
        client: &Client,
        config: Config,
        clock: Clock,
        events: Option<Recorder>,
        metrics: Metrics,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let election = Mutex::new(Election::new(&config.identity, config.lease_duration));
        let lock = Lock::new(client.with_user_agent("leader-election"), &config);
        metrics.master.with_label_values(&[&config.name]).set(0);
        Ok(Self { config, lock, clock, events, metrics, election })
    }

    /// Contends until this process leads. Dropping it in the midst of a request may leave the lease to a process that does
    /// not lead; [`LeaderElection::withdraw`] looks after that.
    pub async fn acquire(&self) {
        self.acquire_until(&CancellationToken::new()).await;
    }

    /// Contends until this process leads, or until `stop` is cancelled: then a request that is under way is finished and no
    /// other made. Whether this process leads.
    pub async fn acquire_until(&self, stop: &CancellationToken) -> bool {
        let Config { namespace, name, retry_period, .. } = &self.config;
        tracing::info!(%namespace, %name, "attempting to acquire leader lease");
        self.election().enter();
        while !self.attempt(stop).await {
            let stretch = 1.0 + JITTER * self.clock.draw(&(&self.config.identity, "acquire"));
            let pause = self.clock.sleep(retry_period.mul_f64(stretch));
            if stop.run_until_cancelled(pause).await.is_none() {
                return false;
            }
        }
        self.metrics.master.with_label_values(&[name]).set(1);
        self.tell("became leader");
        tracing::info!(%namespace, %name, "acquired leader lease");
        true
    }

    /// Renews the lease for as long as that works; returns when leadership is lost: the renew deadline has passed, somebody
    /// else holds the lease, or the server wants somebody else to. Dropping it is how to stop.
    pub async fn hold(&self) {
        while self.renew().await {
            self.clock.sleep(self.config.retry_period).await;
        }
        let Config { namespace, name, .. } = &self.config;
        self.metrics.master.with_label_values(&[name]).set(0);
        let leader = self.leader();
        tracing::error!(%namespace, %name, %leader, "leader lease lost: not renewed in time, or another is to lead");
    }

    /// Stops leading: gives the lease back if so configured, and tells. To be called when all work under the lease has
    /// ended, or another process would work at the same time.
    pub async fn step_down(&self) {
        self.metrics.master.with_label_values(&[&self.config.name]).set(0);
        self.give_back().await;
        self.tell("stopped leading");
    }

    /// Ends a candidacy: gives the lease back if a request took it whose answer never came.
    pub async fn withdraw(&self) {
        if self.election().may_lead() {
            self.give_back().await;
        }
    }

    async fn give_back(&self) {
        self.election().leave();
        if self.config.release_on_cancel
            && timeout(self.config.renew_deadline, self.release()).await.is_err()
        {
            tracing::warn!(name = %self.config.name, "leader lease not released in time");
        }
    }

    /// How long one request for the lease may take.
    pub(crate) fn patience(&self) -> Duration {
        self.config.patience()
    }

    /// Open while this process may write under the lease: it leads, and sent its last good renewal less than the renew
    /// deadline ago. So it closes before anybody else can take over, even if this process was paused meanwhile.
    pub fn gate(self: &Arc<Self>) -> Gate {
        let this = Arc::clone(self);
        Gate::new(move || {
            let (wall, now) = (this.clock.now(), Instant::now());
            this.election().may_write_until(this.config.renew_deadline, wall, now)
        })
    }

    /// Whether this process is the leader, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.election().is_leader()
    }

    /// Identity of the leader as last observed; empty when there is none.
    pub fn leader(&self) -> String {
        self.election().leader().to_owned()
    }

    /// Fails when this process holds that it leads but has not renewed for longer than the lease and `tolerance`: it
    /// should have ended by itself (upstream's `HealthzAdaptor`).
    ///
    /// # Errors
    /// In that case, with a text for the health check.
    pub fn check(&self, tolerance: Duration) -> Result<(), String> {
        if self.election().overdue(self.config.lease_duration + tolerance, Instant::now()) {
            return Err(format!(
                "failed election to renew leadership on lease {}",
                self.config.name
            ));
        }
        Ok(())
    }

    /// Attempts each retry period until one works, none can any more, or the renew deadline has passed.
    async fn renew(&self) -> bool {
        let deadline = Instant::now() + self.config.renew_deadline;
        let mut ticks = interval(self.config.retry_period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let never = CancellationToken::new();
        let attempts = async {
            loop {
                ticks.tick().await;
                if self.attempt(&never).await {
                    return true;
                }
                if self.election().is_over() {
                    return false;
                }
            }
        };
        timeout_at(deadline, attempts).await.unwrap_or(false)
    }

    /// One attempt to acquire or to renew; whether this process leads after it.
    async fn attempt(&self, stop: &CancellationToken) -> bool {
        let before = self.leader();
        let leads = match self.try_once(stop).await {
            Ok(leads) => leads,
            Err(error) => {
                tracing::warn!(name = %self.config.name, %error, "leader lease not taken or renewed");
                false
            }
        };
        let after = self.leader();
        if after != before {
            tracing::info!(name = %self.config.name, leader = %after, "new leader elected");
        }
        leads
    }

    async fn try_once(&self, stop: &CancellationToken) -> Result<bool, LockError> {
        let first = self.election().first(self.clock.now(), Instant::now());
        if let First::Update(record) = first
            && !self.config.coordinated
        {
            // What was observed last is taken to be current; if not, the server says so.
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
        let (wall, now) = (self.clock.now(), Instant::now());
        let then = if self.config.coordinated {
            self.election().assigned(found, wall, now)
        } else {
            self.election().found(found, wall, now)
        };
        match then {
            Then::Held => return Ok(false),
            Then::Create(record) => self.write(self.lock.create(&record), &record).await?,
            Then::Update { record, renewal } => {
                if renewal {
                    self.metrics.slowpath.with_label_values(&[&self.config.name]).inc();
                }
                self.write(self.lock.update(&record), &record).await?;
            }
        }
        Ok(true)
    }

    /// Sends a record that names this process, and keeps in mind that it may stand in the lease until that is known.
    async fn write(
        &self,
        request: impl Future<Output = Result<(), LockError>>,
        record: &Record,
    ) -> Result<(), LockError> {
        self.election().claim();
        let sent = self.now();
        request.await?;
        self.election().written(record.clone(), sent, Instant::now());
        Ok(())
    }

    /// Empties the lease, again after a conflict (with a renewal that was under way), unless somebody else holds it.
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
            let Some(record) = self.election().released(&found, self.clock.now()) else { return };
            match self.lock.update(&record).await {
                Ok(()) => {
                    self.election().written(record, self.now(), Instant::now());
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

    fn now(&self) -> Sent {
        Sent { at: Instant::now(), wall: self.clock.now() }
    }

    fn tell(&self, what: &str) {
        if let Some(events) = &self.events {
            let message = format!("{} {what}", self.config.identity);
            events.record(&Note::normal(self.lock.target(), "LeaderElection", message));
        }
    }

    fn election(&self) -> MutexGuard<'_, Election> {
        self.election.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
