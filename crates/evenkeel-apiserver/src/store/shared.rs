//! Parts of a store that its handles share: committed state, pending writes and durable engine.
//!
//! Lock order: engine, pending writes, state. A commit holds the engine's lock all the time. Reads and checks of
//! transactions do not need this lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

use evenkeel_tasks::panic_text;
use tokio::sync::watch;

use super::durable::Durable;
use super::index::IndexedResources;
use super::pending::{NotStaged, Pending, Refusal, StagedTransaction, Waiting};
use super::record::Transformer;
use super::state::{Collection, State};
use super::transaction::Transaction;
use super::watchers::Watchers;
use crate::resource::ResourcePrefix;

/// Shared parts of a store.
pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    /// Resources that have an index.
    pub(super) indexed_resources: IndexedResources,
    /// Signals the revision of each commit once its writes are visible.
    pub(super) settled: watch::Sender<u64>,
    pub(super) resolved: watch::Sender<Resolved>,
    /// Reason why the store has failed for good; `None` otherwise.
    pub(super) failed: watch::Sender<Option<Arc<str>>>,
    pending: Mutex<Pending>,
    /// Signals a queued transaction or the drop of the store.
    wake: Condvar,
    /// Transformer between memory and disk.
    pub(super) transformer: Arc<dyn Transformer>,
    /// Durable engine; `None` for a store in memory.
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
        Self {
            indexed_resources,
            settled: watch::Sender::new(revision),
            resolved: watch::Sender::new(Resolved { revision, refused: None }),
            failed: watch::Sender::new(None),
            pending: Mutex::new(Pending::new(revision)),
            state: RwLock::new(state),
            wake: Condvar::new(),
            transformer,
            durable: Mutex::new(durable),
            threaded,
            watchers: Watchers::new(revision),
        }
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
        if let Some(kept) = self.read().collections.get(resource_prefix) {
            return read(kept);
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

    /// Checks a transaction and queues it.
    pub(super) fn stage(
        &self,
        transaction: Transaction,
        values: Vec<(usize, Vec<String>)>,
    ) -> Result<StagedTransaction, Box<NotStaged>> {
        let staged = self.pending().stage(&self.read(), transaction, values);
        if self.threaded && staged.is_ok() {
            self.wake.notify_one();
        }
        staged
    }

    /// Commits the queue, publishes it, and does due maintenance. Returns the delay until the next turn.
    pub(super) fn turn(&self) -> Duration {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = self.pending().take();
        #[cfg(test)]
        assert!(!self.pending().planted_panic, "planted");
        if !batch.is_empty() {
            let committed = match &mut *durable {
                Some(durable) => durable.commit(&batch, &self.state),
                None => Ok(()),
            };
            let refusal = durable.as_ref().and_then(Durable::refusal);
            match committed {
                Ok(()) => self.publish(batch),
                Err(why) => self.refuse(batch, &why, refusal),
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

    /// Applies a committed batch to memory, and notifies its callers and watches.
    fn publish(&self, batch: Vec<Waiting>) {
        // Record events before they are visible, so that a watcher of a scope reads all of them up to the committed
        // revision.
        let scoped = self.watchers.record(batch.iter().flat_map(|waiting| &waiting.writes));
        let mut signals: Vec<(Arc<watch::Sender<u64>>, u64)> = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        let revision = {
            let mut state = self.write();
            for Waiting { writes, done } in batch {
                for staged in writes {
                    let revision = staged.event.entry.revision;
                    let signal = state.apply(staged);
                    match signals.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &signal)) {
                        Some((_, latest)) => *latest = revision,
                        None => signals.push((signal, revision)),
                    }
                }
                answers.push(done);
            }
            state.revision
        };
        self.pending().committed(revision);
        self.settled.send_replace(revision);
        self.resolved.send_modify(|resolved| resolved.revision = resolved.revision.max(revision));
        for signal in scoped {
            signal.send_replace(revision);
        }
        for (signal, revision) in signals {
            signal.send_replace(revision);
        }
        for done in answers {
            // The caller may have been dropped.
            let _ = done.send(Ok(()));
        }
    }

    /// Refuses a batch, and all transactions that were staged after it.
    fn refuse(&self, batch: Vec<Waiting>, why: &Arc<str>, refusal: Option<Refusal>) {
        let (more, revision) = {
            let mut pending = self.pending();
            let more = pending.take_back();
            pending.set_refusal(refusal);
            (more, pending.revision())
        };
        self.resolved.send_replace(Resolved { revision, refused: Some((revision, why.clone())) });
        for waiting in batch.into_iter().chain(more) {
            let _ = waiting.done.send(Err(why.clone()));
        }
    }

    /// Commits the queue until the store is dropped, on the store's thread.
    fn run(&self) {
        let mut delay = Duration::ZERO;
        loop {
            {
                let idle = |pending: &mut Pending| pending.is_empty() && !pending.stop;
                let (pending, _) = self
                    .wake
                    .wait_timeout_while(self.pending(), delay, idle)
                    .unwrap_or_else(PoisonError::into_inner);
                if pending.is_empty() && pending.stop {
                    return;
                }
            }
            delay = self.turn();
        }
    }

    /// Runs one turn on the caller's thread, for a store without a thread.
    pub(super) fn turn_here(&self) {
        if self.failed.borrow().is_none() {
            self.guard(|| {
                self.turn();
            });
        }
    }

    /// Runs all turns on the store's thread.
    pub(super) fn run_guarded(&self) {
        self.guard(|| self.run());
    }

    /// Refuses all writes after a panic in `work`, because the state of the disk is unknown.
    fn guard(&self, work: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { return };
        let why: Arc<str> =
            format!("the store panicked: {}; restart the server", panic_text(&*panic)).into();
        tracing::error!(error = %why, "writes are refused");
        let refusal = Refusal { why: why.clone(), but_deletions: false };
        self.refuse(Vec::new(), &why, Some(refusal));
        self.failed.send_replace(Some(why));
    }

    /// Stops [`run`](Self::run) after the next commit.
    pub(super) fn stop(&self) {
        self.pending().stop = true;
        self.wake.notify_one();
    }
}
