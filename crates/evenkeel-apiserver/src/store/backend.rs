//! What the store needs of a durable engine: an ordered map of revisions to records, changed in atomic batches. It is small
//! so that another engine, such as etcd, can stand behind it. A store in memory has none. Snapshots are made of the records,
//! whatever the engine.

use super::record::StoredRecord;

/// A durable engine. Records are written once under ascending revisions, and removed by compaction alone.
pub(super) trait Backend: Send {
    /// Writes records as a whole or not at all. They are on disk when this returns. After a failure the engine may refuse
    /// everything until [`reopen`](Self::reopen).
    fn commit(&mut self, records: &[StoredRecord]) -> Result<(), BackendError>;

    /// Calls `each` for every record after a revision (0 for all of them), in order.
    fn read(&self, after: u64, each: ReadRecord<'_>) -> Result<(), BackendError>;

    /// Returns what is stored.
    fn extent(&self) -> Extent;

    /// Removes records that no state after `revision` needs. It need not be on disk before the next commit.
    fn compact(&mut self, revision: u64, superseded: &[u64]) -> Result<(), BackendError>;

    /// Opens the engine's files again after a failure, and returns what they hold.
    fn reopen(&mut self) -> Result<Extent, BackendError>;

    /// Replaces everything by these records, in files of their own: after a failure that leaves the old ones in doubt.
    fn rewrite(
        &mut self,
        compacted: u64,
        records: &mut dyn Iterator<Item = Result<StoredRecord, String>>,
    ) -> Result<(), BackendError>;

    /// Sets space aside, or finds that there is none. It is given back with [`release`](Self::release), so that deletions
    /// get through on a full disk.
    fn reserve(&mut self) -> Result<(), BackendError>;

    /// Gives the space back that was set aside.
    fn release(&mut self);

    /// Gives space that compaction freed within the engine's files back to the disk.
    fn shrink(&mut self) -> Result<(), BackendError>;
}

/// Takes a revision and its record.
pub(super) type ReadRecord<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), BackendError>;

/// What an engine holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    /// The last revision, or that of the compaction where it is higher.
    pub(super) revision: u64,
    /// The history up to this revision is removed.
    pub(super) compacted: u64,
}

/// Why an engine could not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BackendError {
    /// There is no space, or none that the user may have.
    #[error("{0}")]
    Full(String),
    /// The disk refuses reads or writes.
    #[error("{0}")]
    Io(String),
    /// The disk did not confirm that what it took is stored: whatever the files say now may be lost later.
    #[error("{0}")]
    NotSynced(String),
    /// What is stored is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// A value is encrypted by a key that is not there.
    #[error("{0}")]
    Undecryptable(String),
}

impl BackendError {
    /// Whether what the engine holds may not be what it was given, or not for long.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::NotSynced(_) | Self::Damaged(_))
    }
}
