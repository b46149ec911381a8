//! Transactions: several writes with preconditions, committed together or not at all.

use std::sync::Arc;

use super::entry::Encoded;
use super::index::IndexedResources;
use crate::resource::ResourcePrefix;

/// State of the object that a write requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The object does not exist.
    Absent,
    /// The object is at this revision.
    At(u64),
    /// An earlier operation of the same transaction wrote the object.
    Written,
}

/// Error of a transaction that the store did not commit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The precondition of an operation is not met. Nothing is written.
    #[error("the object is not at the expected revision")]
    Mismatch {
        /// Index of that operation in its transaction.
        op: usize,
    },
    /// Another object already has a value that must be unique in its resource. Nothing is written.
    #[error("{value} is taken")]
    Taken {
        /// Value in the resource's index.
        value: String,
    },
    /// The object nests deeper than readers can decode. If it were stored, no client could change or delete it.
    #[error("{}", evenkeel_apimachinery::depth::TooDeep)]
    TooDeep,
    /// The object is larger than etcd accepts.
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// etcd's response was not as expected. The transaction may be committed nevertheless.
    #[error("{0}")]
    Etcd(Arc<str>),
    /// etcd did not respond in time. The transaction may be committed nevertheless.
    #[error("request did not complete within requested timeout - {0}")]
    TimedOut(Arc<str>),
    /// The store refuses writes. The message names the data folder and the remedy.
    #[error("{0}")]
    Storage(Arc<str>),
}

/// Operation of a transaction.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) resource_prefix: ResourcePrefix,
    pub(super) key: Box<str>,
    pub(super) expect: Expect,
    /// Object to store; `None` deletes the stored one.
    pub(super) object: Option<Encoded>,
    /// Value that the object reserves, such as the address of an IPAddress.
    pub(super) reserves: Option<Box<str>>,
}

impl Op {
    /// Returns the error of this operation, the one with this index, if its precondition does not hold.
    pub(super) fn mismatch(&self, index: usize) -> WriteError {
        match &self.reserves {
            Some(value) => WriteError::Taken { value: value.to_string() },
            None => WriteError::Mismatch { op: index },
        }
    }
}

/// Writes that the store commits together if all preconditions hold, or not at all. Each write has its own revision and
/// event, in the order of the operations.
///
/// Upstream: `Preconditions` and `GuaranteedUpdate` of `storage`, for one object.
#[derive(Debug, Default)]
#[must_use = "a transaction does nothing until it is committed"]
pub(crate) struct Transaction {
    pub(super) ops: Vec<Op>,
    /// Values that no object of an indexed resource may have before the transaction.
    pub(super) unique: Vec<(ResourcePrefix, String)>,
    /// Value that another server has allocated in the meantime, so that the transaction cannot succeed.
    taken: Option<String>,
    /// Whether the transaction deletes an object or leads to its deletion.
    is_deletion: bool,
}

impl Transaction {
    /// Creates a transaction that leads to an object's deletion. The store accepts it even on a full disk.
    pub(crate) fn deletion() -> Self {
        Self { is_deletion: true, ..Self::default() }
    }

    /// Creates a transaction of these operations.
    pub(super) fn of(ops: Vec<Op>) -> Self {
        Self { ops, ..Self::default() }
    }

    /// Returns the number of operations, which is the index of the next one.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Adds the write of an object.
    pub(crate) fn put(
        &mut self,
        resource_prefix: &ResourcePrefix,
        key: &str,
        expect: Expect,
        object: Encoded,
    ) {
        self.push(resource_prefix, key, expect, Some(object));
    }

    /// Adds the deletion of an object.
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
        self.ops.push(Op { resource_prefix, key, expect, object, reserves: None });
    }

    /// Declares that the object of the last operation reserves a value. If it exists already, the value is taken.
    pub(crate) fn reserves(&mut self, value: String) {
        if let Some(op) = self.ops.last_mut() {
            op.reserves = Some(value.into());
        }
    }

    /// Requires that no object of an indexed resource has this value before the transaction.
    pub(crate) fn unique(&mut self, resource_prefix: &ResourcePrefix, value: String) {
        self.unique.push((resource_prefix.clone(), value));
    }

    /// Declares that a value which the transaction allocates is taken.
    pub(crate) fn set_taken(&mut self, value: String) {
        self.taken = Some(value);
    }

    /// Returns an error if a value is taken.
    pub(super) fn check_taken(&self) -> Result<(), WriteError> {
        match &self.taken {
            Some(value) => Err(WriteError::Taken { value: value.clone() }),
            None => Ok(()),
        }
    }

    /// Returns whether an operation of the transaction writes this object.
    pub(crate) fn writes(&self, resource_prefix: &str, key: &str) -> bool {
        self.ops.iter().any(|op| *op.resource_prefix == *resource_prefix && *op.key == *key)
    }

    /// Returns whether the transaction deletes an object or leads to its deletion.
    pub(super) fn is_deletion(&self) -> bool {
        self.is_deletion
    }

    /// Returns an error if an object may not be stored.
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

    /// Returns the values that the store indexes for the objects of the transaction, each with the index of its
    /// operation. Callers compute them without the store's locks, because this decodes the objects.
    pub(super) fn index_values(
        &self,
        indexed_resources: IndexedResources,
    ) -> Vec<(usize, Vec<String>)> {
        let mut index_values = Vec::new();
        for (op_index, op) in self.ops.iter().enumerate() {
            let indexed = indexed_resources.iter().find(|(name, _)| *name == &*op.resource_prefix);
            if let (Some((_, values_of)), Some(encoded)) = (indexed, &op.object) {
                let object = encoded.decode().unwrap_or_default();
                index_values.push((op_index, values_of(&object)));
            }
        }
        index_values
    }
}
