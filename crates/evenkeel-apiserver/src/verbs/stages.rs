//! The stages of a write, in order. A create and an update (and so a patch and an apply) differ in whether there is an old
//! object.
//!
//! | documented | where |
//! |---|---|
//! | Decode the body, with field validation | `create::serve`, `update::serve`, `patch::patched` |
//! | Convert to the storage version and apply defaults | `attempt::convert_in` |
//! | `Preconditions`: uid and resourceVersion | `write::preconditions`, `write::absent_preconditions` |
//! | `rest.FillObjectMetaSystemFields`, names for `generateName` | `write::create`, `write::create_named_by_chance` |
//! | `rest.BeforeCreate`, `rest.BeforeUpdate`: fields that the strategy sets; cluster IPs and node ports | `prepare` |
//! | Mutating admission: plug-ins, policies, webhooks | `mutate` |
//! | Validation by the strategy, the schema and CEL rules; escalation checks | `validate` |
//! | Validating admission: policies, webhooks, plug-ins; quotas last | `admit` |
//! | `Storage.Create`, `GuaranteedUpdate`, with `BeginCreate`, `BeginUpdate` and their `FinishFunc` | `persist`, `transaction` |
//! | Convert to the request's version and encode | `respond::with_object`, `respond::with_object_or_part` |
//!
//! Upstream: `Store.Create` and `Store.Update` of `registry/generic/registry`.

use std::sync::Arc;

use http::Method;
use serde_json::Value;

use super::attempt::{Attempt, Creates, Lost, MAX_WRITE_ATTEMPTS, Write, Written, object_version};
use super::meta;
use crate::admission::attributes::{Attributes, Operation};
use crate::admission::quota::{self, QuotaUpdates};
use crate::admission::{self, noderestriction, policy, webhook};
use crate::custom::codec;
use crate::registry::{self, policy_params, policybased, resourceclaim};
use crate::resource::ResourceType;
use crate::resource::key;
use crate::selector::selection_attributes;
use crate::store::{self, Encoded, Entry, Expect, Transaction, WriteError};
use evenkeel_apimachinery::schema;
use evenkeel_apimachinery::status::{FieldError, StatusError};

/// Takes an attempt through all stages.
pub(super) async fn run(write: &mut Write<'_>, mut attempt: Attempt<'_>) -> Result<Written, Lost> {
    prepare(write, &mut attempt)?;
    mutate(write, &mut attempt).await?;
    validate(write, &mut attempt)?;
    let quotas = admit(write, &attempt).await?;
    persist(write, attempt, quotas).await
}

/// Sets the fields that only the server sets, and restores those that this path may not change.
///
/// Upstream: `rest.BeforeCreate` and `rest.BeforeUpdate`.
fn prepare(write: &Write<'_>, attempt: &mut Attempt<'_>) -> Result<(), StatusError> {
    let cx = write.context(attempt.name);
    let strategy = &write.stored.strategy;
    let old = attempt.old();
    match old {
        Some(old) => strategy.prepare_for_update(&cx.strategy(), &mut attempt.new, old),
        None => {
            noderestriction::admit(&cx, Operation::Create, &attempt.new, &Value::Null)?;
            strategy.prepare_for_create(&cx.strategy(), &mut attempt.new)?;
        }
    }
    registry::allocate(&cx, &mut attempt.new, old)
}

/// Lets plug-ins, policies and webhooks change the object, in this order.
async fn mutate(write: &mut Write<'_>, attempt: &mut Attempt<'_>) -> Result<(), StatusError> {
    let (mut warnings, old) = (Vec::new(), attempt.old());
    let cx = write.context(attempt.name);
    admission::admit(&cx, &mut attempt.new, old)?;
    policy::mutate(&cx, &mut attempt.new, old)?;
    let mutated = webhook::mutate(&cx, &mut attempt.new, old, &mut warnings).await;
    write.request.warnings.add(warnings);
    mutated
}

/// Refuses an object that grants more than its writer has, or that is not valid. Counts the generation.
fn validate(write: &Write<'_>, attempt: &mut Attempt<'_>) -> Result<(), StatusError> {
    let cx = write.context(attempt.name);
    let (stored, old, new) = (&*write.stored, attempt.old(), &mut attempt.new);
    let (strategy, strategy_cx) = (&*stored.strategy, cx.strategy());
    policybased::check(&cx, write.request.target.name, new, old)?;
    if let Some(old) = old
        && strategy.has_generation(write.has_status())
        && strategy.generation_changes(new, old)
    {
        let generation = meta::generation(old) + 1;
        meta::metadata(new).insert("generation".to_owned(), Value::from(generation));
    }
    let mut errors = old.map_or_else(Vec::new, |old| meta::update_errors(new, old));
    if old.is_none() || strategy.update_validates_name(&strategy_cx) {
        errors.extend(meta::name_errors(strategy, &strategy_cx, new));
    }
    if old.is_none() {
        errors.extend(meta::generation_errors(new));
    }
    errors.extend(schema::validate(&stored.gvk, new));
    let verb = if write.request.method == Method::PATCH { "patch" } else { "update" };
    errors.extend(resourceclaim::check(&cx, verb, new, old));
    errors.extend(match old {
        Some(old) => strategy.validate_update(&strategy_cx, new, old),
        None => strategy.validate(&strategy_cx, new),
    });
    errors.extend(policy::expressions(stored, new));
    if errors.is_empty() {
        errors.extend(policy_params::check(&cx, new, old));
    }
    invalid(stored, attempt.name, &errors)
}

fn invalid(resource: &ResourceType, name: &str, errors: &[FieldError]) -> Result<(), StatusError> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid(&resource.group_kind(), name, errors))
    }
}

/// Asks policies, webhooks and the plug-ins that only refuse, in this order; says how the object changes its quotas.
async fn admit(write: &mut Write<'_>, attempt: &Attempt<'_>) -> Result<QuotaUpdates, StatusError> {
    let (mut warnings, old) = (Vec::new(), attempt.old());
    let cx = write.context(attempt.name);
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request =
        Attributes { cx: &cx, operation, object: &attempt.new, old: old.unwrap_or(&Value::Null) };
    let validated = match policy::validate(&request, &mut warnings) {
        Ok(()) => webhook::validate(&request, &mut warnings).await,
        Err(error) => Err(error),
    };
    write.request.warnings.add(warnings.drain(..));
    validated?;
    let quotas = admission::accept(&cx, &attempt.new, old)?;
    warnings.extend(write.stored.strategy.warnings(&cx.strategy(), &attempt.new, old));
    warnings.extend(admission::warnings(&cx, &attempt.new, old));
    write.request.warnings.add(warnings);
    Ok(quotas)
}

/// Stores the object, or only says what would be stored. Nothing is left behind where this does not come to an end: up to
/// the commit nothing is written, and the commit is one transaction.
///
/// Upstream: `Store.Create`, `Store.Update` and `deleteWithoutFinalizers`.
async fn persist(
    write: &Write<'_>,
    mut attempt: Attempt<'_>,
    quotas: QuotaUpdates,
) -> Result<Written, Lost> {
    let (api, stored) = (write.request.api, &*write.stored);
    let created = attempt.old.is_none();
    // A dry run answers with the version that the client sent.
    if let Some(how) = attempt.how.filter(|_| !write.options.dry_run) {
        prepare_for_storage(&mut attempt.new, how)?;
    }
    let kept = codec::to_storage(api, stored, &attempt.new).await?;
    let key = key(stored, write.request.target.namespace, attempt.name);
    if write.options.dry_run {
        if created && api.store.get(&stored.resource_prefix, &key).is_some() {
            return Err(Lost::Race);
        }
        store::storable(&kept)?;
        let object = codec::for_answer(api, stored, kept.into_owned()).await?;
        return Ok(Written { object, entry: None, created });
    }
    if attempt.old().is_some_and(|old| delete_without_finalizers(stored, &attempt.new, old)) {
        let change = Change { key: &key, attempt: &attempt, kept: None };
        commit(write, &change, None, quotas).await?;
        return Ok(Written { object: attempt.new, entry: None, created });
    }
    let encoded = Encoded::new(&kept, selection_attributes(stored, &kept));
    if encoded.is_too_large() && attempt.new.pointer("/metadata/managedFields").is_some() {
        // Without its managedFields the object may fit.
        drop((kept, encoded));
        meta::metadata(&mut attempt.new).remove("managedFields");
        return Box::pin(persist(write, attempt, quotas)).await;
    }
    let change = Change { key: &key, attempt: &attempt, kept: Some(&kept) };
    let written = match attempt.old {
        Some((entry, _)) if !entry.is_stale && encoded.same_as(entry) => {
            api.store.settle().await?;
            entry.clone()
        }
        _ => commit(write, &change, Some(encoded), quotas).await?,
    };
    let entry = codec::entry(api, stored, written).await?;
    Ok(Written { object: attempt.new, entry: Some(entry), created })
}

/// Takes the version from an object that is about to be created. Only a POST refuses one, and what is no version is none.
///
/// Upstream: `store.Create` and `store.updateState` in `storage/etcd3/store.go`.
fn prepare_for_storage(object: &mut Value, how: Creates) -> Result<(), StatusError> {
    if how == Creates::Post && object_version(object).is_ok_and(|version| version != 0) {
        return Err(StatusError::plain_internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    meta::metadata(object).remove("resourceVersion");
    Ok(())
}

/// Whether an object that is being deleted goes with this update: its last finalizer was taken off and nothing else keeps it.
fn delete_without_finalizers(resource: &ResourceType, new: &Value, old: &Value) -> bool {
    if !meta::deleting(old)
        || !meta::finalizers(new).is_empty()
        || meta::grace(old).unwrap_or(0) != 0
    {
        return false;
    }
    if &*resource.resource_prefix == "/namespaces" {
        return super::namespace::is_finalized(new);
    }
    !meta::finalizers(old).is_empty()
}

/// A change of one object that is to be committed.
struct Change<'a> {
    key: &'a str,
    attempt: &'a Attempt<'a>,
    /// The new object as it is to be stored; none where it is deleted.
    kept: Option<&'a Value>,
}

/// Commits a change together with everything that is written with it. Where only that changed meanwhile, it is computed
/// again.
async fn commit(
    write: &Write<'_>,
    change: &Change<'_>,
    mut encoded: Option<Encoded>,
    mut quotas: QuotaUpdates,
) -> Result<Arc<Entry>, Lost> {
    let attempt = change.attempt;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let encode = |kept| Encoded::new(kept, selection_attributes(&write.stored, kept));
        let encoded = encoded.take().or_else(|| change.kept.map(encode));
        let (transaction, op) = transaction(write, change, encoded, quotas);
        match write.request.api.store.commit(transaction).await {
            Ok(written) => return written.into_iter().nth(op).ok_or(Lost::Race),
            Err(WriteError::Mismatch { op: failed }) if failed != op => {}
            Err(error) => return Err(error.into()),
        }
        let cx = write.context(attempt.name);
        quotas = quota::evaluate(&cx, &attempt.new, attempt.old())?;
    }
    let why = "its quotas are being written to by too many others";
    Err(StatusError::conflict(&write.stored.name, attempt.name, why).into())
}

/// Returns the transaction of a change, and the place of the object in it.
///
/// Upstream: `BeginCreate`, `BeginUpdate` and their `FinishFunc`.
fn transaction(
    write: &Write<'_>,
    change: &Change<'_>,
    encoded: Option<Encoded>,
    quotas: QuotaUpdates,
) -> (Transaction, usize) {
    let Change { key, attempt, kept } = *change;
    let (api, stored) = (write.request.api, &*write.stored);
    let mut transaction = Transaction::default();
    if kept.is_some() {
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
        let object = kept.map(|_| &attempt.new);
        registry::finish_write(api, stored, object, old, &mut transaction);
    }
    (transaction, op)
}
