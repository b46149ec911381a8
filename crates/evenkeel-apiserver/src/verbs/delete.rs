//! DELETE of an object or of a collection: preconditions, grace, finalizers, propagation.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `preconditions`: uid and resourceVersion | `check_preconditions` |
//! | `gracePeriodSeconds`; a later request can shorten it | `choose_step`, `shorten_grace_period` |
//! | `metadata.deletionTimestamp`, `metadata.deletionGracePeriodSeconds` | `set_deletion` |
//! | an object with finalizers is not removed | `choose_step` |
//! | `propagationPolicy`, `orphanDependents` | `apply_finalizers`, `delete_options::finalizers` |
//! | `dryRun` | `attempt` |
//! | a namespace's `spec.finalizers` | `namespace::mark_terminating`, `namespace::is_finalized` |
//! | Jobs orphan their pods by default, with a warning | `warn_of_orphans` |
//! | `deletecollection` | `serve_collection` |

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_api::time::{SignedDuration, Timestamp, saturating_add, saturating_sub};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::attempt::MAX_WRITE_ATTEMPTS;
use super::delete_options::DeleteOptions;
use super::list::{self, Page};
use super::precondition::Precondition;
use super::{meta, namespace, respond};
use crate::admission::attributes::{Attributes, Operation};
use crate::admission::{noderestriction, policy, webhook};
use crate::api::{Api, Options};
use crate::audit::{Level, RequestAudit};
use crate::auth::Answers;
use crate::budget::Budget;
use crate::custom::codec;
use crate::registry;
use crate::request::{RequestContext, Warnings};
use crate::resource::ResourceType;
use crate::resource::key;
use crate::response::Body;
use crate::selector::selection_attributes;
use crate::store::{Encoded, Entry, Expect, Transaction, WriteError};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::user::User;

/// Upstream's warning for the deletion of a Job without a propagation policy.
const ORPHANED_PODS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// Names of the PriorityClasses that the server makes.
const SYSTEM_PRIORITY_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// Result of a deletion.
pub(crate) enum Deleted {
    /// The object still exists, with a deletion timestamp.
    Marked(Value),
    /// The object is deleted; this was its last state.
    Gone(Value),
}

/// Request to delete objects of one resource.
pub(crate) struct Deletion<'a> {
    pub(crate) api: &'a Arc<Api>,
    /// Resource in the storage version.
    pub(crate) stored: &'a Arc<ResourceType>,
    pub(crate) user: &'a User,
    pub(crate) options: &'a DeleteOptions,
    /// Request for admission; `None` to skip admission.
    pub(crate) admission: Option<Admission<'a>>,
}

/// Attributes of a deletion request for admission.
pub(crate) struct Admission<'a> {
    /// Resource in the version of the request.
    requested: &'a ResourceType,
    /// Name in the request's path; empty for the deletion of a collection.
    name: &'a str,
    /// Collector of the warnings from policies and webhooks.
    warnings: &'a Warnings,
    /// Collector of annotations for the request's audit event.
    audit: &'a RequestAudit,
    /// `DeleteOptions` of the request, with kind and version.
    options: Value,
}

impl<'a> Admission<'a> {
    /// Returns the attributes of a request that deletes the object `name` of a resource with these options.
    pub(crate) fn new(
        requested: &'a ResourceType,
        name: &'a str,
        warnings: &'a Warnings,
        audit: &'a RequestAudit,
        options: &DeleteOptions,
    ) -> Result<Self, StatusError> {
        Ok(Self { requested, name, warnings, audit, options: options.to_value()? })
    }

    fn of(request: &'a RequestContext<'_>, options: &DeleteOptions) -> Result<Self, StatusError> {
        let RequestContext { target, warnings, audit, .. } = request;
        Self::new(request.resource(), target.name, warnings, audit, options)
    }
}

/// Deletes one object.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    body: &Bytes,
) -> Result<Response<Body>, StatusError> {
    let options =
        DeleteOptions::parse(body, request.header(http::header::CONTENT_TYPE), request.query)?;
    log_options(request, body, &options)?;
    request.format()?;
    namespace::admit_delete(request)?;
    refuse_system_priority_class(request)?;
    let stored = request.api.table.stored_version(request.resource());
    let key = key(&stored, request.target.namespace, request.target.name);
    let is_orphan_dependents_false = options.orphan_dependents == Some(false);
    warn_of_orphans(request, &stored, &options);
    let deletion = Deletion {
        api: request.api,
        stored: &stored,
        user: request.user,
        options: &options,
        admission: Some(Admission::of(request, &options)?),
    };
    let deleted = delete(&deletion, &key).await?;
    answer_deleted(request, &stored, deleted, is_orphan_dependents_false).await
}

/// Refuses to delete a PriorityClass of the system. The deletion of a collection does delete it.
///
/// Upstream: `REST.Delete` of `pkg/registry/scheduling/priorityclass/storage`.
fn refuse_system_priority_class(request: &RequestContext<'_>) -> Result<(), StatusError> {
    let (resource, name) = (request.resource(), request.target.name);
    let is_priority_class = resource.custom.is_none()
        && resource.group() == "scheduling.k8s.io"
        && resource.kind() == "PriorityClass";
    if !is_priority_class || !SYSTEM_PRIORITY_CLASSES.contains(&name) {
        return Ok(());
    }
    let why = "this is a system priority class and cannot be deleted";
    Err(StatusError::forbidden(&resource.name, name, why))
}

/// Records the options in a request's body for its audit event.
fn log_options(
    request: &RequestContext<'_>,
    body: &Bytes,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    if !body.is_empty() && request.audit.wants(Level::Metadata) {
        let mut object = options.to_value()?;
        // Upstream encodes options of a body in this version.
        object["apiVersion"] = "meta.k8s.io/__internal".into();
        request.audit.request_object(&object);
    }
    Ok(())
}

/// Adds a warning if a deletion of Jobs orphans their pods because the client sets no propagation policy.
fn warn_of_orphans(request: &RequestContext<'_>, stored: &ResourceType, options: &DeleteOptions) {
    if stored.plural() == "jobs"
        && stored.group() == "batch"
        && options.propagation_policy.is_none()
        && options.orphan_dependents.is_none()
    {
        request.warnings.add([ORPHANED_PODS.to_owned()]);
    }
}

async fn answer_deleted(
    request: &RequestContext<'_>,
    stored: &Arc<ResourceType>,
    deleted: Deleted,
    is_orphan_dependents_false: bool,
) -> Result<Response<Body>, StatusError> {
    match deleted {
        Deleted::Marked(object) => {
            let mut object = codec::for_answer(request.api, request.resource(), object).await?;
            if request.resource().converts() {
                stored.strategy.convert_out(&request.resource().gvk, &mut object);
            }
            // Like upstream, respond with 202 to `orphanDependents: false`.
            let code =
                if is_orphan_dependents_false { StatusCode::ACCEPTED } else { StatusCode::OK };
            respond::with_value(request, code, &object)
        }
        Deleted::Gone(mut object) if stored.strategy.returns_deleted_object() => {
            if request.resource().converts() {
                stored.strategy.convert_out(&request.resource().gvk, &mut object);
            }
            respond::with_value(request, StatusCode::OK, &object)
        }
        Deleted::Gone(object) => {
            let mut details = json!({"name": request.target.name, "kind": stored.plural(), "uid": meta::text(&object, "uid")});
            if !stored.group().is_empty() {
                details["group"] = Value::from(stored.group());
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Ok(respond::with_status(request, StatusCode::OK, &status))
        }
    }
}

/// Deletes an object by its key. Retries after conflicts with other writes.
pub(crate) async fn delete(deletion: &Deletion<'_>, key: &str) -> Result<Deleted, StatusError> {
    let Deletion { api, stored, options, .. } = deletion;
    let name = key.rsplit('/').next().unwrap_or(key);
    let expects_version = match &options.preconditions {
        Some(preconditions) => preconditions.resource_version.is_some(),
        None => false,
    };
    let answers = Answers::default();
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let Some(entry) = api.store.latest(&stored.resource_prefix, key) else {
            return Err(StatusError::not_found(&stored.name, name));
        };
        if options.is_unsafe() {
            return Err(readable(stored, key, name));
        }
        let result = attempt(deletion, &entry, name, &answers).await;
        if answers.settle().await {
            continue;
        }
        match result? {
            Some(deleted) => return Ok(deleted),
            // The precondition on the resource version cannot hold after a conflict.
            None if expects_version => break,
            None => {}
        }
    }
    Err(StatusError::modified(&stored.name, name))
}

/// Returns the error for the deletion of an unreadable object that can be read.
///
/// Upstream: `corruptObjectDeleter`.
fn readable(stored: &ResourceType, key: &str, name: &str) -> StatusError {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
         unsafe deletion is not allowed because the object is decodable from storage",
        crate::etcd_layout::path_of(stored)
    );
    StatusError::conflict(&stored.name, name, why)
}

/// Attempts to delete an object once. Returns `None` after a conflict with another write, or while the response of an
/// authorization webhook is missing.
async fn attempt(
    deletion: &Deletion<'_>,
    entry: &Arc<Entry>,
    name: &str,
    answers: &Answers,
) -> Result<Option<Deleted>, StatusError> {
    let Deletion { api, stored, options, .. } = deletion;
    let old = entry.decode().map_err(StatusError::internal)?;
    check_preconditions(stored, entry, &old, name, options)?;
    if let Some(admission) = &deletion.admission {
        let converted = codec::entry(api, stored, entry.clone()).await?;
        let object = codec::decode_read(stored, &converted)?;
        admit(deletion, admission, &object, answers).await?;
        if answers.are_missing() {
            return Ok(None);
        }
    }
    let mut new = old.clone();
    let step = choose_step(api, stored, &mut new, options)?;
    if step == Step::Remove {
        check_version_after_mark(deletion, &old, name)?;
        // Remove the object in its stored state.
        new = old;
    }
    if !options.is_dry_run() {
        match commit(api, stored, entry, &new, step).await? {
            Committed::Nothing => return Ok(None),
            Committed::At(revision) => {
                meta::set(&mut new, "resourceVersion", itoa::Buffer::new().format(revision));
            }
        }
    }
    Ok(Some(match step {
        Step::Mark => Deleted::Marked(new),
        Step::MarkAndRemove | Step::Remove => Deleted::Gone(new),
    }))
}

/// Result of a deletion's commit.
enum Committed {
    /// Another write changed the object first, so nothing is committed.
    Nothing,
    /// The step is committed; the object in the response has this revision.
    At(u64),
}

/// Commits a step of a deletion, together with the objects that are deleted with this one.
async fn commit(
    api: &Api,
    stored: &ResourceType,
    entry: &Entry,
    new: &Value,
    step: Step,
) -> Result<Committed, StatusError> {
    let (resource_prefix, unchanged) = (&stored.resource_prefix, Expect::At(entry.revision));
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let mut transaction = Transaction::deletion();
        if step != Step::Remove {
            let encoded = Encoded::new(new, selection_attributes(stored, new));
            if !encoded.has_same_object(entry) {
                transaction.put(resource_prefix, &entry.key, unchanged, encoded);
            }
        }
        let is_marked = transaction.len() > 0;
        if step != Step::Mark {
            let expect = if is_marked { Expect::Written } else { unchanged };
            transaction.delete(resource_prefix, &entry.key, expect);
        }
        // The later operations concern other objects.
        let n_own_ops = transaction.len();
        if step != Step::Mark {
            registry::finish_write(api, stored, None, new, &mut transaction);
        }
        match api.store.commit(transaction).await {
            Ok(written) if is_marked || step == Step::Remove => {
                // The response to a `MarkAndRemove` has the revision of the removal.
                let last_write = written.get(n_own_ops.saturating_sub(1));
                return Ok(Committed::At(last_write.map_or(0, |entry| entry.revision)));
            }
            // Setting the deletion fields changed nothing, so the object keeps its revision in the response, whether or
            // not it is removed.
            Ok(_) => return Ok(Committed::At(entry.revision)),
            Err(WriteError::Mismatch { op }) if op < n_own_ops => return Ok(Committed::Nothing),
            // Another object of the transaction changed, so read it again.
            Err(WriteError::Mismatch { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Committed::Nothing)
}

/// Runs the admission policies and webhooks for a deletion.
///
/// Upstream: `AdmissionToValidateObjectDeleteFunc`.
async fn admit(
    deletion: &Deletion<'_>,
    admission: &Admission<'_>,
    old: &Value,
    answers: &Answers,
) -> Result<(), StatusError> {
    let Deletion { api, stored, user, options, .. } = deletion;
    let cx = crate::api::Context {
        api,
        resource: stored,
        requested: admission.requested,
        now: api.clock.now(),
        user,
        namespace: meta::text(old, "namespace"),
        name: admission.name,
        subresource: "",
        budget: &Budget::default(),
        audit: admission.audit,
        answers,
        dry_run: options.is_dry_run(),
        options: Options::Delete(&admission.options),
        has_status: stored.subresource("status").is_some(),
        has_template_labels: false,
    };
    let request = Attributes::new(&cx, Operation::Delete, &Value::Null, old);
    noderestriction::admit(&cx, Operation::Delete, &Value::Null, old)?;
    let mut warnings = Vec::new();
    let refusal = async {
        webhook::admit_delete(&request, &mut warnings).await?;
        policy::validate(&request, &mut warnings).await?;
        webhook::validate(&request, &mut warnings).await
    }
    .await;
    admission.warnings.add(warnings);
    refusal
}

/// Effect of a deletion request on the stored object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Change the object, such as by a deletion timestamp, but keep it.
    Mark,
    /// Change the object, and then delete it.
    MarkAndRemove,
    /// Delete the object.
    Remove,
}

/// Decides the step of a deletion, and changes the object accordingly (upstream's `BeforeDelete` and `Store.Delete`).
fn choose_step(
    api: &Arc<Api>,
    stored: &Arc<ResourceType>,
    object: &mut Value,
    options: &DeleteOptions,
) -> Result<Step, StatusError> {
    let now = api.clock.now();
    if &*stored.resource_prefix == "/namespaces" {
        namespace::mark_terminating(object, &seconds(now));
        apply_finalizers(stored, object, options);
        let is_finalized = namespace::is_finalized(object) && meta::finalizers(object).is_empty();
        return Ok(if is_finalized { Step::MarkAndRemove } else { Step::Mark });
    }
    if !meta::is_being_deleted(object) && stored.strategy.mark_terminating(object, &seconds(now)) {
        return Ok(Step::Mark);
    }
    // Whether this request sets or shortens a grace period.
    let mut graceful = false;
    if meta::is_being_deleted(object) {
        let period = meta::deletion_grace_period(object).unwrap_or(0);
        if period > 0 {
            match options.grace_period_seconds {
                Some(desired) if desired < period => {
                    shorten_grace_period(object, now, period, desired.max(0));
                    graceful = true;
                }
                // A graceful deletion is already in progress.
                _ => return Ok(Step::Mark),
            }
        }
    } else if let Some(period) =
        stored.strategy.check_graceful_delete(object, options.grace_period_seconds)
    {
        let until = saturating_add(now, SignedDuration::from_secs(period));
        set_deletion(object, &seconds(until), period);
        increase_generation(object);
        graceful = true;
    }
    apply_finalizers(stored, object, options);
    if !meta::finalizers(object).is_empty() {
        if !graceful && !meta::is_being_deleted(object) {
            set_deletion(object, &seconds(now), 0);
            increase_generation(object);
        } else if !graceful {
            meta::metadata(object).insert("deletionGracePeriodSeconds".to_owned(), Value::from(0));
        }
        return Ok(Step::Mark);
    }
    Ok(match (graceful, meta::deletion_grace_period(object).unwrap_or(0)) {
        (true, 1..) => Step::Mark,
        (true, _) => Step::MarkAndRemove,
        (false, _) => Step::Remove,
    })
}

/// Sets the finalizers that the propagation policy requires, unless the object already has them in another order.
fn apply_finalizers(stored: &ResourceType, object: &mut Value, options: &DeleteOptions) {
    let desired: Vec<String> =
        options.finalizers(stored, object).into_iter().map(Into::into).collect();
    let mut before: Vec<&str> = meta::finalizers(object);
    let mut after: Vec<&str> = desired.iter().map(String::as_str).collect();
    before.sort_unstable();
    after.sort_unstable();
    if before != after {
        let desired: Vec<&str> = desired.iter().map(String::as_str).collect();
        meta::set_finalizers(object, &desired);
    }
}

/// Sets the deletion timestamp, and the grace period in seconds.
fn set_deletion(object: &mut Value, at: &str, period: i64) {
    let metadata = meta::metadata(object);
    metadata.insert("deletionTimestamp".to_owned(), Value::from(at));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), Value::from(period));
}

/// Shortens the grace period of a deletion from `period` to `desired` seconds. If the old deletion timestamp was capped
/// at the maximum, the new period begins now, because the start of the old period is unknown.
fn shorten_grace_period(object: &mut Value, now: Timestamp, period: i64, desired: i64) {
    let before: Option<Timestamp> = meta::text(object, "deletionTimestamp").parse().ok();
    if let Some(before) = before {
        let from_old_start = saturating_sub(before, SignedDuration::from_secs(period - desired));
        let from_now = saturating_add(now, SignedDuration::from_secs(desired));
        let is_capped = before.as_second() == Timestamp::MAX.as_second();
        set_deletion(object, &seconds(if is_capped { from_now } else { from_old_start }), desired);
    }
}

/// Increases the generation of an object that has one.
fn increase_generation(object: &mut Value) {
    let generation = meta::generation(object);
    if generation > 0 {
        meta::metadata(object).insert("generation".to_owned(), Value::from(generation + 1));
    }
}

/// Refuses a deletion whose preconditions the stored object does not satisfy.
fn check_preconditions(
    stored: &ResourceType,
    entry: &Entry,
    object: &Value,
    name: &str,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    let Some(preconditions) = &options.preconditions else { return Ok(()) };
    if &*stored.resource_prefix == "/namespaces" {
        return namespace::check_preconditions(stored, entry, object, name, preconditions);
    }
    let kind = crate::resource::GroupResource {
        group: stored.gvk.group.clone(),
        resource: stored.gvk.kind.clone(),
    };
    let uid = meta::text(object, "uid");
    if let Some(expected) = preconditions.uid.as_deref().filter(|expected| *expected != uid) {
        let why = format!(
            "the UID in the precondition ({expected}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(StatusError::conflict(&kind, name, why));
    }
    let version = entry.revision.to_string();
    if let Some(expected) = preconditions.resource_version.as_deref()
        && expected != version
    {
        let why = format!(
            "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(StatusError::conflict(&kind, name, why));
    }
    Ok(())
}

/// Refuses a deletion with a precondition on the resource version that removes the last finalizers of the garbage
/// collector. Upstream writes the object without them first, does not get its version, and then expects none.
///
/// Upstream: `Store.Delete`.
fn check_version_after_mark(
    deletion: &Deletion<'_>,
    old: &Value,
    name: &str,
) -> Result<(), StatusError> {
    let Deletion { stored, options, .. } = deletion;
    let expects_version = options
        .preconditions
        .as_ref()
        .is_some_and(|preconditions| preconditions.resource_version.is_some());
    if !expects_version || options.is_dry_run() || meta::finalizers(old).is_empty() {
        return Ok(());
    }
    let precondition = Precondition {
        resource: stored,
        requested: &stored.name,
        namespace: meta::text(old, "namespace"),
        name,
        dry_run: false,
    };
    Err(precondition.failed("ResourceVersion", "", meta::text(old, "resourceVersion")))
}

/// Deletes the objects that a list request would return, and responds with that list.
pub(super) async fn serve_collection(
    request: &RequestContext<'_>,
    body: &Bytes,
) -> Result<Response<Body>, StatusError> {
    let format = request.format()?;
    list::check_options(request)?;
    let options =
        DeleteOptions::parse(body, request.header(http::header::CONTENT_TYPE), request.query)?;
    options.check_for_collection()?;
    log_options(request, body, &options)?;
    let stored = request.api.table.stored_version(request.resource());
    warn_of_orphans(request, &stored, &options);
    let Page { entries, meta: list_meta } = list::list_page(request).await?;
    let deletion = Deletion {
        api: request.api,
        stored: &stored,
        user: request.user,
        options: &options,
        admission: Some(Admission::of(request, &options)?),
    };
    for entry in &entries {
        match delete(&deletion, &entry.key).await {
            Err(error) if error.code() != StatusCode::NOT_FOUND => return Err(error),
            _ => {}
        }
    }
    // As in upstream, return the listed objects in their state before the deletion. With `limit`, those are one chunk.
    list::respond(request, &format, entries, &list_meta)
}
