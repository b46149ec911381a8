//! Interface of a durable engine: an ordered map from revisions to records, changed in atomic batches. The interface is
//! small, so that other engines, such as etcd, can implement it. A store in memory has no engine. Snapshots contain
//! records of any engine.

use super::record::StoredRecord;

/// Durable engine. Records are written once in ascending order of revision; only compaction removes them.
pub(super) trait Backend: Send {
    /// Writes all records or none. They are on disk when this returns. After a failure the engine may refuse all
    /// operations until [`reopen`](Self::reopen).
    fn commit(&mut self, records: &[StoredRecord]) -> Result<(), BackendError>;

    /// Calls `each` for every record after a revision, in order; 0 means all records.
    fn read(&self, after: u64, each: ReadRecord<'_>) -> Result<(), BackendError>;

    /// Returns the range of stored revisions.
    fn extent(&self) -> Extent;

    /// Removes the superseded records, which no state after `revision` needs. The removal need not be on disk before
    /// the next commit.
    fn compact(&mut self, revision: u64, superseded: &[u64]) -> Result<(), BackendError>;

    /// Reopens the engine's files after a failure, and returns their extent.
    fn reopen(&mut self) -> Result<Extent, BackendError>;

    /// Replaces all records with these in a new file, after a failure that may have damaged the old one.
    fn rewrite(
        &mut self,
        compacted: u64,
        records: &mut dyn Iterator<Item = Result<StoredRecord, String>>,
    ) -> Result<(), BackendError>;

    /// Reserves disk space, or returns an error if the disk is full. [`release`](Self::release) frees it, so that
    /// deletions succeed on a full disk.
    fn reserve(&mut self) -> Result<(), BackendError>;

    /// Frees the reserved disk space.
    fn release(&mut self);

    /// Shrinks the engine's files by the space that compaction freed.
    fn shrink(&mut self) -> Result<(), BackendError>;
}

/// Callback for a revision and its record.
pub(super) type ReadRecord<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), BackendError>;

/// Range of revisions in an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    /// Last revision, or the compacted one if it is higher.
    pub(super) revision: u64,
    /// Revision up to which the history is removed.
    pub(super) compacted: u64,
}

/// Error of an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BackendError {
    /// No space is left on the disk, or in the user's quota.
    #[error("{0}")]
    Full(String),
    /// The disk refuses reads or writes.
    #[error("{0}")]
    Io(String),
    /// The disk did not confirm a sync: data in the files may be lost later.
    #[error("{0}")]
    NotSynced(String),
    /// The stored data differs from the written data.
    #[error("{0}")]
    Damaged(String),
    /// The key of an encrypted value is missing.
    #[error("{0}")]
    Undecryptable(String),
}

impl BackendError {
    /// Returns whether the engine's data may differ from the written data, now or after a crash.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::NotSynced(_) | Self::Damaged(_))
    }
}
