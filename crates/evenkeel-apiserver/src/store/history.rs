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
    bytes: u64,
    /// Revision up to which history is removed or due for removal.
    compacted: u64,
    newest: u64,
    /// Time at which the last interval began, with the newest revision at that time.
    mark: Option<(Instant, u64)>,
}

impl History {
    pub(super) fn new(compacted: u64) -> Self {
        Self { compacted, newest: compacted, ..Self::default() }
    }

    /// Records a write. `previous` is the revision and the size in bytes of the record that it replaces.
    pub(super) fn note(&mut self, revision: u64, deletion: bool, previous: Option<(u64, usize)>) {
        self.newest = revision;
        let itself = deletion.then_some((revision, 64));
        for (old, bytes) in previous.into_iter().chain(itself) {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.superseded.push_back(Superseded { by: revision, revision: old, bytes });
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
    pub(super) fn plan(&mut self, now: Instant) {
        let oldest_kept = self.newest.saturating_sub(MIN_REVISIONS);
        match self.mark {
            None => self.mark = Some((now, self.newest)),
            Some((begun, newest))
                if now.saturating_duration_since(begun) >= COMPACTION_INTERVAL =>
            {
                self.raise(newest.min(oldest_kept));
                self.mark = Some((now, self.newest));
            }
            Some(_) => {}
        }
        if self.bytes > MAX_BYTES || self.superseded.len() > MAX_RECORDS {
            self.raise(self.half());
        }
    }

    /// Marks the history up to this revision as compacted, because its records cannot be read.
    pub(super) fn forget(&mut self, revision: u64) {
        self.raise(revision);
    }

    /// Marks the whole history as compacted, because its space is needed.
    pub(super) fn give_up(&mut self) {
        self.raise(self.newest);
    }

    fn raise(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
    }

    /// Returns the revision that superseded the first half of the superseded bytes or records.
    fn half(&self) -> u64 {
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

    /// Takes up to `at_most` records that are due for removal.
    pub(super) fn take(&mut self, at_most: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < at_most && self.is_due() {
            let Some(first) = self.superseded.pop_front() else { break };
            self.bytes -= u64::from(first.bytes);
            taken.push(first.revision);
        }
        taken
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
            history.note(revision, false, previous);
        }
        history.note(n + 1, true, Some((n, 100)));
        history
    }

    #[tokio::test(start_paused = true)]
    async fn history_of_five_minutes_and_the_newest_revisions_are_kept() {
        #[expect(clippy::disallowed_methods, reason = "virtual time")]
        let start = Instant::now();
        let n = MIN_REVISIONS + 1_000;
        let mut history = written(n);
        history.plan(start);
        history.plan(start + COMPACTION_INTERVAL / 2);
        assert!(!history.is_due());
        for revision in n + 2..n + 502 {
            history.note(revision, false, Some((revision - 500, 100)));
        }
        history.plan(start + COMPACTION_INTERVAL);
        assert_eq!(history.compacted(), 1_501, "the newest revisions stay");
        let removed = history.take(10_000);
        assert_eq!((removed.len(), removed.last()), (750, Some(&1_499)));
        assert!(!history.is_due());
        history.plan(start + 2 * COMPACTION_INTERVAL);
        assert_eq!(history.compacted(), 1_501, "nothing was written since");
    }

    #[test]
    fn history_above_its_maximum_bytes_is_compacted_at_once() {
        #[expect(clippy::disallowed_methods, reason = "it is not compared")]
        let now = Instant::now();
        let mut history = History::new(0);
        for revision in 2..=600 {
            history.note(revision, false, Some((revision - 1, 1 << 20)));
        }
        history.plan(now);
        assert!(history.bytes > MAX_BYTES);
        while history.is_due() {
            assert!(!history.take(16).is_empty());
        }
        assert!(history.bytes < MAX_BYTES * 2 && history.compacted() > 290);
        history.give_up();
        assert_eq!(history.take(1_000).last(), Some(&599));
        assert_eq!(history.bytes, 0);
    }

    #[test]
    fn compaction_removes_a_deletion_with_its_object() {
        let mut history = written(4);
        history.give_up();
        assert_eq!(history.take(10), [1, 3, 4, 5]);
    }
}
