//! Commits to the durable engine, and recovery from its failures. After a failure, the store refuses writes until the
//! engine has the same records as memory and the disk has space again.
//!
//! | failure | until recovery | recovery |
//! |---|---|---|
//! | no space | the reserve is released, so that deletions succeed; other writes are refused | the disk has space again |
//! | a write or read fails | all writes are refused | the files open, have memory's records, and a commit succeeds |
//! | a sync fails | all writes are refused | all records are rewritten to a new file |

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use super::backend::{Backend, BackendError};
use super::engine::catch_engine_panic;
use super::entry::{Change, Entry};
use super::history::History;
use super::pending::Refusal;
use super::queued::QueuedTransaction;
use super::record::{self, StoredRecord, Transformer};
use super::refused::Refused;
use super::state::{Staged, State};
use crate::clock::Clock;
use crate::resource::ResourcePrefix;

/// Initial interval at which a failed engine is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum interval at which a failed engine is retried.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which a failed reservation of disk space is retried.
const RESERVE_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum delay until the next maintenance when no work is due.
const MAX_IDLE: Duration = Duration::from_secs(60);
/// Number of records that one step of a compaction removes.
const COMPACTION_STEP: usize = 256;

/// Transactions that are committed together.
type Batch = Vec<QueuedTransaction>;

/// Durable engine of a store, with its state of failure.
pub(super) struct Durable {
    backend: Box<dyn Backend>,
    transformer: Arc<dyn Transformer>,
    history: History,
    clock: Clock,
    /// Path of the data folder, for messages.
    folder: String,
    mode: Mode,
    /// Earliest time of the next retry of the engine or of the reservation; `None` if a retry need not wait.
    next_retry: Option<Instant>,
}

/// Writes that the engine accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    /// The engine accepts all writes.
    Healthy {
        /// Whether disk space is reserved for deletions on a full disk.
        reserved: bool,
    },
    /// The engine accepts only deletions.
    Full {
        why: String,
        /// Whether deletions may have freed space in the file that the engine can return to the disk.
        shrink: bool,
    },
    /// The engine accepts no writes.
    Failed {
        why: String,
        /// Whether the disk is full.
        full: bool,
        /// Whether recovery must rewrite all records, because the file may differ from memory.
        rewrite: bool,
        /// Delay between the last retry and the next one.
        retry: Duration,
    },
}

impl Durable {
    pub(super) fn new(
        backend: Box<dyn Backend>,
        transformer: Arc<dyn Transformer>,
        history: History,
        clock: Clock,
        folder: String,
    ) -> Self {
        let mode = Mode::Healthy { reserved: false };
        // Reserve disk space later, so that the first writes do not wait for it.
        let next_retry = Some(clock.instant() + RETRY_INTERVAL);
        Self { backend, transformer, history, clock, folder, mode, next_retry }
    }

    /// Reserves disk space before the first write, for a folder that has objects. Its disk may have become full before the
    /// start.
    pub(super) fn reserve_now(mut self) -> Self {
        self.next_retry = None;
        self.reserve();
        self
    }

    /// Reserves disk space. On a disk without room for it, the engine accepts only deletions from now on: other writes would
    /// take the room that deletions need.
    fn reserve(&mut self) {
        match self.backend.reserve() {
            Ok(()) => {
                self.mode = Mode::Healthy { reserved: true };
                self.next_retry = None;
            }
            Err(BackendError::Full(why)) => {
                self.mode = Mode::Full { why, shrink: true };
                self.next_retry = Some(self.clock.instant() + RETRY_INTERVAL);
                if let Some(refusal) = self.refusal() {
                    tracing::error!(error = %refusal.why, "writes are refused");
                }
            }
            Err(error) => {
                tracing::debug!(%error, "no disk space is reserved");
                self.next_retry = Some(self.clock.instant() + RESERVE_RETRY_INTERVAL);
            }
        }
    }

    /// Returns which writes the store refuses, with the reason; `None` if the engine is healthy.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let folder = &self.folder;
        let (why, accepts_deletions) = match &self.mode {
            Mode::Healthy { .. } => return None,
            Mode::Full { why, .. } => (
                format!(
                    "the disk of the data folder {folder} is full ({why}): objects can be read and deleted; make room on it, and writes go on by themselves"
                ),
                true,
            ),
            Mode::Failed { why, full: true, .. } => (
                format!(
                    "the disk of the data folder {folder} is full ({why}): objects can be read; make room on it, and writes go on by themselves"
                ),
                false,
            ),
            Mode::Failed { why, full: false, .. } => (
                format!(
                    "the data folder {folder} cannot be written to ({why}): objects can be read; check its disk and permissions, and writes go on by themselves"
                ),
                false,
            ),
        };
        Some(Refusal { why: why.into(), accepts_deletions })
    }

    /// Commits a batch. The returned transactions are on disk; those that cannot be encoded, and those that depend on
    /// them, are refused.
    ///
    /// # Errors
    /// Reason why no part of the batch was written, with the batch.
    pub(super) fn commit(
        &mut self,
        batch: Batch,
        state: &RwLock<State>,
    ) -> Result<(Batch, Refused), (Batch, Arc<str>)> {
        if let Mode::Failed { .. } = self.mode {
            return Err((batch, self.refusal_reason()));
        }
        let (mut accepted, mut refused, mut records) =
            (Vec::with_capacity(batch.len()), Refused::default(), Vec::new());
        for transaction in batch {
            let encoded = match refused.reason_for(&transaction) {
                Some(why) => Err(why),
                None => self.encode(&transaction).map_err(Arc::from),
            };
            match encoded {
                Ok(encoded) => {
                    records.extend(encoded);
                    accepted.push(transaction);
                }
                Err(why) => refused.add(transaction, why),
            }
        }
        if accepted.is_empty() {
            return Ok((accepted, refused));
        }
        let committed = catch_engine_panic(|| self.backend.commit(&records), BackendError::Damaged);
        if let Err(error) = committed {
            self.fail(&error, state);
            accepted.extend(refused.transactions.into_iter().map(|(transaction, _)| transaction));
            return Err((accepted, self.refusal_reason()));
        }
        self.history.confirm_removals();
        for staged in accepted.iter().flat_map(|transaction| &transaction.writes) {
            let event = &staged.event;
            let superseded = event.previous.as_ref().map(|entry| (entry.revision, entry.size()));
            let is_deletion = event.entry.change == Change::Deleted;
            self.history.add_record(event.entry.revision, is_deletion, superseded);
        }
        if let Mode::Full { shrink, .. } = &mut self.mode {
            *shrink = true;
        }
        Ok((accepted, refused))
    }

    /// Encodes the records of a transaction.
    fn encode(&self, transaction: &QueuedTransaction) -> Result<Vec<StoredRecord>, String> {
        let encode = |staged: &Staged| {
            record::encode(&staged.resource_prefix, &staged.event.entry, &*self.transformer)
        };
        transaction.writes.iter().map(encode).collect()
    }

    /// Returns the reason of the refusal, after a failure.
    fn refusal_reason(&self) -> Arc<str> {
        let why = self.refusal().map(|refusal| refusal.why);
        why.unwrap_or_else(|| "the data folder cannot be written to".into())
    }

    /// Records a failure, so that the store refuses writes. If the disk is full, it releases the reserve, so that
    /// deletions succeed.
    fn fail(&mut self, error: &BackendError, state: &RwLock<State>) {
        let was_healthy = matches!(self.mode, Mode::Healthy { .. });
        let full = matches!(error, BackendError::Full(_));
        let rewrite = error.is_loss();
        let why = error.to_string();
        self.mode = Mode::Failed { why: why.clone(), full, rewrite, retry: RETRY_INTERVAL };
        self.next_retry = Some(self.clock.instant() + RETRY_INTERVAL);
        if full && was_healthy {
            self.backend.release();
            self.mode = match self.restore(state, false) {
                Ok(()) => Mode::Full { why, shrink: true },
                Err(error) => {
                    Mode::Failed { why, full, rewrite: error.is_loss(), retry: RETRY_INTERVAL }
                }
            };
        }
        if let Some(refusal) = self.refusal().filter(|_| was_healthy) {
            tracing::error!(error = %refusal.why, "writes are refused");
        }
    }

    /// Reopens the engine's files. Rewrites them from memory if their last revision differs from memory's, or if
    /// `rewrite` is true.
    fn restore(&mut self, state: &RwLock<State>, rewrite: bool) -> Result<(), BackendError> {
        let read = || state.read().unwrap_or_else(PoisonError::into_inner);
        if !rewrite {
            let extent = catch_engine_panic(|| self.backend.reopen(), BackendError::Damaged)?;
            // The file may have the state before the last compactions, because these were not synced.
            self.history.undo_removals();
            if extent.revision == read().revision {
                return Ok(());
            }
        }
        let (compacted, records) = read().records();
        let mut history = History::new(compacted);
        let mut live = LiveRecords::new();
        let mut encoded = records.iter().map(|(revision, (resource_prefix, entry))| {
            record_write(&mut history, &mut live, *revision, resource_prefix, entry);
            record::encode(resource_prefix, entry, &*self.transformer)
        });
        catch_engine_panic(
            || self.backend.rewrite(compacted, &mut encoded),
            BackendError::Damaged,
        )?;
        drop(encoded);
        self.history = history;
        tracing::warn!(folder = self.folder, "the data folder's file was rewritten from memory");
        Ok(())
    }

    /// Does the work that is due besides commits: retries after failures, reserves disk space, compacts the history.
    /// Returns the delay until the next call.
    pub(super) fn maintain(&mut self, state: &RwLock<State>) -> Duration {
        let now = self.clock.instant();
        let is_due = self.next_retry.is_none_or(|next| next <= now);
        match self.mode.clone() {
            Mode::Healthy { reserved } => {
                if !reserved && is_due {
                    self.reserve();
                }
                self.history.schedule(now);
                self.compact(state);
            }
            Mode::Full { why, shrink } => {
                self.history.compact_all();
                self.compact(state);
                if is_due && matches!(self.mode, Mode::Full { .. }) && !self.history.is_due() {
                    self.next_retry = Some(now + RETRY_INTERVAL);
                    self.retry_full(why, shrink, state);
                }
            }
            Mode::Failed { why, full, rewrite, retry } if is_due => {
                let retry = (retry * 2).min(MAX_RETRY_INTERVAL);
                self.next_retry = Some(now + retry);
                self.mode = Mode::Failed { why, full, rewrite, retry };
                self.retry_failed(full, rewrite, state);
            }
            Mode::Failed { .. } => {}
        }
        if self.history.is_due() && !matches!(self.mode, Mode::Failed { .. }) {
            return Duration::ZERO;
        }
        self.next_retry.map_or(MAX_IDLE, |next| next.saturating_duration_since(now)).min(MAX_IDLE)
    }

    /// Removes some of the records that are due for removal.
    fn compact(&mut self, state: &RwLock<State>) {
        if !self.history.is_due() {
            return;
        }
        let superseded = self.history.take_due(COMPACTION_STEP);
        let compacted = self.history.compacted();
        let compaction = catch_engine_panic(
            || self.backend.compact(compacted, &superseded),
            BackendError::Damaged,
        );
        if let Err(error) = compaction {
            self.fail(&error, state);
        }
    }

    /// Accepts all writes again if the disk has space for the reserve. First shrinks the file if deletions may have
    /// freed space in it.
    fn retry_full(&mut self, why: String, shrink: bool, state: &RwLock<State>) {
        if shrink {
            self.mode = Mode::Full { why, shrink: false };
            if let Err(error) = catch_engine_panic(|| self.backend.shrink(), BackendError::Damaged)
            {
                return self.fail(&error, state);
            }
        }
        if self.backend.reserve().is_ok() {
            self.resume_writes();
        }
    }

    /// Restores a failed engine, and commits an empty batch as a test.
    fn retry_failed(&mut self, full: bool, rewrite: bool, state: &RwLock<State>) {
        // Reopening reads the whole file, so wait until the disk has space.
        if full && self.backend.reserve().is_err() {
            return;
        }
        let restored = self
            .restore(state, rewrite)
            .and_then(|()| catch_engine_panic(|| self.backend.commit(&[]), BackendError::Damaged));
        match restored {
            Ok(()) => self.resume_writes(),
            Err(error) => {
                if let Mode::Failed { why, rewrite, full, .. } = &mut self.mode {
                    *rewrite |= error.is_loss();
                    *full = matches!(error, BackendError::Full(_));
                    *why = error.to_string();
                }
            }
        }
    }

    /// Accepts writes again after a failure.
    fn resume_writes(&mut self) {
        self.mode = Mode::Healthy { reserved: false };
        self.next_retry = None;
        tracing::info!(folder = self.folder, "writes go on");
    }
}

/// Revision and size in bytes of the last record of each object, by resource prefix and key.
type LiveRecords = HashMap<(ResourcePrefix, Arc<str>), (u64, usize)>;

/// Records a write in the history. `live` has the records of the objects before the write.
fn record_write(
    history: &mut History,
    live: &mut LiveRecords,
    revision: u64,
    resource_prefix: &ResourcePrefix,
    entry: &Entry,
) {
    let object = (resource_prefix.clone(), entry.key.clone());
    let is_deletion = entry.change == Change::Deleted;
    let superseded = if is_deletion {
        live.remove(&object)
    } else {
        live.insert(object, (revision, entry.size()))
    };
    history.add_record(revision, is_deletion, superseded);
}
