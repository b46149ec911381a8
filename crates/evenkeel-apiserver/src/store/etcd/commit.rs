//! Commit of a transaction to etcd.

use std::sync::Arc;

use super::connection::{Etcd, Layout, unavailable};
use super::wire::{
    self, Compare, CompareTarget, CompareValue, DeleteRangeRequest, KeyValue, Operation,
    OperationResult, PutRequest, RangeRequest, TxnRequest, TxnResponse, operation,
};
use crate::resource::ResourcePrefix;
use crate::store::entry::{Change, Encoded, Entry};
use crate::store::shared::Shared;
use crate::store::transaction::{Expect, Op, Transaction, WriteError};

/// Maximum number of operations of one transaction: etcd accepts 128 by default (`--max-txn-ops`).
const MAX_OPS: usize = 100;

/// Write of one key in a transaction of etcd.
struct KeyWrite {
    resource_prefix: ResourcePrefix,
    key: Box<str>,
    etcd_key: Vec<u8>,
    /// Expected revision of the key; 0 if the key must not exist.
    expected: u64,
    /// State in memory at the expected revision.
    previous: Option<Arc<Entry>>,
    /// Object to store; `None` deletes the stored one.
    object: Option<Encoded>,
    /// Whether a later operation of the transaction deletes the object again. etcd accepts one operation for each key of
    /// a transaction, so that the object is not stored.
    is_removed: bool,
    /// Error if the key is not at the expected revision.
    mismatch: WriteError,
}

impl Shared {
    /// Commits a transaction to etcd, and waits until memory has it. Returns the written entries in order.
    pub(in crate::store) async fn commit_to_etcd(
        &self,
        etcd: &Etcd,
        mut transaction: Transaction,
    ) -> Result<Vec<Arc<Entry>>, WriteError> {
        let mut entries = Vec::with_capacity(transaction.len());
        // A transaction of many operations only creates independent objects, such as those of a new cluster.
        let is_divisible = transaction.unique.is_empty()
            && transaction.ops.iter().all(|op| op.expect == Expect::Absent && op.object.is_some());
        while transaction.len() > MAX_OPS && is_divisible {
            let rest = transaction.ops.split_off(MAX_OPS);
            let part = std::mem::take(&mut transaction.ops);
            entries.extend(self.commit_part(etcd, Transaction::of(part)).await?);
            transaction.ops = rest;
        }
        entries.extend(self.commit_part(etcd, transaction).await?);
        Ok(entries)
    }

    async fn commit_part(
        &self,
        etcd: &Etcd,
        transaction: Transaction,
    ) -> Result<Vec<Arc<Entry>>, WriteError> {
        let checked = self.pending().check(&self.read(), &transaction);
        checked.map_err(|(error, _)| error)?;
        let writes = self.key_writes(etcd, transaction.ops);
        let mut leases = Vec::with_capacity(writes.len());
        for write in &writes {
            leases.push(write.lease(etcd).await?);
        }
        let request = request(&*etcd.layout, &writes, &leases)?;
        let response = etcd.client.txn(request).await.map_err(|error| unavailable(&error))?;
        let revision = wire::revision(response.header.as_ref());
        self.wait_for_etcd(etcd, revision).await?;
        if !response.succeeded {
            return Err(mismatch(writes, &response));
        }
        Ok(writes.into_iter().flat_map(|write| self.entries(write, revision)).collect())
    }

    /// Returns one write for each key of the operations, which hold in memory.
    fn key_writes(&self, etcd: &Etcd, ops: Vec<Op>) -> Vec<KeyWrite> {
        let state = self.read();
        let mut writes: Vec<KeyWrite> = Vec::with_capacity(ops.len());
        for (index, op) in ops.into_iter().enumerate() {
            let mismatch = op.mismatch(index);
            let expected = match op.expect {
                Expect::At(revision) => revision,
                Expect::Absent => 0,
                Expect::Written => {
                    let is_same = |write: &&mut KeyWrite| {
                        write.resource_prefix == op.resource_prefix && write.key == op.key
                    };
                    if let Some(write) = writes.iter_mut().find(is_same) {
                        write.is_removed = true;
                    }
                    continue;
                }
            };
            writes.push(KeyWrite {
                etcd_key: etcd.key(&op.resource_prefix, &op.key),
                expected,
                previous: state.get(&op.resource_prefix, &op.key).cloned(),
                resource_prefix: op.resource_prefix,
                key: op.key,
                object: op.object,
                is_removed: false,
                mismatch,
            });
        }
        writes
    }

    /// Returns the entries of a key's operations, which etcd committed at a revision.
    fn entries(&self, write: KeyWrite, revision: u64) -> Vec<Arc<Entry>> {
        let KeyWrite { resource_prefix, key, previous, object, is_removed, .. } = write;
        let deleted = |entry: &Entry| Arc::new(entry.with_revision(revision, Change::Deleted));
        let Some(object) = object else {
            return previous.as_deref().map(deleted).into_iter().collect();
        };
        let in_memory = self.read().get(&resource_prefix, &key).cloned();
        if let Some(entry) = in_memory.filter(|entry| entry.revision == revision) {
            return vec![entry];
        }
        // Another write has followed, or the object is removed immediately.
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        let entry = Arc::new(object.into_entry(Arc::from(&*key), revision, change));
        if is_removed {
            let deleted = deleted(&entry);
            return vec![entry, deleted];
        }
        vec![entry]
    }
}

impl KeyWrite {
    /// Returns the ID of the lease that the object expires with; 0 if it does not expire.
    async fn lease(&self, etcd: &Etcd) -> Result<i64, WriteError> {
        let mut leases = etcd.leases.iter();
        let leases = leases.find(|(prefix, _)| *prefix == self.resource_prefix);
        match leases.filter(|_| self.object.is_some()) {
            Some((_, leases)) => {
                leases.get(&etcd.client).await.map_err(|error| unavailable(&error))
            }
            None => Ok(0),
        }
    }

    /// Returns the comparison that holds if the key is at the expected revision.
    fn comparison(&self) -> Compare {
        Compare {
            target: CompareTarget::Mod.into(),
            key: self.etcd_key.clone(),
            value: Some(CompareValue::ModRevision(wire::signed(self.expected))),
        }
    }
}

/// Returns etcd's transaction of the writes, each with a lease.
fn request(
    layout: &dyn Layout,
    writes: &[KeyWrite],
    leases: &[i64],
) -> Result<TxnRequest, WriteError> {
    let mut success = Vec::with_capacity(writes.len());
    for (write, &lease) in writes.iter().zip(leases) {
        let key = write.etcd_key.clone();
        let write_operation = match &write.object {
            Some(object) if !write.is_removed => {
                let object = object.decode().map_err(|error| invalid(&error))?;
                let value = layout.encode(&write.resource_prefix, &object);
                let value = value.map_err(|error| invalid(&error))?;
                Operation::Put(PutRequest { key, value, lease })
            }
            _ => Operation::DeleteRange(DeleteRangeRequest { key }),
        };
        success.push(operation(write_operation));
    }
    let range = |write: &KeyWrite| RangeRequest {
        key: write.etcd_key.clone(),
        keys_only: true,
        ..RangeRequest::default()
    };
    Ok(TxnRequest {
        compare: writes.iter().map(KeyWrite::comparison).collect(),
        success,
        failure: writes.iter().map(|write| operation(Operation::Range(range(write)))).collect(),
    })
}

fn invalid(error: &dyn std::fmt::Display) -> WriteError {
    WriteError::Etcd(format!("the object cannot be encoded: {error}").into())
}

/// Returns the error of the first key that is not at its expected revision.
fn mismatch(writes: Vec<KeyWrite>, response: &TxnResponse) -> WriteError {
    let found = response.responses.iter().map(|response| match &response.response {
        Some(OperationResult::Range(range)) => range.kvs.first(),
        _ => None,
    });
    let is_mismatch = |(write, found): &(KeyWrite, Option<&KeyValue>)| {
        write.expected != found.map_or(0, |kv| wire::unsigned(kv.mod_revision))
    };
    let failed = writes.into_iter().zip(found).find(is_mismatch);
    failed.map_or(WriteError::Mismatch { op: 0 }, |(write, _)| write.mismatch)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::wire::{RangeResponse, ResponseOp};
    use super::*;
    use crate::etcd_layout::EtcdLayout;
    use crate::store::entry::SelectionAttributes;

    /// Returns the write of a ConfigMap at an expected revision; without data, its deletion.
    fn write(key: &str, expected: u64, is_deletion: bool, is_removed: bool) -> KeyWrite {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": key}});
        let object = Encoded::new(&object, SelectionAttributes::default());
        KeyWrite {
            resource_prefix: "/configmaps".into(),
            key: key.into(),
            etcd_key: format!("/registry/configmaps/{key}").into_bytes(),
            expected,
            previous: None,
            object: (!is_deletion).then_some(object),
            is_removed,
            mismatch: WriteError::Taken { value: key.to_owned() },
        }
    }

    #[test]
    fn a_transaction_compares_and_writes_each_key_once() {
        let writes = [
            write("new", 0, false, false),
            write("old", 7, false, false),
            write("gone", 8, true, false),
            write("removed", 9, false, true),
        ];
        let layout = EtcdLayout::builtin(std::time::Duration::ZERO);
        let sent = request(&layout, &writes, &[0, 5, 0, 0]).expect("a transaction");
        let compared = sent.compare.iter().map(|compare| match compare.value {
            Some(CompareValue::ModRevision(revision)) => revision,
            _ => panic!("{compare:?}"),
        });
        assert_eq!(compared.collect::<Vec<_>>(), [0, 7, 8, 9]);
        assert!(sent.compare.iter().all(|compare| compare.target == CompareTarget::Mod as i32));
        let done = sent.success.iter().map(|operation| match &operation.request {
            Some(Operation::Put(put)) => {
                assert!(put.value.starts_with(b"k8s\0"));
                format!("put {}", put.lease)
            }
            Some(Operation::DeleteRange(_)) => "delete".to_owned(),
            other => panic!("{other:?}"),
        });
        assert_eq!(done.collect::<Vec<_>>(), ["put 0", "put 5", "delete", "delete"]);
        assert_eq!(sent.failure.len(), writes.len());
    }

    #[test]
    fn the_error_is_that_of_the_first_key_at_another_revision() {
        let found = |revisions: [i64; 3]| {
            let responses = revisions.map(|mod_revision| {
                let kv = KeyValue { mod_revision, ..KeyValue::default() };
                let kvs = if mod_revision == 0 { Vec::new() } else { vec![kv] };
                let range = RangeResponse { header: None, kvs, more: false };
                ResponseOp { response: Some(OperationResult::Range(range)) }
            });
            TxnResponse { responses: responses.into(), ..TxnResponse::default() }
        };
        let error = |revisions| {
            let keys = [("a", 0), ("b", 7), ("c", 8)];
            let writes = keys.map(|(key, expected)| write(key, expected, false, false));
            match mismatch(writes.into(), &found(revisions)) {
                WriteError::Taken { value } => value,
                other => other.to_string(),
            }
        };
        assert_eq!(error([5, 7, 8]), "a");
        assert_eq!(error([0, 6, 9]), "b");
        assert_eq!(error([0, 7, 0]), "c");
    }
}
