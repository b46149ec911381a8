//! Compaction of etcd: removes revisions that are older than the interval. If several servers share etcd, only one
//! compacts.
//!
//! The version of the key [`KEY`] counts compactions, and its value is the last compacted revision. A server compacts
//! only if the version is the last one that it observed. Upstream: `compactor`.

use std::sync::Arc;

use tokio::time::sleep;

use super::client::CallError;
use super::connection::Etcd;
use super::wire::{
    self, CompactionRequest, Compare, CompareTarget, CompareValue, KeyValue, Operation,
    OperationResult, PutRequest, RangeRequest, TxnRequest, TxnResponse, operation,
};
use crate::store::shared::Shared;

/// Key of the last compaction. It is not below the prefix of objects.
const KEY: &str = "compact_rev_key";

/// Last compaction that a server knows about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LastCompaction {
    /// Version of the key.
    version: i64,
    /// Revision of etcd when the server learned this.
    revision: u64,
}

/// Compacts etcd until the server shuts down.
pub(super) async fn run(shared: Arc<Shared>) {
    let Some(etcd) = &shared.etcd else { return };
    let mut known = LastCompaction::default();
    loop {
        sleep(etcd.compaction_interval).await;
        match compact(etcd, known).await {
            Ok(now) => known = now,
            Err(error) => tracing::warn!(error = error.message(), "etcd cannot be compacted"),
        }
    }
}

/// Returns the revision of the last compaction that began, or 0 if none is known.
pub(super) async fn last(etcd: &Etcd) -> Result<u64, CallError> {
    let request = RangeRequest { key: KEY.into(), ..RangeRequest::default() };
    let response = etcd.client.range(request).await?;
    let value =
        response.kvs.first().and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok());
    Ok(value.unwrap_or(0))
}

/// Compacts up to the revision that etcd had one interval ago, unless another server has done so.
async fn compact(etcd: &Etcd, known: LastCompaction) -> Result<LastCompaction, CallError> {
    let response = etcd.client.txn(request(known)).await?;
    let now = learn(known, &response);
    if response.succeeded && known.revision != 0 {
        let revision = wire::signed(known.revision);
        etcd.client.compact(CompactionRequest { revision }).await?;
        tracing::debug!(revision, "etcd is compacted");
    }
    Ok(now)
}

/// Returns the transaction by which this server claims the compaction.
fn request(known: LastCompaction) -> TxnRequest {
    let value = known.revision.to_string().into_bytes();
    let put = PutRequest { key: KEY.into(), value, lease: 0 };
    let get = RangeRequest { key: KEY.into(), ..RangeRequest::default() };
    TxnRequest {
        compare: vec![Compare {
            target: CompareTarget::Version.into(),
            key: KEY.into(),
            value: Some(CompareValue::Version(known.version)),
        }],
        success: vec![operation(Operation::Put(put))],
        failure: vec![operation(Operation::Range(get))],
    }
}

/// Returns the last compaction according to the response to [`request`].
fn learn(known: LastCompaction, response: &TxnResponse) -> LastCompaction {
    let revision = wire::revision(response.header.as_ref());
    let version = if response.succeeded {
        known.version.saturating_add(1)
    } else {
        let found = response.responses.iter().find_map(|response| match &response.response {
            Some(OperationResult::Range(range)) => range.kvs.first(),
            _ => None,
        });
        found.map_or(0, |KeyValue { version, .. }| *version)
    };
    LastCompaction { version, revision }
}

#[cfg(test)]
mod tests {
    use super::wire::{RangeResponse, ResponseHeader, ResponseOp};
    use super::*;

    #[test]
    fn a_server_that_came_second_learns_the_version_and_compacts_nothing() {
        let known = LastCompaction { version: 3, revision: 70 };
        let header = Some(ResponseHeader { revision: 90 });
        let won = TxnResponse { header, succeeded: true, responses: Vec::new() };
        assert_eq!(learn(known, &won), LastCompaction { version: 4, revision: 90 });
        let kvs = vec![KeyValue { version: 8, value: "75".into(), ..KeyValue::default() }];
        let range = OperationResult::Range(RangeResponse { header: None, kvs, more: false });
        let responses = vec![ResponseOp { response: Some(range) }];
        let lost = TxnResponse { succeeded: false, responses, ..won };
        assert_eq!(learn(known, &lost), LastCompaction { version: 8, revision: 90 });
        let sent = request(known);
        assert_eq!(sent.compare[0].value, Some(CompareValue::Version(3)));
    }
}
