//! Compaction of the change history: decides when to compact and which records to remove, without I/O.
//!
//! Every five minutes (`--etcd-compaction-interval`), upstream's server compacts to the revision of five minutes
//! before. A watch can thus resume from any revision of the last five minutes. This store does the same, and also keeps
//! the newest [`MIN_REVISIONS`] of any age, as the rings in memory do. [`MAX_BYTES`] bounds the whole history.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Interval of compactions, and minimum age of the records that they remove.
pub(super) const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Number of newest revisions that are kept at any age.
const MIN_REVISIONS: u64 = 16_384;
/// Total bytes of superseded records above which compaction does not wait for its interval.
const MAX_BYTES: u64 = 256 << 20;
/// Number of superseded records above which compaction does not wait for its interval.
const MAX_RECORDS: usize = 500_000;

/// Approximate size in bytes of the record of a deletion.
const DELETION_BYTES: usize = 64;

/// Record that a later revision superseded.
#[derive(Debug, Clone, Copy)]
struct Superseded {
    /// Revision that superseded the record. A deletion also supersedes its own record.
    by: u64,
    revision: u64,
    bytes: u32,
}

/// Superseded records and the state of compaction.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Superseded records in order of `by`.
    superseded: VecDeque<Superseded>,
    /// Records that were taken for removal, in order of `by`, while the removal is not on disk.
    unsynced: Vec<Superseded>,
    /// Total bytes of the superseded records.
    bytes: u64,
    /// Revision up to which history is removed or due for removal.
    compacted: u64,
    /// Revision of the last write.
    newest: u64,
    /// Start of the last interval, with the newest revision at that time.
    interval_start: Option<(Instant, u64)>,
}

impl History {
    pub(super) fn new(compacted: u64) -> Self {
        Self { compacted, newest: compacted, ..Self::default() }
    }

    /// Records a write. `previous` is the revision and the size in bytes of the record that it replaces.
    pub(super) fn add_record(
        &mut self,
        revision: u64,
        deletion: bool,
        previous: Option<(u64, usize)>,
    ) {
        self.newest = revision;
        // No later state needs the record of a deletion.
        let deletion_record = deletion.then_some((revision, DELETION_BYTES));
        for (superseded, bytes) in previous.into_iter().chain(deletion_record) {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.superseded.push_back(Superseded { by: revision, revision: superseded, bytes });
            self.bytes += u64::from(bytes);
        }
    }

    /// Returns the total bytes of superseded records.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the revision up to which history is compacted.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Raises the compacted revision when a compaction is due.
    pub(super) fn schedule(&mut self, now: Instant) {
        let oldest_kept = self.newest.saturating_sub(MIN_REVISIONS);
        match self.interval_start {
            None => self.interval_start = Some((now, self.newest)),
            Some((start, newest_at_start))
                if now.saturating_duration_since(start) >= COMPACTION_INTERVAL =>
            {
                self.raise_compacted(newest_at_start.min(oldest_kept));
                self.interval_start = Some((now, self.newest));
            }
            Some(_) => {}
        }
        if self.bytes > MAX_BYTES || self.superseded.len() > MAX_RECORDS {
            self.raise_compacted(self.middle_revision());
        }
    }

    /// Marks the history up to this revision as compacted, because its records cannot be read.
    pub(super) fn forget_up_to(&mut self, revision: u64) {
        self.raise_compacted(revision);
    }

    /// Marks the whole history as compacted, because its space is needed.
    pub(super) fn compact_all(&mut self) {
        self.raise_compacted(self.newest);
    }

    fn raise_compacted(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
    }

    /// Returns the revision that superseded the first half of the superseded bytes or records.
    fn middle_revision(&self) -> u64 {
        let (mut bytes, mut count) = (0, 0);
        let middle = self.superseded.iter().find(|record| {
            bytes += u64::from(record.bytes);
            count += 1;
            bytes >= self.bytes / 2 || count >= self.superseded.len() / 2
        });
        middle.map_or(self.compacted, |record| record.by)
    }

    /// Returns whether records are due for removal.
    pub(super) fn is_due(&self) -> bool {
        self.superseded.front().is_some_and(|first| first.by <= self.compacted)
    }

    /// Takes the revisions of up to `limit` records that are due for removal. They are remembered until
    /// [`confirm_removals`](Self::confirm_removals) or [`undo_removals`](Self::undo_removals).
    pub(super) fn take_due(&mut self, limit: usize) -> Vec<u64> {
        let mut revisions = Vec::new();
        while revisions.len() < limit && self.is_due() {
            let Some(first) = self.superseded.pop_front() else { break };
            self.bytes -= u64::from(first.bytes);
            revisions.push(first.revision);
            self.unsynced.push(first);
        }
        revisions
    }

    /// Forgets the taken records, because their removal is on disk.
    pub(super) fn confirm_removals(&mut self) {
        self.unsynced = Vec::new();
    }

    /// Makes the taken records due again, because the engine may have lost their removal. A deletion must never be
    /// removed before the record that it superseded, or else a restart would bring the deleted object back.
    pub(super) fn undo_removals(&mut self) {
        for record in std::mem::take(&mut self.unsynced).into_iter().rev() {
            self.bytes += u64::from(record.bytes);
            self.superseded.push_front(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a history of `n` writes, two for each object, and of the deletion of the last object.
    fn written(n: u64) -> History {
        let mut history = History::new(0);
        for revision in 1..=n {
            let previous = revision.is_multiple_of(2).then(|| (revision - 1, 100));
            history.add_record(revision, false, previous);
        }
        history.add_record(n + 1, true, Some((n, 100)));
        history
    }

    #[tokio::test(start_paused = true)]
    async fn history_of_five_minutes_and_the_newest_revisions_are_kept() {
        #[expect(clippy::disallowed_methods, reason = "virtual time")]
        let start = Instant::now();
        let n = MIN_REVISIONS + 1_000;
        let mut history = written(n);
        history.schedule(start);
        history.schedule(start + COMPACTION_INTERVAL / 2);
        assert!(!history.is_due());
        for revision in n + 2..n + 502 {
            history.add_record(revision, false, Some((revision - 500, 100)));
        }
        history.schedule(start + COMPACTION_INTERVAL);
        assert_eq!(history.compacted(), 1_501, "the newest revisions stay");
        let removed = history.take_due(10_000);
        assert_eq!((removed.len(), removed.last()), (750, Some(&1_499)));
        assert!(!history.is_due());
        history.schedule(start + 2 * COMPACTION_INTERVAL);
        assert_eq!(history.compacted(), 1_501, "nothing was written since");
    }

    #[test]
    fn history_above_its_maximum_bytes_is_compacted_at_once() {
        #[expect(clippy::disallowed_methods, reason = "it is not compared")]
        let now = Instant::now();
        let mut history = History::new(0);
        for revision in 2..=600 {
            history.add_record(revision, false, Some((revision - 1, 1 << 20)));
        }
        history.schedule(now);
        assert!(history.bytes > MAX_BYTES);
        while history.is_due() {
            assert!(!history.take_due(16).is_empty());
        }
        assert!(history.bytes < MAX_BYTES * 2 && history.compacted() > 290);
        history.compact_all();
        assert_eq!(history.take_due(1_000).last(), Some(&599));
        assert_eq!(history.bytes, 0);
    }

    #[test]
    fn removals_are_repeated_unless_they_are_on_disk() {
        let mut history = written(4);
        history.compact_all();
        let bytes = history.bytes();
        assert_eq!(history.take_due(1), [1]);
        history.confirm_removals();
        assert_eq!(history.take_due(1), [3]);
        assert_eq!(history.take_due(1), [4]);
        history.undo_removals();
        assert_eq!(history.bytes(), bytes - 100, "the first removal is on disk");
        assert_eq!(history.take_due(10), [3, 4, 5]);
    }

    #[test]
    fn compaction_removes_a_deletion_with_its_object() {
        let mut history = written(4);
        history.compact_all();
        assert_eq!(history.take_due(10), [1, 3, 4, 5]);
    }
}
