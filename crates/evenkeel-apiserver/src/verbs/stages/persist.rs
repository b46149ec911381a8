//! Persistence: the single transaction of a write.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::quota::{self, QuotaUpdates};
use crate::custom::codec;
use crate::registry;
use crate::resource::{ResourceType, key};
use crate::selector::selection_attributes;
use crate::store::{self, Encoded, Entry, Expect, Transaction, WriteError};
use crate::verbs::attempt::{
    Attempt, AttemptError, CreatedBy, MAX_WRITE_ATTEMPTS, Write, Written, object_version,
};
use crate::verbs::{meta, namespace};
use evenkeel_apimachinery::status::StatusError;

/// Stores the object, or returns the object that a dry run would store. A cancelled call changes nothing, because all
/// writes are in one transaction.
///
/// Upstream: `Store.Create`, `Store.Update` and `deleteWithoutFinalizers`.
pub(super) async fn persist(
    write: &Write<'_>,
    mut attempt: Attempt<'_>,
    quotas: QuotaUpdates,
) -> Result<Written, AttemptError> {
    let (api, stored) = (write.request.api, &*write.stored);
    if write.answers.are_missing() {
        // The attempt depends on provisional authorization decisions. The caller repeats it.
        return Err(AttemptError::Race);
    }
    let created = attempt.old.is_none();
    // A dry run responds with the client's resource version.
    if let Some(created_by) = attempt.created_by
        && !write.options.dry_run
    {
        prepare_for_storage(&mut attempt.new, created_by)?;
    }
    if !write.options.dry_run {
        // Upstream: `PrepareObjectForStorage`.
        meta::metadata(&mut attempt.new).remove("selfLink");
    }
    let stored_form = codec::to_storage(api, stored, &attempt.new).await?;
    let key = key(stored, write.request.target.namespace, attempt.name);
    if write.options.dry_run {
        if created && api.store.get(&stored.resource_prefix, &key).is_some() {
            return Err(AttemptError::Race);
        }
        store::check_storable(&stored_form)?;
        let object = codec::for_answer(api, stored, stored_form.into_owned()).await?;
        return Ok(Written { object, entry: None, created });
    }
    if attempt.old().is_some_and(|old| delete_without_finalizers(stored, &attempt.new, old)) {
        let change = Change { key: &key, attempt: &attempt, stored_form: None };
        commit(write, &change, None, quotas).await?;
        return Ok(Written { object: attempt.new, entry: None, created });
    }
    let encoded = Encoded::new(&stored_form, selection_attributes(stored, &stored_form));
    if encoded.is_too_large() && attempt.new.pointer("/metadata/managedFields").is_some() {
        // The object may be small enough without its managed fields.
        drop((stored_form, encoded));
        meta::metadata(&mut attempt.new).remove("managedFields");
        return Box::pin(persist(write, attempt, quotas)).await;
    }
    let change = Change { key: &key, attempt: &attempt, stored_form: Some(&stored_form) };
    let written = match attempt.old {
        Some((entry, _)) if !entry.is_stale && encoded.has_same_object(entry) => {
            // Nothing changes. Wait until the entry is committed.
            api.store.settle().await?;
            entry.clone()
        }
        _ => commit(write, &change, Some(encoded), quotas).await?,
    };
    let entry = codec::entry(api, stored, written).await?;
    Ok(Written { object: attempt.new, entry: Some(entry), created })
}

/// Removes the resource version of an object to create. A POST with a non-zero version is an error; an invalid version
/// is ignored.
///
/// Upstream: `store.Create` and `store.updateState` in `storage/etcd3/store.go`.
fn prepare_for_storage(object: &mut Value, created_by: CreatedBy) -> Result<(), StatusError> {
    if created_by == CreatedBy::Post && object_version(object).is_ok_and(|version| version != 0) {
        return Err(StatusError::plain_internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    meta::metadata(object).remove("resourceVersion");
    Ok(())
}

/// Returns whether an update removes an object with a deletion timestamp: the update removed the last finalizer, and
/// the grace period is over.
fn delete_without_finalizers(resource: &ResourceType, new: &Value, old: &Value) -> bool {
    if !meta::is_being_deleted(old)
        || !meta::finalizers(new).is_empty()
        || meta::deletion_grace_period(old).unwrap_or(0) != 0
    {
        return false;
    }
    if &*resource.resource_prefix == "/namespaces" {
        return namespace::is_finalized(new);
    }
    !meta::finalizers(old).is_empty()
}

/// Change of one object to commit.
struct Change<'a> {
    key: &'a str,
    attempt: &'a Attempt<'a>,
    /// New object in its stored form; `None` for a deletion.
    stored_form: Option<&'a Value>,
}

/// Commits a change together with the other objects of its transaction. If only those other objects changed in the
/// meantime, computes them again and retries.
async fn commit(
    write: &Write<'_>,
    change: &Change<'_>,
    mut encoded: Option<Encoded>,
    mut quotas: QuotaUpdates,
) -> Result<Arc<Entry>, AttemptError> {
    let attempt = change.attempt;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        // The first attempt uses the encoded object, later ones encode it again.
        let encode = |object| Encoded::new(object, selection_attributes(&write.stored, object));
        let mut encoded = encoded.take().or_else(|| change.stored_form.map(encode));
        if let Some(encoded) = &mut encoded {
            encoded.is_stale = attempt.is_normalized_later;
        }
        let (transaction, op) = transaction(write, change, encoded, quotas);
        match write.request.api.store.commit(transaction).await {
            Ok(written) => return written.into_iter().nth(op).ok_or(AttemptError::Race),
            // Another object of the transaction changed, a quota or an IPAddress, so compute it again.
            Err(WriteError::Mismatch { op: failed }) if failed != op => {}
            Err(error) => return Err(error.into()),
        }
        let cx = write.context(attempt.name);
        quotas = quota::evaluate(&cx, &attempt.new, attempt.old())?;
    }
    let why = "its quotas are being written to by too many others";
    Err(StatusError::conflict(&write.stored.name, attempt.name, why).into())
}

/// Returns the transaction of a change, and the index of the object's operation.
///
/// Upstream: `BeginCreate`, `BeginUpdate` and their `FinishFunc`.
fn transaction(
    write: &Write<'_>,
    change: &Change<'_>,
    encoded: Option<Encoded>,
    quotas: QuotaUpdates,
) -> (Transaction, usize) {
    let Change { key, attempt, stored_form } = *change;
    let (api, stored) = (write.request.api, &*write.stored);
    let mut transaction = Transaction::default();
    if stored_form.is_some() {
        registry::begin_write(api, stored, &attempt.new, attempt.old(), &mut transaction);
    }
    quotas.add_to(&mut transaction);
    let op = transaction.len();
    let expect = attempt.old.map_or(Expect::Absent, |(entry, _)| Expect::At(entry.revision));
    match encoded {
        Some(encoded) => transaction.put(&stored.resource_prefix, key, expect, encoded),
        None => transaction.delete(&stored.resource_prefix, key, expect),
    }
    if let Some(old) = attempt.old() {
        let object = stored_form.map(|_| &attempt.new);
        registry::finish_write(api, stored, object, old, &mut transaction);
    }
    (transaction, op)
}
