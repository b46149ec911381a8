//! Transactions: several writes with their preconditions, committed together or not at all.

use std::sync::Arc;

use serde_json::Value;

use super::entry::{Change, Encoded, Entry};
use super::event::Event;
use super::state::{Collection, Staged, State};
use crate::resource::ResourcePrefix;

/// The state in which a write supposes its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// It does not exist.
    Absent,
    /// It is at this revision.
    At(u64),
    /// It is as an earlier operation of the same transaction wrote it.
    Written,
}

/// A write that did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The precondition of one operation does not hold; nothing is written.
    #[error("the object is not at the expected revision")]
    Mismatch {
        /// Place of that operation in its transaction.
        op: usize,
    },
    /// An object has a value already that only one object of its resource may have; nothing is written.
    #[error("{value} is taken")]
    Taken {
        /// The value in the resource's index.
        value: String,
    },
    /// The object nests deeper than any reader takes: once stored, nobody could change or delete it.
    #[error("{}", evenkeel_apimachinery::depth::TooDeep)]
    TooDeep,
    /// The object is larger than etcd takes.
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// The log cannot be written.
    #[error("the data folder cannot be written: {0}")]
    Disk(Arc<str>),
}

/// One operation of a transaction.
#[derive(Debug)]
struct Op {
    resource_prefix: ResourcePrefix,
    key: Box<str>,
    expect: Expect,
    /// What is stored; `None` deletes the object.
    object: Option<Encoded>,
}

/// Writes that the store commits together: all of them when every precondition holds, otherwise none. Each write gets a
/// revision and an event of its own, in the order of the operations.
///
/// Upstream: `Preconditions` and `GuaranteedUpdate` of `storage`, for one object.
#[derive(Debug, Default)]
#[must_use = "a transaction does nothing until it is committed"]
pub(crate) struct Transaction {
    ops: Vec<Op>,
    unique: Vec<(ResourcePrefix, String)>,
}

impl Transaction {
    /// Number of operations so far, which is the place of the next one.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Writes an object.
    pub(crate) fn put(
        &mut self,
        resource_prefix: &ResourcePrefix,
        key: &str,
        expect: Expect,
        object: Encoded,
    ) {
        self.push(resource_prefix, key, expect, Some(object));
    }

    /// Deletes an object.
    pub(crate) fn delete(&mut self, resource_prefix: &ResourcePrefix, key: &str, expect: Expect) {
        self.push(resource_prefix, key, expect, None);
    }

    fn push(
        &mut self,
        resource_prefix: &ResourcePrefix,
        key: &str,
        expect: Expect,
        object: Option<Encoded>,
    ) {
        let (resource_prefix, key) = (resource_prefix.clone(), key.into());
        self.ops.push(Op { resource_prefix, key, expect, object });
    }

    /// Requires that no object of an indexed resource has this value before the transaction.
    pub(crate) fn unique(&mut self, resource_prefix: &ResourcePrefix, value: String) {
        self.unique.push((resource_prefix.clone(), value));
    }

    /// Whether every object in it may be stored.
    pub(super) fn check_objects(&self) -> Result<(), WriteError> {
        for object in self.ops.iter().filter_map(|op| op.object.as_ref()) {
            if object.is_too_deep() {
                return Err(WriteError::TooDeep);
            }
            if object.is_too_large() {
                return Err(WriteError::TooLarge);
            }
        }
        Ok(())
    }

    /// Decodes the objects of indexed resources, by place: outside of the store's lock.
    pub(super) fn indexed(&self, is_indexed: impl Fn(&str) -> bool) -> Vec<(usize, Value)> {
        let decode = |(at, op): (usize, &Op)| {
            let object = op.object.as_ref().filter(|_| is_indexed(&op.resource_prefix))?;
            Some((at, object.decode().unwrap_or_default()))
        };
        self.ops.iter().enumerate().filter_map(decode).collect()
    }
}

/// Whether an object is there, and whether this transaction wrote it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Absent,
    Stored(u64),
    Written,
}

impl Found {
    fn is(self, expect: Expect) -> bool {
        match expect {
            Expect::Absent => self == Self::Absent,
            Expect::At(revision) => self == Self::Stored(revision),
            Expect::Written => self == Self::Written,
        }
    }
}

impl State {
    /// Checks every precondition, each against the state that the operations before it would leave.
    pub(super) fn check(&self, transaction: &Transaction) -> Result<(), WriteError> {
        let taken = |(resource_prefix, value): &&(ResourcePrefix, String)| {
            self.is_taken(resource_prefix, value)
        };
        if let Some((_, value)) = transaction.unique.iter().find(taken) {
            return Err(WriteError::Taken { value: value.clone() });
        }
        let ops = &transaction.ops;
        for (at, op) in ops.iter().enumerate() {
            let possible = match op.object {
                Some(_) => op.expect != Expect::Written,
                None => op.expect != Expect::Absent,
            };
            let holds = possible && self.found(&ops[..at], op).is(op.expect);
            if !holds {
                return Err(WriteError::Mismatch { op: at });
            }
        }
        Ok(())
    }

    /// Returns how an operation would find its object after those before it.
    fn found(&self, before: &[Op], op: &Op) -> Found {
        let (resource_prefix, key) = (&*op.resource_prefix, &*op.key);
        let same = |other: &&Op| *other.resource_prefix == *resource_prefix && *other.key == *key;
        if let Some(earlier) = before.iter().rev().find(same) {
            return if earlier.object.is_some() { Found::Written } else { Found::Absent };
        }
        let entry = self.collections.get(resource_prefix).and_then(|kept| kept.objects.get(key));
        entry.map_or(Found::Absent, |entry| Found::Stored(entry.revision))
    }

    /// Whether an object of an indexed resource has this value.
    pub(super) fn is_taken(&self, resource_prefix: &str, value: &str) -> bool {
        let index = self.collections.get(resource_prefix).and_then(|kept| kept.index.as_ref());
        index.is_some_and(|index| index.has(value))
    }

    /// Carries out a transaction that was checked.
    pub(super) fn apply(
        &mut self,
        transaction: Transaction,
        indexed: &[(usize, Value)],
    ) -> Vec<Staged> {
        let mut staged = Vec::with_capacity(transaction.ops.len());
        for (at, op) in transaction.ops.into_iter().enumerate() {
            let object = indexed.iter().find(|(place, _)| *place == at).map(|(_, object)| object);
            staged.extend(match op.object {
                Some(encoded) => Some(self.apply_put(op.resource_prefix, &op.key, encoded, object)),
                None => self.apply_delete(op.resource_prefix, &op.key),
            });
        }
        staged
    }

    fn apply_put(
        &mut self,
        resource_prefix: ResourcePrefix,
        key: &str,
        encoded: Encoded,
        object: Option<&Value>,
    ) -> Staged {
        self.revision += 1;
        let revision = self.revision;
        let kept = self.collection(&resource_prefix);
        let previous = kept.objects.get(key).cloned();
        let (key, change) = match &previous {
            None => (Arc::from(key), Change::Added),
            Some(old) => (old.key.clone(), Change::Modified),
        };
        let entry = Arc::new(encoded.into_entry(key.clone(), revision, change));
        if let Some(index) = &mut kept.index {
            index.update(&key, object);
        }
        kept.objects.insert(key, entry.clone());
        kept.staged(resource_prefix, entry, previous)
    }

    fn apply_delete(&mut self, resource_prefix: ResourcePrefix, key: &str) -> Option<Staged> {
        let kept = self.collections.get_mut(&resource_prefix)?;
        let old = kept.objects.remove(key)?;
        self.revision += 1;
        if let Some(index) = &mut kept.index {
            index.update(&old.key, None);
        }
        let entry = Arc::new(old.at(self.revision, Change::Deleted));
        Some(kept.staged(resource_prefix, entry, Some(old)))
    }
}

impl Collection {
    /// Puts a change among the resource's events, and makes what the log is to write.
    fn staged(
        &mut self,
        resource_prefix: ResourcePrefix,
        entry: Arc<Entry>,
        previous: Option<Arc<Entry>>,
    ) -> Staged {
        self.touched = entry.revision;
        let event = Arc::new(Event::new(entry, previous));
        self.ring.push(event.clone());
        Staged { resource_prefix, event, signal: self.signal.clone() }
    }
}
