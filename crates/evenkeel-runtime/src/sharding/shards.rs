//! Shards of a process, from the view of its controllers.

use super::{
    config::Sharding,
    coverage::{Coverage, HeldTerms},
    defect::Defect,
    metrics::Metrics,
    terms::{Moment, Terms},
};
use crate::{
    client::{Client, LeaderFence},
    clock::Clock,
    plan::Key,
    tasks::watch,
};
use prometheus::Registry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Shards of a sharded operator, and those that this process holds. Clones share them.
#[derive(Clone)]
pub struct Shards(Arc<Inner>);

/// State that the clones of the shards share.
struct Inner {
    sharding: Sharding,
    clock: Clock,
    terms: Mutex<Terms>,
    coverage: Mutex<Coverage>,
    /// The client of controllers, which writes only while the lease of this process lasts. Passes have clients with narrower
    /// fences.
    client: Client,
    metrics: Metrics,
    /// Changes with the terms.
    changes: watch::Sender<()>,
    /// Wakes the member: its lease was renewed, or a shard has drained.
    wake: Notify,
}

impl Shards {
    /// Creates the handle of a process without shards. `client` has no fence.
    pub(super) fn new(
        sharding: Sharding,
        client: &Client,
        clock: &Clock,
        registry: &Registry,
    ) -> Self {
        let inner = Arc::new_cyclic(|inner| {
            let (inner, of_fence) = (inner.clone(), clock.clone());
            let fence = LeaderFence::new(move || {
                let inner: Arc<Inner> = inner.upgrade()?;
                inner.lock().member_until(moment(&of_fence))
            });
            Inner {
                clock: clock.clone(),
                terms: Mutex::new(Terms::new(sharding.renew_deadline)),
                coverage: Mutex::default(),
                client: client.fenced(&fence),
                metrics: Metrics::register(registry, &sharding.id),
                changes: watch::Sender::new(()),
                wake: Notify::new(),
                sharding,
            }
        });
        Self(inner)
    }

    /// Returns the number of shards of the operator.
    pub fn count(&self) -> u32 {
        self.0.sharding.layout.shards
    }

    /// Returns the shard of a key.
    pub fn shard_of(&self, key: &Key) -> u32 {
        self.0.sharding.layout.shard_of(key)
    }

    /// Returns the shards that this process holds now.
    pub fn held(&self) -> Vec<u32> {
        let terms = self.0.lock();
        if terms.member_until(self.now()).is_none() {
            return Vec::new();
        }
        terms.by_shard().keys().copied().collect()
    }

    /// Returns whether this process reconciles a key: it holds the key's shard, is not releasing it, and has listed its
    /// objects.
    pub fn serves(&self, key: &Key) -> bool {
        let shard = self.shard_of(key);
        let term = {
            let terms = self.0.lock();
            let term = terms.by_shard().get(&shard).filter(|term| !term.is_leaving());
            term.map(|term| term.id)
        };
        term.is_some_and(|term| self.covers(shard, term))
    }

    /// Returns whether all caches hold the objects of a term.
    fn covers(&self, shard: u32, term: u64) -> bool {
        self.0.sharding.has(Defect::ServeUnlisted) || self.coverage().covers(shard, term)
    }

    /// Returns the client of controllers, which writes only while the lease of this process lasts.
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Admits a pass over a key, if this process serves it.
    pub(crate) fn admit(&self, key: &Key) -> Option<Admission> {
        let shard = self.shard_of(key);
        let (term, ended) = self.0.lock().begin_pass(shard, self.now())?;
        if !self.covers(shard, term) {
            if self.0.lock().end_pass(shard, term) {
                self.0.wake.notify_one();
            }
            return None;
        }
        if self.0.sharding.has(Defect::NoFence) {
            let (fence, ended) = (LeaderFence::always_open(), CancellationToken::new());
            return Some(Admission { shards: self.clone(), shard, term, fence, ended });
        }
        let shards = self.clone();
        let fence =
            LeaderFence::new(move || shards.0.lock().may_write_until(shard, term, shards.now()));
        Some(Admission { shards: self.clone(), shard, term, fence, ended })
    }

    /// Returns the number of each shard's term.
    pub(super) fn held_terms(&self) -> HeldTerms {
        self.0.lock().by_shard().iter().map(|(shard, term)| (*shard, term.id)).collect()
    }

    /// Returns the terms by shard, but only those whose objects the caches hold.
    pub(crate) fn current(&self) -> HeldTerms {
        let mut terms = self.held_terms();
        terms.retain(|shard, term| self.covers(*shard, *term));
        terms
    }

    pub(super) fn coverage(&self) -> MutexGuard<'_, Coverage> {
        self.0.coverage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that changes with the terms.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// Returns whether controllers begin a new term with the shard's objects, which a defect prevents.
    pub(crate) fn replays(&self) -> bool {
        !self.0.sharding.has(Defect::NoReplay)
    }

    pub(super) fn sharding(&self) -> &Sharding {
        &self.0.sharding
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(super) fn terms(&self) -> MutexGuard<'_, Terms> {
        self.0.lock()
    }

    pub(super) fn now(&self) -> Moment {
        moment(&self.0.clock)
    }

    /// Notifies the controllers that terms began or ended.
    pub(super) fn announce(&self) {
        self.0.changes.send_replace(());
    }

    pub(super) fn wake(&self) -> &Notify {
        &self.0.wake
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn moment(clock: &Clock) -> Moment {
    Moment { at: clock.instant(), wall: clock.now() }
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shards").field("count", &self.count()).field("held", &self.held()).finish()
    }
}

/// One pass, under the term of its key's shard.
pub(crate) struct Admission {
    shards: Shards,
    shard: u32,
    term: u64,
    fence: LeaderFence,
    ended: CancellationToken,
}

impl Admission {
    /// Returns the fence of the pass's writes, which closes at the end of the term.
    pub(crate) fn fence(&self) -> &LeaderFence {
        &self.fence
    }

    /// Runs a pass until its end, or drops it at the end of the term and returns `None`.
    pub(crate) async fn run<T>(&self, pass: impl Future<Output = T>) -> Option<T> {
        self.ended.run_until_cancelled(self.fence.run(pass)).await.flatten()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.shards.0.lock().end_pass(self.shard, self.term) {
            self.shards.0.wake.notify_one();
        }
    }
}
