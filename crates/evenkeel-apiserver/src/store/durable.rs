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
use super::engine::guarded;
use super::entry::{Change, Entry};
use super::history::History;
use super::pending::{Refusal, Waiting};
use super::record::{self, StoredRecord, Transformer};
use super::state::State;
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

/// Durable engine of a store, with its state of failure.
pub(super) struct Durable {
    backend: Box<dyn Backend>,
    transformer: Arc<dyn Transformer>,
    history: History,
    clock: Clock,
    /// Path of the data folder, for messages.
    folder: String,
    mode: Mode,
    /// Time of the next retry.
    next: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    Healthy {
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
        full: bool,
        rewrite: bool,
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
        let next = Some(clock.instant() + RETRY_INTERVAL);
        Self { backend, transformer, history, clock, folder, mode, next }
    }

    /// Returns which writes the store refuses, with the reason; `None` if the engine is healthy.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let folder = &self.folder;
        let (why, but_deletions) = match &self.mode {
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
        Some(Refusal { why: why.into(), but_deletions })
    }

    /// Commits a batch, which is on disk when this returns.
    ///
    /// # Errors
    /// Reason why nothing of the batch was written.
    pub(super) fn commit(
        &mut self,
        batch: &[Waiting],
        state: &RwLock<State>,
    ) -> Result<(), Arc<str>> {
        if let Mode::Failed { .. } = self.mode {
            return Err(self.why());
        }
        let writes = || batch.iter().flat_map(|waiting| &waiting.writes);
        let records = writes()
            .map(|staged| {
                let transformer = &*self.transformer;
                record::encode(&staged.resource_prefix, &staged.event.entry, transformer)
            })
            .collect::<Result<Vec<StoredRecord>, String>>()?;
        let committed = guarded(|| self.backend.commit(&records), BackendError::Damaged);
        if let Err(error) = committed {
            self.fail(&error, state);
            return Err(self.why());
        }
        for staged in writes() {
            let event = &staged.event;
            let previous = event.previous.as_ref().map(|entry| (entry.revision, entry.size()));
            let is_deletion = event.entry.change == Change::Deleted;
            self.history.note(event.entry.revision, is_deletion, previous);
        }
        if let Mode::Full { shrink, .. } = &mut self.mode {
            *shrink = true;
        }
        Ok(())
    }

    fn why(&self) -> Arc<str> {
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
        self.next = Some(self.clock.instant() + RETRY_INTERVAL);
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

    /// Reopens the engine's files, or rewrites them if their records differ from memory or `rewrite` is true.
    fn restore(&mut self, state: &RwLock<State>, rewrite: bool) -> Result<(), BackendError> {
        let read = || state.read().unwrap_or_else(PoisonError::into_inner);
        if !rewrite {
            let extent = guarded(|| self.backend.reopen(), BackendError::Damaged)?;
            if extent.revision == read().revision {
                return Ok(());
            }
        }
        let (compacted, records) = read().records();
        let mut history = History::new(compacted);
        let mut live: HashMap<(ResourcePrefix, Arc<str>), (u64, usize)> = HashMap::new();
        let mut encoded = records.iter().map(|(revision, (resource_prefix, entry))| {
            record_write(&mut history, &mut live, *revision, resource_prefix, entry);
            record::encode(resource_prefix, entry, &*self.transformer)
        });
        guarded(|| self.backend.rewrite(compacted, &mut encoded), BackendError::Damaged)?;
        drop(encoded);
        self.history = history;
        tracing::warn!(folder = self.folder, "the data folder's file was written anew from memory");
        Ok(())
    }

    /// Does the work that is due besides commits: retries after failures, reserves disk space, compacts the history.
    /// Returns the delay until the next call.
    pub(super) fn maintain(&mut self, state: &RwLock<State>) -> Duration {
        let now = self.clock.instant();
        let is_due = self.next.is_none_or(|next| next <= now);
        match self.mode.clone() {
            Mode::Healthy { reserved } => {
                if !reserved && is_due {
                    let reserved = self.backend.reserve().is_ok();
                    self.mode = Mode::Healthy { reserved };
                    self.next = (!reserved).then(|| now + RESERVE_RETRY_INTERVAL);
                }
                self.history.plan(now);
                self.compact(state);
            }
            Mode::Full { why, shrink } => {
                self.history.give_up();
                self.compact(state);
                if is_due && matches!(self.mode, Mode::Full { .. }) && !self.history.is_due() {
                    self.next = Some(now + RETRY_INTERVAL);
                    self.make_room(why, shrink, state);
                }
            }
            Mode::Failed { why, full, rewrite, retry } if is_due => {
                let retry = (retry * 2).min(MAX_RETRY_INTERVAL);
                self.next = Some(now + retry);
                self.mode = Mode::Failed { why, full, rewrite, retry };
                self.retry(full, rewrite, state);
            }
            Mode::Failed { .. } => {}
        }
        if self.history.is_due() && !matches!(self.mode, Mode::Failed { .. }) {
            return Duration::ZERO;
        }
        self.next.map_or(MAX_IDLE, |next| next.saturating_duration_since(now)).min(MAX_IDLE)
    }

    fn compact(&mut self, state: &RwLock<State>) {
        if !self.history.is_due() {
            return;
        }
        let superseded = self.history.take(COMPACTION_STEP);
        let compacted = self.history.compacted();
        let done = guarded(|| self.backend.compact(compacted, &superseded), BackendError::Damaged);
        if let Err(error) = done {
            self.fail(&error, state);
        }
    }

    /// Returns to normal operation if the disk has space for the reserve.
    fn make_room(&mut self, why: String, shrink: bool, state: &RwLock<State>) {
        if shrink {
            self.mode = Mode::Full { why, shrink: false };
            if let Err(error) = guarded(|| self.backend.shrink(), BackendError::Damaged) {
                return self.fail(&error, state);
            }
        }
        if self.backend.reserve().is_ok() {
            self.recovered();
        }
    }

    fn retry(&mut self, full: bool, rewrite: bool, state: &RwLock<State>) {
        // Reopening reads the whole file, so wait until the disk has space.
        if full && self.backend.reserve().is_err() {
            return;
        }
        let restored = self
            .restore(state, rewrite)
            .and_then(|()| guarded(|| self.backend.commit(&[]), BackendError::Damaged));
        match restored {
            Ok(()) => self.recovered(),
            Err(error) => {
                if let Mode::Failed { why, rewrite, full, .. } = &mut self.mode {
                    *rewrite |= error.is_loss();
                    *full = matches!(error, BackendError::Full(_));
                    *why = error.to_string();
                }
            }
        }
    }

    fn recovered(&mut self) {
        self.mode = Mode::Healthy { reserved: false };
        self.next = None;
        tracing::info!(folder = self.folder, "writes go on");
    }
}

/// Records a write in the history. `live` has the last record of each object.
fn record_write(
    history: &mut History,
    live: &mut HashMap<(ResourcePrefix, Arc<str>), (u64, usize)>,
    revision: u64,
    resource_prefix: &ResourcePrefix,
    entry: &Entry,
) {
    let object = (resource_prefix.clone(), entry.key.clone());
    let is_deletion = entry.change == Change::Deleted;
    let previous = match is_deletion {
        true => live.remove(&object),
        false => live.insert(object, (revision, entry.size())),
    };
    history.note(revision, is_deletion, previous);
}
