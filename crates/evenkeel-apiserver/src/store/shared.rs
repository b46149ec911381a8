//! What all handles of a store share: the committed state, what is pending, and the durable engine.
//!
//! Locks are taken in this order: the engine, what is pending, the state. The engine's is held for a whole commit; readers and
//! the checks of transactions do not need it.

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

/// The shared parts of a store.
pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    /// The resources that have an index.
    pub(super) indexed_resources: IndexedResources,
    /// Tells the revision of each commit, once its writes can be seen.
    pub(super) settled: watch::Sender<u64>,
    pub(super) resolved: watch::Sender<Resolved>,
    /// Why nobody commits any more, once that is so.
    pub(super) failed: watch::Sender<Option<Arc<str>>>,
    pending: Mutex<Pending>,
    /// Something is queued, or the store is being dropped.
    wake: Condvar,
    /// Between memory and disk.
    pub(super) transformer: Arc<dyn Transformer>,
    /// Nothing for a store in memory.
    durable: Mutex<Option<Durable>>,
    /// Commits are made by a thread of their own; otherwise by whoever writes.
    pub(super) threaded: bool,
    /// Who watches what.
    pub(super) watchers: Watchers,
}

/// Up to which revision it is known whether writes are committed.
#[derive(Debug, Clone, Default)]
pub(super) struct Resolved {
    pub(super) revision: u64,
    /// The last revision that was refused, and why.
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

    /// Reads a collection; an empty one if nothing was stored or followed under this prefix yet.
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

    /// Locks what is pending.
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

    /// Commits the queue, shows it, and does what is due beside. Returns after which time there may be more to do.
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

    /// Applies a batch that is committed, and tells those who wait for it.
    fn publish(&self, batch: Vec<Waiting>) {
        // Recorded before it can be seen: what a watcher of a scope reads up to the committed revision is complete.
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
            // A caller that does not wait any more is none.
            let _ = done.send(Ok(()));
        }
    }

    /// Refuses a batch, and everything that was staged on top of it.
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

    /// Commits what is queued until the store is dropped: the work of the store's thread.
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

    /// Does a turn of a store without a thread, for whoever writes.
    pub(super) fn turn_here(&self) {
        if self.failed.borrow().is_none() {
            self.guard(|| {
                self.turn();
            });
        }
    }

    /// Does all turns of a store with a thread, which this is.
    pub(super) fn run_guarded(&self) {
        self.guard(|| self.run());
    }

    /// Refuses all writes after a panic in `work`: what is on disk is not known, and nobody commits any more.
    fn guard(&self, work: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { return };
        let why: Arc<str> =
            format!("the store panicked: {}; restart the server", panic_text(&*panic)).into();
        tracing::error!(error = %why, "writes are refused");
        let refusal = Refusal { why: why.clone(), but_deletions: false };
        self.refuse(Vec::new(), &why, Some(refusal));
        self.failed.send_replace(Some(why));
    }

    /// Ends [`run`](Self::run) after the next commit.
    pub(super) fn stop(&self) {
        self.pending().stop = true;
        self.wake.notify_one();
    }
}
