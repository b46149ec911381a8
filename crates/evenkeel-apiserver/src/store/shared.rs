//! Parts of a store that its handles share: committed state, pending writes and durable engine.
//!
//! Lock order: engine, pending writes, state. A commit holds the engine's lock from start to end. Reads and checks of
//! transactions do not need this lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

use evenkeel_tasks::{panic_text, watch};

use super::durable::Durable;
use super::etcd::connection::Etcd;
use super::index::IndexedResources;
use super::pending::{NotStaged, Pending, Refusal, StagedTransaction};
use super::queued::QueuedTransaction;
use super::record::{Identity, Transformer};
use super::refused::Refused;
use super::state::{Collection, Staged, State};
use super::transaction::{Transaction, WriteError};
use super::watchers::{ScopeSignals, Watchers};
use crate::resource::ResourcePrefix;

/// Shared parts of a store.
pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    /// Resources that have an index.
    pub(super) indexed_resources: IndexedResources,
    /// Signals the revision of each commit once its writes are visible.
    pub(super) settled: watch::Sender<u64>,
    /// Signals the revision up to which the outcome of writes is known.
    pub(super) resolved: watch::Sender<Resolved>,
    /// Reason why the store has failed permanently; `None` otherwise.
    pub(super) failed: watch::Sender<Option<Arc<str>>>,
    pending: Mutex<Pending>,
    /// Signals that a transaction was queued, or that the store was dropped.
    wake: Condvar,
    /// Transformer between memory and disk.
    pub(super) transformer: Arc<dyn Transformer>,
    /// Store in etcd, which this process caches in memory; `None` for a store of this process alone.
    pub(super) etcd: Option<Etcd>,
    /// Durable engine; `None` for a store in memory or in etcd.
    durable: Mutex<Option<Durable>>,
    /// Whether a thread commits. Otherwise each writer commits itself.
    pub(super) threaded: bool,
    /// Watchers of narrow scopes.
    pub(super) watchers: Watchers,
}

/// Revision up to which the outcome of writes is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Resolved {
    pub(super) revision: u64,
    /// Last refused revision and the reason.
    pub(super) refused: Option<(u64, Arc<str>)>,
}

impl Shared {
    pub(super) fn new(
        state: State,
        durable: Option<Durable>,
        transformer: Arc<dyn Transformer>,
        indexed_resources: IndexedResources,
        threaded: bool,
    ) -> Self {
        let revision = state.revision;
        let mut pending = Pending::new(&state);
        // The disk may have been full before the start.
        pending.set_refusal(durable.as_ref().and_then(Durable::refusal));
        Self {
            indexed_resources,
            settled: watch::Sender::new(revision),
            resolved: watch::Sender::new(Resolved { revision, refused: None }),
            failed: watch::Sender::new(None),
            pending: Mutex::new(pending),
            state: RwLock::new(state),
            wake: Condvar::new(),
            transformer,
            etcd: None,
            durable: Mutex::new(durable),
            threaded,
            watchers: Watchers::new(revision),
        }
    }

    /// Creates the cache of a store in etcd.
    pub(super) fn of_etcd(state: State, etcd: Etcd, indexed_resources: IndexedResources) -> Self {
        let transformer = Arc::new(Identity);
        Self { etcd: Some(etcd), ..Self::new(state, None, transformer, indexed_resources, false) }
    }

    /// Locks the committed state.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a collection. It is empty if no object was stored or watched under this prefix.
    pub(super) fn read_collection<T>(
        &self,
        resource_prefix: &ResourcePrefix,
        read: impl FnOnce(&Collection) -> T,
    ) -> T {
        if let Some(collection) = self.read().collections.get(resource_prefix) {
            return read(collection);
        }
        read(self.write().collection(resource_prefix))
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the pending writes.
    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks a transaction and queues it. `index_values` are those of [`Transaction::index_values`].
    pub(super) fn stage(
        &self,
        transaction: Transaction,
        index_values: Vec<(usize, Vec<String>)>,
    ) -> Result<StagedTransaction, Box<NotStaged>> {
        if let Some(why) = self.transformer_refusal(&transaction) {
            let error = WriteError::Storage(why.into());
            return Err(Box::new(NotStaged { error, depends_on: None, transaction }));
        }
        let staged = self.pending().stage(&self.read(), transaction, index_values);
        if self.threaded && staged.is_ok() {
            self.wake.notify_one();
        }
        staged
    }

    /// Returns the reason why the transformer does not take an object of a transaction now.
    fn transformer_refusal(&self, transaction: &Transaction) -> Option<String> {
        let mut stored = transaction.ops.iter().filter(|op| op.object.is_some());
        stored.find_map(|op| self.transformer.refusal(&op.resource_prefix))
    }

    /// Commits the queue, publishes it, and does due maintenance. Returns the delay until the next call.
    pub(super) fn commit_queue(&self) -> Duration {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = self.pending().take_queue();
        #[cfg(test)]
        assert!(!self.pending().planted_panic, "planted");
        if !batch.is_empty() {
            let committed = match &mut *durable {
                Some(durable) => durable.commit(batch, &self.state),
                None => Ok((batch, Refused::default())),
            };
            let refusal = durable.as_ref().and_then(Durable::refusal);
            match committed {
                Ok((batch, refused)) => self.publish_and_refuse(batch, refused),
                Err((batch, why)) => self.refuse(batch, &why, refusal),
            }
        }
        let Some(durable) = &mut *durable else { return Duration::MAX };
        let delay = durable.maintain(&self.state);
        let refusal = durable.refusal();
        let mut pending = self.pending();
        if refusal.is_some() || pending.refusal().is_some() {
            pending.set_refusal(refusal);
        }
        delay
    }

    /// Publishes the committed transactions of a batch, then refuses the others and all that depend on them.
    fn publish_and_refuse(&self, batch: Vec<QueuedTransaction>, mut refused: Refused) {
        let last = |transaction: &QueuedTransaction| {
            transaction.writes.last().map(|staged| staged.event.entry.revision)
        };
        let latest = refused.transactions.last();
        if let Some((revision, why)) =
            latest.and_then(|(transaction, why)| Some((last(transaction)?, why.clone())))
        {
            // A caller that waits for all writes learns of the refusal even if it wakes when the others are published.
            self.resolved.send_modify(|resolved| resolved.refused = Some((revision, why)));
        }
        if !batch.is_empty() {
            self.publish(batch);
        }
        if refused.transactions.is_empty() {
            return;
        }
        let known = self.pending().discard(&mut refused);
        let latest = refused.transactions.last();
        let latest = latest.and_then(|(transaction, why)| Some((last(transaction)?, why.clone())));
        self.resolved.send_modify(|resolved| {
            resolved.refused = latest;
            resolved.revision = resolved.revision.max(known);
        });
        for (transaction, why) in refused.transactions {
            tracing::warn!(error = %why, "a write is refused");
            let _ = transaction.done.send(Err(why));
        }
    }

    /// Applies a committed batch to memory, and notifies its callers and watches.
    fn publish(&self, batch: Vec<QueuedTransaction>) {
        // Record events before they are visible, so that a watcher of a scope reads all of them up to the committed
        // revision.
        let scope_signals =
            self.watchers.record(batch.iter().flat_map(|transaction| &transaction.writes));
        let mut callers = Vec::with_capacity(batch.len());
        let writes = batch.into_iter().flat_map(|QueuedTransaction { writes, done, .. }| {
            callers.push(done);
            writes
        });
        self.apply(writes, 0, scope_signals);
        for done in callers {
            // The caller may no longer wait.
            let _ = done.send(Ok(()));
        }
    }

    /// Applies the writes of etcd up to a revision to memory, and notifies watches. `writes` lacks writes of unknown
    /// resources, so `revision` may be later than that of the last write.
    pub(super) fn publish_up_to(&self, revision: u64, writes: Vec<Staged>) {
        let scope_signals = self.watchers.record(writes.iter());
        self.apply(writes.into_iter(), revision, scope_signals);
    }

    /// Replaces all objects by those of a revision. The changes in between are unknown, so all watches expire.
    pub(super) fn replace(&self, revision: u64, objects: Vec<Staged>) {
        let signals = {
            let mut state = self.write();
            state.replace(revision, objects)
        };
        let scope_signals = self.watchers.expire(revision);
        self.settled.send_replace(revision);
        for signal in scope_signals.into_iter().chain(signals) {
            signal.send_replace(revision);
        }
    }

    /// Applies recorded writes to memory, and notifies watches. The store then has at least the revision `at_least`.
    fn apply(
        &self,
        writes: impl Iterator<Item = Staged>,
        at_least: u64,
        scope_signals: ScopeSignals,
    ) {
        // Each changed collection's signal, with the revision of its last write.
        let mut collection_signals: Vec<(Arc<watch::Sender<u64>>, u64)> = Vec::new();
        let revision = {
            let mut state = self.write();
            for staged in writes {
                let revision = staged.event.entry.revision;
                let signal = state.apply(staged);
                let mut known = collection_signals.iter_mut();
                match known.find(|(known, _)| Arc::ptr_eq(known, &signal)) {
                    Some((_, last_write)) => *last_write = revision,
                    None => collection_signals.push((signal, revision)),
                }
            }
            state.revision = state.revision.max(at_least);
            state.revision
        };
        self.pending().remove_committed(revision);
        self.settled.send_replace(revision);
        self.resolved.send_modify(|resolved| resolved.revision = resolved.revision.max(revision));
        for signal in scope_signals {
            signal.send_replace(revision);
        }
        for (signal, revision) in collection_signals {
            signal.send_replace(revision);
        }
    }

    /// Refuses a batch, and all transactions that were staged after it. `refusal` applies to later transactions.
    fn refuse(&self, batch: Vec<QueuedTransaction>, why: &Arc<str>, refusal: Option<Refusal>) {
        let (staged_later, revision) = {
            let mut pending = self.pending();
            let staged_later = pending.discard_all(&self.read());
            pending.set_refusal(refusal);
            (staged_later, pending.revision())
        };
        self.resolved.send_replace(Resolved { revision, refused: Some((revision, why.clone())) });
        for transaction in batch.into_iter().chain(staged_later) {
            let _ = transaction.done.send(Err(why.clone()));
        }
    }

    /// Commits the queue until the store is dropped, on the store's thread.
    fn run(&self) {
        let mut delay = Duration::ZERO;
        loop {
            {
                let is_idle = |pending: &mut Pending| pending.is_empty() && !pending.stop;
                let (pending, _) = self
                    .wake
                    .wait_timeout_while(self.pending(), delay, is_idle)
                    .unwrap_or_else(PoisonError::into_inner);
                if pending.is_empty() && pending.stop {
                    return;
                }
            }
            delay = self.commit_queue();
        }
    }

    /// Commits the queue on the caller's thread, for a store without a thread.
    pub(super) fn commit_on_this_thread(&self) {
        if self.failed.borrow().is_none() {
            self.refuse_writes_after_panic(|| {
                self.commit_queue();
            });
        }
    }

    /// Runs [`run`](Self::run), and refuses writes if it panics.
    pub(super) fn run_guarded(&self) {
        self.refuse_writes_after_panic(|| self.run());
    }

    /// Runs `work`. If it panics, refuses all further writes, because the state of the disk is unknown.
    fn refuse_writes_after_panic(&self, work: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { return };
        let why: Arc<str> =
            format!("the store panicked: {}; restart the server", panic_text(&*panic)).into();
        tracing::error!(error = %why, "writes are refused");
        let refusal = Refusal { why: why.clone(), accepts_deletions: false };
        self.refuse(Vec::new(), &why, Some(refusal));
        self.failed.send_replace(Some(why));
    }

    /// Stops [`run`](Self::run) after the next commit.
    pub(super) fn stop(&self) {
        self.pending().stop = true;
        self.wake.notify_one();
    }
}
