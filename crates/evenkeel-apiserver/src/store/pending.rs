//! Transactions that are checked and not yet committed. A check sees the committed objects and, over them, what is pending, so
//! that many writers share a commit. Nobody else sees what is pending.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::entry::{Change, Entry};
use super::event::Event;
use super::state::{Staged, State};
use super::transaction::{Expect, Op, Transaction, WriteError};
use crate::resource::ResourcePrefix;

/// Whether a transaction was committed; otherwise why not.
pub(super) type Outcome = Result<(), Arc<str>>;

/// A transaction that is queued for the next commit.
pub(super) struct Waiting {
    pub(super) writes: Vec<Staged>,
    pub(super) done: oneshot::Sender<Outcome>,
}

/// Which writes are refused before they are tried.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) why: Arc<str>,
    /// Deletions are tried nevertheless.
    pub(super) but_deletions: bool,
}

/// What is pending.
#[derive(Default)]
pub(super) struct Pending {
    /// Revision of the last staged write. Refused writes leave gaps: no revision is given twice by one process.
    revision: u64,
    /// The newest pending state of each object.
    objects: HashMap<ResourcePrefix, BTreeMap<Arc<str>, Latest>>,
    /// What the next commit writes as one batch.
    queue: Vec<Waiting>,
    refusal: Option<Refusal>,
    /// The store is being dropped.
    pub(super) stop: bool,
    /// The next commit panics.
    #[cfg(test)]
    pub(super) planted_panic: bool,
}

/// The pending state of an object.
struct Latest {
    revision: u64,
    /// `None` where it is deleted.
    entry: Option<Arc<Entry>>,
    values: Vec<String>,
}

/// What a staged transaction will have written, and what comes of it.
pub(super) struct StagedTransaction {
    /// What it writes, in order.
    pub(super) entries: Vec<Arc<Entry>>,
    /// Resolves with its commit.
    pub(super) outcome: oneshot::Receiver<Outcome>,
}

/// A transaction that cannot be staged.
pub(super) struct NotStaged {
    pub(super) error: WriteError,
    /// It rests on writes up to this revision whose outcome is not known yet.
    pub(super) rests_on: Option<u64>,
    pub(super) transaction: Transaction,
}

/// Whether an object is there, and whether this transaction wrote it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Absent,
    Stored(u64),
    Written,
}

impl Found {
    /// An object at this revision, or none.
    fn of(revision: Option<u64>) -> Self {
        revision.map_or(Self::Absent, Self::Stored)
    }

    fn is(self, expect: Expect) -> bool {
        match expect {
            Expect::Absent => self == Self::Absent,
            Expect::At(revision) => self == Self::Stored(revision),
            Expect::Written => self == Self::Written,
        }
    }
}

impl Pending {
    pub(super) fn new(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Revision of the last staged write.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether any write is staged whose outcome is not known.
    pub(super) fn has_any(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Why writes are refused, if they are.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Refuses writes from now on, or no longer.
    pub(super) fn set_refusal(&mut self, refusal: Option<Refusal>) {
        self.refusal = refusal;
    }

    /// Takes the queue, which is the next batch.
    pub(super) fn take(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.queue)
    }

    /// Takes everything back that is pending; gives what was queued, which is refused.
    pub(super) fn take_back(&mut self) -> Vec<Waiting> {
        self.objects.clear();
        self.take()
    }

    /// Forgets what was committed up to a revision: the state has it.
    pub(super) fn committed(&mut self, revision: u64) {
        self.objects.retain(|_, objects| {
            objects.retain(|_, latest| latest.revision > revision);
            !objects.is_empty()
        });
    }

    fn latest(&self, resource_prefix: &str, key: &str) -> Option<&Latest> {
        self.objects.get(resource_prefix)?.get(key)
    }

    /// The newest state of an object, pending or committed.
    pub(super) fn get(
        &self,
        state: &State,
        resource_prefix: &str,
        key: &str,
    ) -> Option<Arc<Entry>> {
        match self.latest(resource_prefix, key) {
            Some(latest) => latest.entry.clone(),
            None => state.get(resource_prefix, key).cloned(),
        }
    }

    /// The newest states of the pending objects of a collection; `None` for those that are deleted.
    pub(super) fn of(
        &self,
        resource_prefix: &str,
    ) -> impl Iterator<Item = (&Arc<str>, Option<&Arc<Entry>>)> {
        let objects = self.objects.get(resource_prefix).into_iter().flatten();
        objects.map(|(key, latest)| (key, latest.entry.as_ref()))
    }

    /// Whether an object of an indexed resource has this value.
    pub(super) fn is_taken(&self, state: &State, resource_prefix: &str, value: &str) -> bool {
        let mut n_objects = state.count_of_value(resource_prefix, value);
        for (key, latest) in self.objects.get(resource_prefix).into_iter().flatten() {
            n_objects += usize::from(latest.values.iter().any(|each| each == value));
            n_objects -= usize::from(state.has_value(resource_prefix, key, value));
        }
        n_objects > 0
    }

    /// Checks a transaction, gives its writes their revisions and queues it.
    pub(super) fn stage(
        &mut self,
        state: &State,
        transaction: Transaction,
        values: Vec<(usize, Vec<String>)>,
    ) -> Result<StagedTransaction, Box<NotStaged>> {
        let refused = self
            .refusal
            .as_ref()
            .filter(|refusal| !(refusal.but_deletions && transaction.is_deletion()));
        let error = match refused {
            Some(refusal) => Some((WriteError::Storage(refusal.why.clone()), None)),
            None => self.check(state, &transaction).err(),
        };
        if let Some((error, rests_on)) = error {
            return Err(Box::new(NotStaged { error, rests_on, transaction }));
        }
        let mut values = values.into_iter().peekable();
        let mut writes = Vec::with_capacity(transaction.ops.len());
        for (index, op) in transaction.ops.into_iter().enumerate() {
            let values = values.next_if(|(place, _)| *place == index);
            let values = values.map(|(_, values)| values).unwrap_or_default();
            writes.extend(self.write(state, op, values));
        }
        let entries = writes.iter().map(|staged| staged.event.entry.clone()).collect();
        let (done, outcome) = oneshot::channel();
        self.queue.push(Waiting { writes, done });
        Ok(StagedTransaction { entries, outcome })
    }

    fn write(&mut self, state: &State, op: Op, values: Vec<String>) -> Option<Staged> {
        let previous = self.get(state, &op.resource_prefix, &op.key);
        let revision = self.revision + 1;
        let entry = match (op.object, &previous) {
            (Some(object), None) => object.into_entry(Arc::from(&*op.key), revision, Change::Added),
            (Some(object), Some(old)) => {
                object.into_entry(old.key.clone(), revision, Change::Modified)
            }
            (None, Some(old)) => old.at(revision, Change::Deleted),
            (None, None) => return None,
        };
        self.revision = revision;
        let entry = Arc::new(entry);
        let latest = Latest {
            revision,
            entry: (entry.change != Change::Deleted).then(|| entry.clone()),
            values: values.clone(),
        };
        let objects = self.objects.entry(op.resource_prefix.clone()).or_default();
        objects.insert(entry.key.clone(), latest);
        let event = Arc::new(Event::new(entry, previous));
        Some(Staged { resource_prefix: op.resource_prefix, event, values })
    }

    /// Checks every precondition, each against the state that the operations before it would leave. An error that the
    /// committed state alone would not give comes with the pending revision that it rests on.
    fn check(
        &self,
        state: &State,
        transaction: &Transaction,
    ) -> Result<(), (WriteError, Option<u64>)> {
        for (resource_prefix, value) in &transaction.unique {
            if self.is_taken(state, resource_prefix, value) {
                let committed = state.count_of_value(resource_prefix, value) > 0;
                let pending = (!committed).then_some(self.revision);
                return Err((WriteError::Taken { value: value.clone() }, pending));
            }
        }
        let ops = &transaction.ops;
        for (index, op) in ops.iter().enumerate() {
            let possible = match op.object {
                Some(_) => op.expect != Expect::Written,
                None => op.expect != Expect::Absent,
            };
            let found = self.found(state, &ops[..index], op);
            if !possible || !found.is(op.expect) {
                let pending = self.latest(&op.resource_prefix, &op.key).filter(|_| {
                    let committed = state.get(&op.resource_prefix, &op.key);
                    possible && Found::of(committed.map(|entry| entry.revision)).is(op.expect)
                });
                let pending = pending.map(|latest| latest.revision);
                return Err((WriteError::Mismatch { op: index }, pending));
            }
        }
        Ok(())
    }

    /// Returns how an operation would find its object after those before it.
    fn found(&self, state: &State, before: &[Op], op: &Op) -> Found {
        let (resource_prefix, key) = (&*op.resource_prefix, &*op.key);
        let same = |other: &&Op| *other.resource_prefix == *resource_prefix && *other.key == *key;
        if let Some(earlier) = before.iter().rev().find(same) {
            return if earlier.object.is_some() { Found::Written } else { Found::Absent };
        }
        Found::of(self.get(state, resource_prefix, key).map(|entry| entry.revision))
    }
}
