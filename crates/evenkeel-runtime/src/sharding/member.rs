//! Member of a sharded operator: renews its Lease, and executes decisions about shards.

use super::{
    config::{Sharding, ShardingError},
    decide::{Action, Decision, Me, Memory, decide},
    defect::Defect,
    leases::{Found, LeaseError, Leases},
    shards::Shards,
    terms::Moment,
};
use crate::{client::Client, clock::Clock};
use futures::{StreamExt as _, future::BoxFuture, stream};
use k8s_openapi::api::coordination::v1::Lease;
use prometheus::Registry;
use std::time::Duration;
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

/// Number of Leases that are written concurrently.
const MAX_CONCURRENT_WRITES: usize = 8;

/// Lists per retry period while shards move.
const LISTS_PER_PERIOD: u32 = 4;

/// This process as a member of a sharded operator.
pub(crate) struct Member {
    shards: Shards,
    leases: Leases,
    /// Wakes the renewal, which informs the other members that this member is about to leave.
    retires: Notify,
}

impl Member {
    /// Creates a member without shards. `client` has no fence.
    ///
    /// # Errors
    /// Fails if the settings violate a rule of [`Sharding::check`].
    pub(crate) fn new(
        sharding: Sharding,
        client: &Client,
        clock: &Clock,
        registry: &Registry,
        namespace: &str,
        identity: &str,
    ) -> Result<Self, ShardingError> {
        sharding.check()?;
        let leases = Leases::new(client, clock, &sharding, namespace, identity);
        let shards = Shards::new(sharding, client, clock, registry);
        Ok(Self { shards, leases, retires: Notify::new() })
    }

    /// Returns the shards for the controllers of this process.
    pub(crate) fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Takes part until `stop` is cancelled, then leaves: ends all terms, and deletes the Lease of this process, so that its
    /// shards are free immediately.
    pub(crate) fn run(&self, stop: CancellationToken) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let work = async { tokio::join!(self.keep_renewing(), self.keep_looking()) };
            stop.run_until_cancelled(work).await;
            self.leave().await;
        })
    }

    /// Begins to leave: acquires no more shards, and releases each shard once its passes have ended.
    pub(crate) fn retire(&self) {
        self.shards.terms().retire(self.shards.now());
        self.retires.notify_one();
        self.shards.wake().notify_one();
    }

    async fn keep_renewing(&self) {
        let mut known = None;
        loop {
            if let Err(error) = self.renew(&mut known).await {
                tracing::warn!(%error, "lease of this member of the shards not renewed");
            }
            tokio::select! {
                () = self.sleep(self.sharding().retry_period) => {}
                () = self.retires.notified() => {}
            }
        }
    }

    /// Renews the Lease of this process. Reads it first if another client has changed it, or an earlier response was lost.
    async fn renew(&self, known: &mut Option<Lease>) -> Result<(), LeaseError> {
        let mut sent = self.shards.now();
        let is_leaving = self.shards.terms().is_retiring();
        let answer = match self.leases.renew(known.clone(), is_leaving).await {
            Err(error) if error.is_conflict() || error.is_not_found() => {
                if error.is_not_found() {
                    // Without its Lease, this member counts as dead.
                    let n_lost = self.shards.terms().lapse();
                    self.lost(n_lost);
                }
                *known = self.leases.read().await?;
                sent = self.shards.now();
                self.leases.renew(known.clone(), is_leaving).await
            }
            answer => answer,
        };
        *known = Some(answer?);
        self.confirm(sent);
        Ok(())
    }

    /// Records a confirmed renewal.
    fn confirm(&self, sent: Moment) {
        let now = self.shards.now();
        if self.sharding().has(Defect::TermsOutliveLapse) {
            self.shards.terms().forget_lapse(sent);
        }
        let sent = if self.sharding().has(Defect::ExpiryFromAnswer) { now } else { sent };
        let (was_member, n_lost) = {
            let mut terms = self.shards.terms();
            let was_member = terms.member_until(now).is_some();
            (was_member, terms.renewed(sent, now))
        };
        self.lost(n_lost);
        if !was_member {
            self.shards.wake().notify_one();
        }
    }

    async fn keep_looking(&self) {
        let mut memory = Memory::default();
        loop {
            let pause = self.look(&mut memory).await;
            tokio::select! {
                () = self.sleep(pause) => {}
                () = self.shards.wake().notified() => {}
            }
        }
    }

    /// Lists all Leases, decides and acts. Returns the time until the next list.
    async fn look(&self, memory: &mut Memory) -> Duration {
        let period = self.sharding().retry_period;
        if !self.sharding().has(Defect::TermsOutliveLapse) {
            let n_lost = self.shards.terms().end_if_lapsed(self.shards.now());
            self.lost(n_lost);
        }
        if self.shards.terms().member_until(self.shards.now()).is_none() {
            // The next renewal wakes this task.
            return period;
        }
        let found = match self.leases.list().await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "leases of the shards not listed");
                return period / LISTS_PER_PERIOD;
            }
        };
        let (decision, lapses) = {
            let terms = self.shards.terms();
            let me = Me {
                identity: self.leases.identity(),
                lease: self.leases.name(),
                layout: self.leases.layout(),
                shards: self.shards.count(),
                terms: &terms,
            };
            let (decision, new) = decide(&me, &found.observed, memory);
            *memory = new;
            (decision, terms.lapses())
        };
        self.carry_out(&decision, &found, lapses).await;
        let soon = period / LISTS_PER_PERIOD;
        if !decision.is_settled || !decision.actions.is_empty() {
            return soon;
        }
        let death =
            decision.next_death.map(|death| death.saturating_duration_since(self.shards.now().at));
        death.unwrap_or(period).clamp(soon, period)
    }

    async fn carry_out(&self, decision: &Decision, found: &Found, lapses: u64) {
        let now = self.shards.now();
        for action in &decision.actions {
            match action {
                Action::Leave(shard) => self.shards.terms().leave(*shard, now),
                Action::End(shard) if !self.sharding().has(Defect::ReleaseBeforeDrain) => {
                    self.shards.terms().end(*shard);
                    self.lost(1);
                }
                _ => {}
            }
        }
        let drained = self.end_drained(now).into_iter().map(Action::Release);
        let writes: Vec<Action> = drained.chain(decision.actions.iter().cloned()).collect();
        stream::iter(writes)
            .for_each_concurrent(MAX_CONCURRENT_WRITES, |action| self.write(action, found, lapses))
            .await;
    }

    /// Ends the terms of drained shards, which closes their fences. Returns the shards to release.
    fn end_drained(&self, now: Moment) -> Vec<u32> {
        let mut terms = self.shards.terms();
        if self.sharding().has(Defect::ReleaseBeforeDrain) {
            return terms
                .by_shard()
                .iter()
                .filter(|(_, term)| term.is_leaving())
                .map(|(shard, _)| *shard)
                .collect();
        }
        let drained = terms.drained(now);
        for shard in &drained {
            terms.end(*shard);
            self.shards.metrics().record_release();
            tracing::info!(shard, "shard released");
        }
        drop(terms);
        if !drained.is_empty() {
            self.shards.announce();
        }
        drained
    }

    /// Sends the write of an action.
    async fn write(&self, action: Action, found: &Found, lapses: u64) {
        let result = match &action {
            Action::Acquire(shard) => self.acquire(*shard, found, lapses).await,
            Action::Release(shard) | Action::Prepare(shard) => {
                self.leases.hold(*shard, found, "").await.map(drop)
            }
            Action::Collect(name) => match found.observed.members.get(name) {
                Some(lease) => self.leases.delete(name, &lease.version).await,
                None => Ok(()),
            },
            Action::Leave(_) | Action::End(_) => Ok(()),
        };
        match result {
            Ok(()) => {}
            Err(error) if error.is_conflict() => {
                tracing::debug!(?action, %error, "another member was faster");
            }
            Err(error) => tracing::warn!(?action, %error, "lease of a shard not written"),
        }
    }

    async fn acquire(&self, shard: u32, found: &Found, lapses: u64) -> Result<(), LeaseError> {
        let version = self.leases.hold(shard, found, self.leases.identity()).await?;
        let now = self.shards.now();
        if self.shards.terms().begin_term(shard, version, lapses, now) {
            self.shards.metrics().record_acquisition();
            tracing::info!(shard, "shard acquired");
            self.shards.announce();
        }
        Ok(())
    }

    /// Counts terms that ended without a hand-over, and notifies the controllers.
    fn lost(&self, n: usize) {
        if n == 0 {
            return;
        }
        tracing::warn!(
            shards = n,
            "shards lost: the lease of this process was not renewed in time"
        );
        self.shards.metrics().record_loss(n);
        self.shards.announce();
    }

    /// Leaves permanently. If the deletion of the Lease fails, other members wait until it expires.
    async fn leave(&self) {
        let n_held = self.shards.terms().close();
        (0..n_held).for_each(|_| self.shards.metrics().record_release());
        let withdraw = async {
            while let Err(error) = self.leases.withdraw().await {
                tracing::warn!(%error, "lease of this member of the shards not deleted");
                self.sleep(self.sharding().retry_period / LISTS_PER_PERIOD).await;
            }
        };
        if timeout(self.sharding().renew_deadline, withdraw).await.is_err() {
            tracing::warn!("shards not released in time");
        }
    }

    fn sharding(&self) -> &Sharding {
        self.shards.sharding()
    }

    async fn sleep(&self, duration: Duration) {
        self.shards.clock().sleep(duration).await;
    }
}
