//! Handle of the store: writes, and reads of single objects.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_api::json;
use evenkeel_tasks::watch;
use futures::future::select_all;
use serde_json::Value;

use super::entry::{Encoded, Entry};
use super::error::OpenError;
use super::folder::{DiskFolder, Folder};
use super::index::IndexedResources;
use super::open;
#[cfg(test)]
use super::pending::Refusal;
use super::pending::StagedTransaction;
use super::record::{Identity, Transformer};
use super::shared::Shared;
use super::state::State;
use super::transaction::{Expect, Transaction, WriteError};
use super::writer::Writer;
use crate::clock::Clock;
use crate::resource::ResourcePrefix;

/// Returns an error if an object may not be stored. A dry run calls this, because it commits no transaction.
pub(crate) fn check_storable(object: &Value) -> Result<(), WriteError> {
    if json::is_deeper(object, json::MAX_DEPTH) { Err(WriteError::TooDeep) } else { Ok(()) }
}

/// Handle of the store. Clones are cheap. Dropping the last clone stops the store's thread.
#[derive(Clone)]
pub(crate) struct Store {
    pub(super) shared: Arc<Shared>,
    /// Stops the store's thread when it drops.
    writer: Option<Arc<Writer>>,
}

impl Store {
    /// Creates a store in memory, with the indexes of these resources.
    pub(crate) fn in_memory(indexed_resources: IndexedResources) -> Self {
        let state = State::new(0, indexed_resources);
        let shared = Shared::new(state, None, Arc::new(Identity), indexed_resources, false);
        Self { shared: Arc::new(shared), writer: None }
    }

    /// Opens a store in a data folder. If `threaded`, a thread commits, so that concurrent writers share a sync.
    /// Otherwise each writer commits itself, because a single-threaded runtime in virtual time must not wait for
    /// another thread.
    pub(crate) fn open(
        folder: &Path,
        threaded: bool,
        indexed_resources: IndexedResources,
        transformer: Arc<dyn Transformer>,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let path = folder.display().to_string();
        let folder = Arc::new(DiskFolder(folder.to_owned()));
        let mut store = Self::open_in(folder, transformer, indexed_resources, clock, threaded)?;
        if threaded {
            let writer = Writer::start(store.shared.clone());
            let writer = writer.map_err(|source| OpenError::Io { path, source })?;
            store.writer = Some(Arc::new(writer));
        }
        Ok(store)
    }

    /// Opens a store in the files of `folder`, without starting its thread.
    pub(super) fn open_in(
        folder: Arc<dyn Folder>,
        transformer: Arc<dyn Transformer>,
        indexed_resources: IndexedResources,
        clock: Clock,
        threaded: bool,
    ) -> Result<Self, OpenError> {
        let (state, durable) = open::open(folder, transformer.clone(), indexed_resources, clock)?;
        let shared = Shared::new(state, Some(durable), transformer, indexed_resources, threaded);
        Ok(Self { shared: Arc::new(shared), writer: None })
    }

    /// Creates a handle without a thread.
    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self { shared, writer: None }
    }

    /// Sets the maximum size in bytes of all objects. Beyond it, the store refuses writes that add to the size. A store
    /// in etcd has etcd's own limit instead.
    pub(crate) fn set_quota(&self, bytes: usize) {
        self.shared.pending().set_quota(bytes);
    }

    /// Returns the size in bytes of all objects, without their history.
    pub(crate) fn object_bytes(&self) -> usize {
        self.shared.read().object_bytes
    }

    /// Returns the revision up to which all writes are visible.
    pub(crate) fn revision(&self) -> u64 {
        self.shared.read().revision
    }

    /// Returns the revision of the last known write to a collection, or 0 if none is known.
    pub(crate) fn last_write_revision(&self, resource_prefix: &str) -> u64 {
        self.shared
            .read()
            .collections
            .get(resource_prefix)
            .map_or(0, |collection| collection.last_write)
    }

    /// Returns the number of objects in a collection.
    pub(crate) fn count(&self, resource_prefix: &str) -> usize {
        self.shared
            .read()
            .collections
            .get(resource_prefix)
            .map_or(0, |collection| collection.objects.len())
    }

    /// Returns the object with this key.
    pub(crate) fn get(&self, resource_prefix: &str, key: &str) -> Option<Arc<Entry>> {
        self.shared.read().get(resource_prefix, key).cloned()
    }

    /// Returns the newest state of an object, even if it is not committed yet, for a write that expects this state. Any
    /// other use of this state must wait for [`settle`](Self::settle).
    pub(crate) fn latest(&self, resource_prefix: &str, key: &str) -> Option<Arc<Entry>> {
        let pending = self.shared.pending();
        pending.get(&self.shared.read(), resource_prefix, key)
    }

    /// Returns whether the newest state of an object of an indexed resource has this value; see
    /// [`latest`](Self::latest).
    pub(crate) fn is_taken(&self, resource_prefix: &str, value: &str) -> bool {
        let pending = self.shared.pending();
        pending.is_taken(&self.shared.read(), resource_prefix, value)
    }

    /// Returns an error with the reason if the store refuses writes.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.etcd_health()?;
        self.retry_if_due();
        self.shared.pending().refusal().map_or(Ok(()), |refusal| Err(refusal.why.to_string()))
    }

    /// Waits until the store has failed permanently, and returns the reason. The future does not keep the store alive.
    pub(crate) fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        let mut failed = self.shared.failed.subscribe();
        async move {
            match failed.wait_for(Option::is_some).await.map(|why| why.clone()) {
                Ok(Some(why)) => why.to_string(),
                // The store was dropped.
                _ => std::future::pending().await,
            }
        }
    }

    /// Returns the bytes of all recent events, with their frames.
    #[cfg(test)]
    pub(crate) fn held_by_events(&self) -> usize {
        self.shared.read().history_bytes.bytes()
    }

    /// Makes the next commit panic.
    #[cfg(test)]
    pub(crate) fn plant_panic(&self) {
        self.shared.pending().planted_panic = true;
    }

    /// Refuses writes of a store in memory, as a full disk does, or accepts them again.
    #[cfg(test)]
    pub(crate) fn refuse_writes(&self, refuse: bool) {
        let refusal = Refusal { why: "it is full".into(), accepts_deletions: false };
        self.shared.pending().set_refusal(refuse.then_some(refusal));
    }

    /// Retries a failed engine if a retry is due. Only for a store without a thread, which otherwise does this.
    fn retry_if_due(&self) {
        if !self.shared.threaded && self.shared.pending().refusal().is_some() {
            self.shared.commit_on_this_thread();
        }
    }

    /// Waits until the store has reached this revision, for reads that require it.
    pub(crate) async fn wait_for_revision(&self, revision: u64) -> Result<(), WriteError> {
        if let Some(etcd) = &self.shared.etcd {
            return self.shared.wait_for_etcd(etcd, revision).await;
        }
        let mut settled = self.shared.settled.subscribe();
        let reached = settled.wait_for(|settled| *settled >= revision).await;
        reached.map(|_| ()).map_err(|_| closed())
    }

    /// Commits a transaction, and returns the written entries in order; a deleted object is in its last state. The
    /// transaction is staged before the first await, so that it is committed as a whole even if the caller's future is
    /// dropped while it waits.
    pub(crate) async fn commit(
        &self,
        mut transaction: Transaction,
    ) -> Result<Vec<Arc<Entry>>, WriteError> {
        transaction.check_objects()?;
        transaction.check_taken()?;
        if transaction.len() == 0 {
            return self.settle().await.map(|()| Vec::new());
        }
        if let Some(etcd) = &self.shared.etcd {
            return self.shared.commit_to_etcd(etcd, transaction).await;
        }
        loop {
            self.retry_if_due();
            let index_values = transaction.index_values(self.shared.indexed_resources);
            let not_staged = match self.shared.stage(transaction, index_values) {
                Ok(StagedTransaction { entries, outcome }) => {
                    if !self.shared.threaded {
                        self.shared.commit_on_this_thread();
                    }
                    let outcome = outcome.await.map_err(|_| closed())?;
                    return outcome.map(|()| entries).map_err(WriteError::Storage);
                }
                Err(not_staged) => not_staged,
            };
            // An error must not depend on pending writes, which may never be committed. Wait for them and stage again.
            match not_staged.depends_on {
                None => return Err(not_staged.error),
                Some(revision) => self.wait_for_outcome(revision).await?,
            }
            transaction = not_staged.transaction;
        }
    }

    /// Waits until the outcome of all writes up to a revision is known.
    async fn wait_for_outcome(&self, revision: u64) -> Result<(), WriteError> {
        let mut resolved = self.shared.resolved.subscribe();
        let known = resolved.wait_for(|resolved| resolved.revision >= revision).await;
        known.map(|_| ()).map_err(|_| closed())
    }

    /// Waits until all staged writes are committed.
    ///
    /// # Errors
    /// Fails if some of the writes were refused.
    pub(crate) async fn settle(&self) -> Result<(), WriteError> {
        let (committed, staged) = {
            let pending = self.shared.pending();
            let committed = self.shared.read().revision;
            let staged = if pending.has_any() { pending.revision() } else { committed };
            (committed, staged)
        };
        if staged <= committed {
            return Ok(());
        }
        self.wait_for_outcome(staged).await?;
        match &self.shared.resolved.borrow().refused {
            Some((refused, why)) if *refused > committed => Err(WriteError::Storage(why.clone())),
            _ => Ok(()),
        }
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

    /// Returns whether a resource has an index.
    pub(crate) fn is_indexed(&self, resource_prefix: &str) -> bool {
        self.shared.indexed_resources.iter().any(|(indexed, _)| *indexed == resource_prefix)
    }

    /// Signals writes to a collection once they are visible. The receiver does not keep the store alive.
    pub(crate) fn changes(&self, resource_prefix: &ResourcePrefix) -> watch::Receiver<u64> {
        self.shared.read_collection(resource_prefix, |collection| collection.signal.subscribe())
    }

    /// Returns all objects of a collection.
    pub(crate) fn all(&self, resource_prefix: &str) -> Vec<Arc<Entry>> {
        self.shared
            .read()
            .collections
            .get(resource_prefix)
            .map_or_else(Vec::new, |collection| collection.objects.values().cloned().collect())
    }
}

fn closed() -> WriteError {
    WriteError::Storage("the store is closed".into())
}

/// Waits for a signal of [`Store::changes`], at most for `max_wait`. Returns `false` if the store was dropped.
pub(crate) async fn wait_for_change(
    changes: &mut watch::Receiver<u64>,
    max_wait: Option<Duration>,
) -> bool {
    wait_for_any_change(std::slice::from_mut(changes), max_wait).await
}

/// Waits like [`wait_for_change`] for a signal of any of several collections.
pub(crate) async fn wait_for_any_change(
    changes: &mut [watch::Receiver<u64>],
    max_wait: Option<Duration>,
) -> bool {
    let any_change = select_all(changes.iter_mut().map(|changes| Box::pin(changes.changed())));
    let timeout = async {
        match max_wait {
            Some(delay) => tokio::time::sleep(delay).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        (changed, ..) = any_change => changed.is_ok(),
        () = timeout => true,
    }
}
