//! The handle of the store: writes, and reads of single objects.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use evenkeel_api::json;
use serde_json::Value;
use tokio::sync::watch;

use super::entry::{Encoded, Entry};
use super::index::IndexedResources;
use super::log::{Log, OpenError};
use super::shared::Shared;
use super::state::State;
use super::transaction::{Expect, Transaction, WriteError};
use super::writer::Writer;
use crate::resource::ResourcePrefix;

/// After a start, revisions go on this far past the last one on disk: those in between may have been seen but never
/// acknowledged, and a watch from one of them must be told to start anew.
const GAP: u64 = 1_000;

/// Whether an object may be stored, for a dry run that does not store it.
pub(crate) fn storable(object: &Value) -> Result<(), WriteError> {
    if json::is_deeper(object, json::MAX_DEPTH) { Err(WriteError::TooDeep) } else { Ok(()) }
}

/// The store. Cheap to clone; the last clone to go stops the log's thread.
#[derive(Clone)]
pub(crate) struct Store {
    pub(super) shared: Arc<Shared>,
    _writer: Option<Arc<Writer>>,
}

impl Store {
    /// A store in memory only, with the indexes of these resources.
    pub(crate) fn in_memory(indexed_resources: IndexedResources) -> Self {
        let state = State::new(0, Vec::new(), indexed_resources);
        Self::unthreaded(Shared::new(state, None, indexed_resources, false))
    }

    /// A store whose writers commit by themselves.
    pub(super) fn unthreaded(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), _writer: None }
    }

    /// A store with its log at `path`. `threaded`: the log has a thread, so that many writers share one commit; without,
    /// each writer commits by itself (a single-threaded runtime in virtual time must not wait for another thread).
    pub(crate) fn open(
        path: &Path,
        threaded: bool,
        indexed_resources: IndexedResources,
    ) -> Result<Self, OpenError> {
        let (log, recovered) = Log::open(path)?;
        let revision = if recovered.revision == 0 { 0 } else { recovered.revision + GAP };
        let state = State::new(revision, recovered.entries, indexed_resources);
        let shared = Arc::new(Shared::new(state, Some(log), indexed_resources, threaded));
        let writer = threaded
            .then(|| Writer::start(shared.clone()))
            .transpose()
            .map_err(|source| OpenError::Io { path: path.display().to_string(), source })?;
        Ok(Self { shared, _writer: writer.map(Arc::new) })
    }

    /// The revision up to which everything can be seen.
    pub(crate) fn revision(&self) -> u64 {
        *self.shared.settled.borrow()
    }

    /// Revision of the last write to a collection, 0 where there was none since the start.
    pub(crate) fn touched(&self, resource_prefix: &str) -> u64 {
        self.shared.read().collections.get(resource_prefix).map_or(0, |s| s.touched)
    }

    /// Number of objects in a collection.
    pub(crate) fn count(&self, resource_prefix: &str) -> usize {
        self.shared.read().collections.get(resource_prefix).map_or(0, |s| s.objects.len())
    }

    /// The object with this key as it is at this moment, whether or not that is on disk yet: for decisions that end in a
    /// write, which will come after it.
    pub(crate) fn peek(&self, resource_prefix: &str, key: &str) -> Option<Arc<Entry>> {
        self.shared.read().collections.get(resource_prefix)?.objects.get(key).cloned()
    }

    /// The object with this key, once that is on disk.
    pub(crate) async fn get(
        &self,
        resource_prefix: &str,
        key: &str,
    ) -> Result<Option<Arc<Entry>>, WriteError> {
        let (entry, revision) = {
            let state = self.shared.read();
            let Some(collection) = state.collections.get(resource_prefix) else { return Ok(None) };
            let entry = collection.objects.get(key).cloned();
            let revision = entry.as_ref().map_or(collection.touched, |e| e.revision);
            (entry, revision)
        };
        self.settled(revision).await?;
        Ok(entry)
    }

    /// Waits until this revision is on disk.
    pub(super) async fn settled(&self, revision: u64) -> Result<(), WriteError> {
        if *self.shared.settled.borrow() >= revision {
            return Ok(());
        }
        let mut settled = self.shared.settled.subscribe();
        loop {
            if *settled.borrow_and_update() >= revision {
                return Ok(());
            }
            if let Some(error) =
                &self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).failed
            {
                return Err(WriteError::Disk(error.clone()));
            }
            if settled.changed().await.is_err() {
                return Err(WriteError::Disk("the store is closed".into()));
            }
        }
    }

    /// Why nothing can be written any more.
    pub(crate) fn health(&self) -> Result<(), String> {
        let queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.failed.as_ref().map_or(Ok(()), |why| Err(why.to_string()))
    }

    /// Waits until the store has reached this revision (for reads that ask for one not older).
    pub(crate) async fn reached(&self, revision: u64) -> Result<(), WriteError> {
        self.settled(revision).await
    }

    /// Commits a transaction. It is staged before the first await: a caller that is dropped while it waits for the disk
    /// leaves a whole transaction. Gives what was written, in order; a deleted object as watches see it go.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
    ) -> Result<Vec<Arc<Entry>>, WriteError> {
        let entries = self.stage(transaction)?;
        if let Some(last) = entries.last() {
            self.finish(last.revision).await?;
        }
        Ok(entries)
    }

    /// Writes one object.
    pub(crate) async fn put(
        &self,
        resource_prefix: &ResourcePrefix,
        key: &str,
        expect: Expect,
        object: Encoded,
    ) -> Result<Arc<Entry>, WriteError> {
        let mut transaction = Transaction::default();
        transaction.put(resource_prefix, key, expect, object);
        let mut written = self.commit(transaction).await?;
        written.pop().ok_or(WriteError::Mismatch { op: 0 })
    }

    /// Commits a transaction without waiting for the disk. Readers and watchers see it with the next write, or shortly
    /// after when no other write follows: a request that is refused or cancelled must not leave them waiting.
    pub(crate) fn commit_lazily(&self, transaction: Transaction) -> Result<(), WriteError> {
        self.stage(transaction)?;
        self.shared.commit_soon()
    }

    /// Runs `writes`, whose lazy writes are committed together.
    pub(crate) fn batch<T>(&self, writes: impl FnOnce() -> T) -> Result<T, WriteError> {
        let count = |by: fn(usize) -> usize| {
            let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.batches = by(queue.batches);
        };
        count(|batches| batches + 1);
        let written = writes();
        count(|batches| batches.saturating_sub(1));
        self.shared.commit_soon()?;
        Ok(written)
    }

    /// Checks and applies a transaction under one lock, and puts it in line for the log as a whole.
    fn stage(&self, transaction: Transaction) -> Result<Vec<Arc<Entry>>, WriteError> {
        transaction.check_objects()?;
        let indexed = transaction.indexed(|resource_prefix| self.is_indexed(resource_prefix));
        let mut state = self.shared.write();
        state.check(&transaction)?;
        let staged = state.apply(transaction, &indexed);
        let entries = staged.iter().map(|staged| staged.event.entry.clone()).collect();
        self.shared.stage(staged);
        Ok(entries)
    }

    /// Whether a resource has an index.
    pub(crate) fn is_indexed(&self, resource_prefix: &str) -> bool {
        self.shared.indexed_resources.iter().any(|(indexed, _)| *indexed == resource_prefix)
    }

    /// Whether an object of an indexed resource has this value at this moment; see [`Store::peek`].
    pub(crate) fn is_taken(&self, resource_prefix: &str, value: &str) -> bool {
        self.shared.read().is_taken(resource_prefix, value)
    }

    /// Waits until everything written so far is on disk.
    pub(crate) async fn settle(&self) -> Result<(), WriteError> {
        let revision = self.shared.read().revision;
        self.finish(revision).await
    }

    async fn finish(&self, revision: u64) -> Result<(), WriteError> {
        if !self.shared.threaded {
            return self.shared.flush();
        }
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).urgent = true;
        self.shared.wake.notify_one();
        self.settled(revision).await
    }

    /// Tells of writes to a collection, once they can be seen. It does not keep the store.
    pub(crate) fn changes(&self, resource_prefix: &ResourcePrefix) -> watch::Receiver<u64> {
        self.shared.write().collection(resource_prefix).signal.subscribe()
    }

    /// All objects of a collection, without waiting; for the start and for rules that are compiled from them.
    pub(crate) fn all(&self, resource_prefix: &str) -> Vec<Arc<Entry>> {
        self.shared
            .read()
            .collections
            .get(resource_prefix)
            .map_or_else(Vec::new, |s| s.objects.values().cloned().collect())
    }
}

/// Waits for what [`Store::changes`] tells, or until it is time to look `again`; `false` when there is nothing more to come.
pub(crate) async fn changed(changes: &mut watch::Receiver<u64>, again: Option<Duration>) -> bool {
    let wait = async {
        match again {
            Some(delay) => tokio::time::sleep(delay).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        changed = changes.changed() => changed.is_ok(),
        () = wait => true,
    }
}
