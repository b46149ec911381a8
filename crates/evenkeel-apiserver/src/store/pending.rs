//! Transactions that are checked but not committed. Checks read pending writes in place of committed objects, so that
//! concurrent writers can share a commit. Readers do not see pending writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::entry::{Change, Encoded, Entry};
use super::event::Event;
use super::queued::{Outcome, QueuedTransaction};
use super::refused::Refused;
use super::state::{Staged, State};
use super::transaction::{Expect, Op, Transaction, WriteError};
use crate::resource::ResourcePrefix;

/// Refusal of all writes before they are staged.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// Reason of the refusal.
    pub(super) why: Arc<str>,
    /// Whether the store still accepts deletions.
    pub(super) accepts_deletions: bool,
}

/// Pending writes of a store.
pub(super) struct Pending {
    /// Revision of the last staged write. A refused write leaves a gap, because a process never reuses a revision.
    revision: u64,
    /// Size in bytes of all objects in their newest states, pending or committed.
    object_bytes: usize,
    /// Maximum size in bytes of all objects, for writes that add to it.
    quota: usize,
    /// Whether the last write that adds to the size was refused, so that only the first refusal is logged.
    is_quota_exceeded: bool,
    /// Newest pending state of each object.
    objects: HashMap<ResourcePrefix, BTreeMap<Arc<str>, PendingObject>>,
    /// Batch of the next commit.
    queue: Vec<QueuedTransaction>,
    /// Refusal of new transactions; `None` if the store accepts writes.
    refusal: Option<Refusal>,
    /// Whether the store is being dropped.
    pub(super) stop: bool,
    /// Makes the next commit panic.
    #[cfg(test)]
    pub(super) planted_panic: bool,
}

/// Pending state of an object.
struct PendingObject {
    revision: u64,
    /// Object; `None` if it is deleted.
    entry: Option<Arc<Entry>>,
    /// Values of the object in the resource's index.
    values: Vec<String>,
}

/// Staged transaction, with its future entries and outcome.
pub(super) struct StagedTransaction {
    /// Entries that it writes, in order.
    pub(super) entries: Vec<Arc<Entry>>,
    /// Resolves when the commit succeeds or fails.
    pub(super) outcome: oneshot::Receiver<Outcome>,
}

/// Transaction that cannot be staged.
pub(super) struct NotStaged {
    pub(super) error: WriteError,
    /// Revision of pending writes that the error depends on; `None` if it depends only on committed ones.
    pub(super) depends_on: Option<u64>,
    pub(super) transaction: Transaction,
}

/// State of an operation's object before the operation. `Written` means that the same transaction wrote the object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Absent,
    Stored(u64),
    Written,
}

impl Found {
    /// Returns the state of an object at this revision, or of an absent one.
    fn at(revision: Option<u64>) -> Self {
        revision.map_or(Self::Absent, Self::Stored)
    }

    fn satisfies(self, expect: Expect) -> bool {
        match expect {
            Expect::Absent => self == Self::Absent,
            Expect::At(revision) => self == Self::Stored(revision),
            Expect::Written => self == Self::Written,
        }
    }
}

impl Pending {
    /// Creates the pending writes of a state: none.
    pub(super) fn new(state: &State) -> Self {
        Self {
            revision: state.revision,
            object_bytes: state.object_bytes,
            quota: usize::MAX,
            is_quota_exceeded: false,
            objects: HashMap::new(),
            queue: Vec::new(),
            refusal: None,
            stop: false,
            #[cfg(test)]
            planted_panic: false,
        }
    }

    /// Sets the maximum size in bytes of all objects.
    pub(super) fn set_quota(&mut self, quota: usize) {
        self.quota = quota;
    }

    /// Returns the revision of the last staged write.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether a staged write has no outcome yet.
    pub(super) fn has_any(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Returns whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the refusal if writes are refused.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Sets or clears the refusal of writes.
    pub(super) fn set_refusal(&mut self, refusal: Option<Refusal>) {
        self.refusal = refusal;
    }

    /// Takes the queue as the next batch.
    pub(super) fn take_queue(&mut self) -> Vec<QueuedTransaction> {
        std::mem::take(&mut self.queue)
    }

    /// Discards all pending writes. Returns the queued transactions, which the caller must refuse.
    pub(super) fn discard_all(&mut self, state: &State) -> Vec<QueuedTransaction> {
        self.objects.clear();
        self.object_bytes = state.object_bytes;
        self.take_queue()
    }

    /// Discards refused writes, and the queued transactions that depend on them. Returns the last revision whose outcome
    /// is now known. The other writes of their batch must be committed before, because their states replace these.
    pub(super) fn discard(&mut self, refused: &mut Refused) -> u64 {
        let queue = self.take_queue();
        self.queue = refused.take_dependents(queue);
        for staged in refused.transactions.iter().flat_map(|(transaction, _)| &transaction.writes) {
            let (entry, previous) = (&staged.event.entry, &staged.event.previous);
            let added = if entry.change == Change::Deleted { 0 } else { entry.size() };
            let removed = previous.as_ref().map_or(0, |previous| previous.size());
            self.object_bytes = (self.object_bytes + removed).saturating_sub(added);
            if let Some(objects) = self.objects.get_mut(&staged.resource_prefix) {
                // All later writes of the object are refused, too.
                objects.remove(&entry.key);
            }
        }
        self.objects.retain(|_, objects| !objects.is_empty());
        let next = self.queue.iter().flat_map(|transaction| &transaction.writes).next();
        next.map_or(self.revision, |staged| staged.event.entry.revision - 1)
    }

    /// Drops pending states up to a committed revision, because the committed state has them.
    pub(super) fn remove_committed(&mut self, revision: u64) {
        self.objects.retain(|_, objects| {
            objects.retain(|_, latest| latest.revision > revision);
            !objects.is_empty()
        });
    }

    fn latest(&self, resource_prefix: &str, key: &str) -> Option<&PendingObject> {
        self.objects.get(resource_prefix)?.get(key)
    }

    /// Returns the newest state of an object, pending or committed.
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

    /// Returns the pending objects of a collection; `None` for deleted ones.
    pub(super) fn objects_of(
        &self,
        resource_prefix: &str,
    ) -> impl Iterator<Item = (&Arc<str>, Option<&Arc<Entry>>)> {
        let objects = self.objects.get(resource_prefix).into_iter().flatten();
        objects.map(|(key, latest)| (key, latest.entry.as_ref()))
    }

    /// Returns whether an object of an indexed resource has this value.
    pub(super) fn is_taken(&self, state: &State, resource_prefix: &str, value: &str) -> bool {
        // Replace the committed values of pending objects with their pending ones.
        let mut objects_with_value = state.count_of_value(resource_prefix, value);
        for (key, latest) in self.objects.get(resource_prefix).into_iter().flatten() {
            objects_with_value += usize::from(latest.values.iter().any(|each| each == value));
            objects_with_value -= usize::from(state.has_value(resource_prefix, key, value));
        }
        objects_with_value > 0
    }

    /// Checks a transaction, assigns revisions to its writes and queues it. `index_values` are those of
    /// [`Transaction::index_values`].
    pub(super) fn stage(
        &mut self,
        state: &State,
        transaction: Transaction,
        index_values: Vec<(usize, Vec<String>)>,
    ) -> Result<StagedTransaction, Box<NotStaged>> {
        let checked = match &self.refusal {
            Some(refusal) if !(refusal.accepts_deletions && transaction.is_deletion()) => {
                Err((WriteError::Storage(refusal.why.clone()), None))
            }
            _ => {
                self.check(state, &transaction).and_then(|()| self.check_quota(state, &transaction))
            }
        };
        if let Err((error, depends_on)) = checked {
            return Err(Box::new(NotStaged { error, depends_on, transaction }));
        }
        let mut index_values = index_values.into_iter().peekable();
        let mut writes = Vec::with_capacity(transaction.ops.len());
        for (index, op) in transaction.ops.into_iter().enumerate() {
            let values = index_values.next_if(|(op_index, _)| *op_index == index);
            let values = values.map(|(_, values)| values).unwrap_or_default();
            writes.extend(self.write(state, op, values));
        }
        let entries = writes.iter().map(|staged| staged.event.entry.clone()).collect();
        let unique_in = transaction.unique.into_iter().map(|(resource, _)| resource).collect();
        let (done, outcome) = oneshot::channel();
        self.queue.push(QueuedTransaction { writes, unique_in, done });
        Ok(StagedTransaction { entries, outcome })
    }

    /// Assigns a revision to an operation, and adds its object to the pending ones. Returns `None` for the deletion of
    /// an absent object.
    fn write(&mut self, state: &State, op: Op, values: Vec<String>) -> Option<Staged> {
        let previous = self.get(state, &op.resource_prefix, &op.key);
        let revision = self.revision + 1;
        let entry = match (op.object, &previous) {
            (Some(object), None) => object.into_entry(Arc::from(&*op.key), revision, Change::Added),
            (Some(object), Some(old)) => {
                object.into_entry(old.key.clone(), revision, Change::Modified)
            }
            (None, Some(old)) => old.with_revision(revision, Change::Deleted),
            (None, None) => return None,
        };
        self.revision = revision;
        let entry = Arc::new(entry);
        let latest = PendingObject {
            revision,
            entry: (entry.change != Change::Deleted).then(|| entry.clone()),
            values: values.clone(),
        };
        let size = |entry: &Option<Arc<Entry>>| entry.as_ref().map_or(0, |entry| entry.size());
        self.object_bytes =
            (self.object_bytes + size(&latest.entry)).saturating_sub(size(&previous));
        let objects = self.objects.entry(op.resource_prefix.clone()).or_default();
        objects.insert(entry.key.clone(), latest);
        let event = Arc::new(Event::new(entry, previous));
        Some(Staged { resource_prefix: op.resource_prefix, event, values })
    }

    /// Checks every precondition against the state that the previous operations would leave. If the error depends on
    /// pending writes, it is returned with the pending revision that it depends on.
    pub(super) fn check(
        &self,
        state: &State,
        transaction: &Transaction,
    ) -> Result<(), (WriteError, Option<u64>)> {
        for (resource_prefix, value) in &transaction.unique {
            if self.is_taken(state, resource_prefix, value) {
                let is_taken_in_state = state.count_of_value(resource_prefix, value) > 0;
                let depends_on = (!is_taken_in_state).then_some(self.revision);
                return Err((WriteError::Taken { value: value.clone() }, depends_on));
            }
        }
        let ops = &transaction.ops;
        for (index, op) in ops.iter().enumerate() {
            // A transaction may not change an object again after it wrote it, except by a deletion, and not delete an
            // absent object.
            let is_satisfiable = match op.object {
                Some(_) => op.expect != Expect::Written,
                None => op.expect != Expect::Absent,
            };
            let found = self.found(state, &ops[..index], op);
            if is_satisfiable && found.satisfies(op.expect) {
                continue;
            }
            let committed = state.get(&op.resource_prefix, &op.key);
            let committed = Found::at(committed.map(|entry| entry.revision));
            // The operation would succeed if the pending write of the object failed.
            let depends_on = match self.latest(&op.resource_prefix, &op.key) {
                Some(pending) if is_satisfiable && committed.satisfies(op.expect) => {
                    Some(pending.revision)
                }
                _ => None,
            };
            return Err((op.mismatch(index), depends_on));
        }
        Ok(())
    }

    /// Refuses a transaction that would add to the size of all objects beyond the quota. Deletions, and changes that
    /// do not add to it, are accepted, so that the store can always be made smaller.
    ///
    /// Upstream: the alarm `NOSPACE` of etcd, which refuses all writes but deletions.
    fn check_quota(
        &mut self,
        state: &State,
        transaction: &Transaction,
    ) -> Result<(), (WriteError, Option<u64>)> {
        let (mut added, mut removed) = (0, 0);
        for op in &transaction.ops {
            added += op.object.as_ref().map_or(0, Encoded::size);
            let previous = self.get(state, &op.resource_prefix, &op.key);
            removed += previous.map_or(0, |previous| previous.size());
        }
        let growth = added.saturating_sub(removed);
        let (quota, after) = (self.quota, self.object_bytes.saturating_add(growth));
        if growth == 0 || after <= quota || transaction.is_deletion() {
            self.is_quota_exceeded &= growth == 0 || after > quota;
            return Ok(());
        }
        let bytes = state.object_bytes;
        let why = format!(
            "the objects have {bytes} bytes, and {growth} more would exceed --quota-backend-bytes ({quota}): objects can be read and deleted, and changed if they do not become larger; delete objects, or start the server with a larger limit"
        );
        if !std::mem::replace(&mut self.is_quota_exceeded, true) {
            tracing::error!(error = %why, "a write is refused");
        }
        // The transaction would fit if the pending writes failed.
        let depends_on = (bytes.saturating_add(growth) <= quota).then_some(self.revision);
        Err((WriteError::Storage(why.into()), depends_on))
    }

    /// Returns the state of an operation's object after the previous operations.
    fn found(&self, state: &State, before: &[Op], op: &Op) -> Found {
        let (resource_prefix, key) = (&*op.resource_prefix, &*op.key);
        let is_same_object =
            |other: &&Op| *other.resource_prefix == *resource_prefix && *other.key == *key;
        if let Some(earlier) = before.iter().rev().find(is_same_object) {
            return if earlier.object.is_some() { Found::Written } else { Found::Absent };
        }
        Found::at(self.get(state, resource_prefix, key).map(|entry| entry.revision))
    }
}
