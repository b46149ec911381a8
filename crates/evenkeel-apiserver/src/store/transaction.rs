//! Transactions: several writes with their preconditions, committed together or not at all.

use std::sync::Arc;

use super::entry::Encoded;
use super::index::IndexedResources;
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
    /// The data folder cannot be written to now. The text names it, and what to do.
    #[error("{0}")]
    Storage(Arc<str>),
}

/// One operation of a transaction.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) resource_prefix: ResourcePrefix,
    pub(super) key: Box<str>,
    pub(super) expect: Expect,
    /// What is stored; `None` deletes the object.
    pub(super) object: Option<Encoded>,
}

/// Writes that the store commits together: all of them when every precondition holds, otherwise none. Each write gets a
/// revision and an event of its own, in the order of the operations.
///
/// Upstream: `Preconditions` and `GuaranteedUpdate` of `storage`, for one object.
#[derive(Debug, Default)]
#[must_use = "a transaction does nothing until it is committed"]
pub(crate) struct Transaction {
    pub(super) ops: Vec<Op>,
    pub(super) unique: Vec<(ResourcePrefix, String)>,
    is_deletion: bool,
}

impl Transaction {
    /// Starts a transaction that leads to the deletion of an object: it is tried even on a full disk.
    pub(crate) fn deletion() -> Self {
        Self { is_deletion: true, ..Self::default() }
    }

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
        self.is_deletion = true;
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

    /// Whether an operation of it writes this object.
    pub(crate) fn writes(&self, resource_prefix: &str, key: &str) -> bool {
        self.ops.iter().any(|op| *op.resource_prefix == *resource_prefix && *op.key == *key)
    }

    /// Whether it deletes an object, or leads to that.
    pub(super) fn is_deletion(&self) -> bool {
        self.is_deletion
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

    /// The indexed values of its objects, by place: computed outside of the store's locks.
    pub(super) fn values(&self, indexed_resources: IndexedResources) -> Vec<(usize, Vec<String>)> {
        let values = |(index, op): (usize, &Op)| {
            let indexed = indexed_resources.iter().find(|(it, _)| *it == &*op.resource_prefix);
            let (_, values_of) = indexed?;
            let object = op.object.as_ref()?.decode().unwrap_or_default();
            Some((index, values_of(&object)))
        };
        self.ops.iter().enumerate().filter_map(values).collect()
    }
}
