//! CRD controller: writes the conditions of CustomResourceDefinitions and updates the table of served resources. It
//! deletes a definition's custom resources before the definition itself.
//!
//! Each sync handles all definitions. The controller syncs after each change, and every [`FINALIZE_INTERVAL`] while
//! objects of a deleted definition remain.
//!
//! | upstream's controller | where |
//! |---|---|
//! | `NamingConditionController`, `EstablishingController` | `conditions::next_status` in `evenkeel-apiextensions`, written by `sync` |
//! | `CRDFinalizer` | `finalize` |
//! | `crdHandler` | `served::refresh` |

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_tasks::watch;
use serde_json::Value;

use evenkeel_apiextensions::conditions::{self, CLEANUP_FINALIZER};

use crate::api::Api;
use crate::store::{
    Encoded, Entry, Expect, SelectionAttributes, Transaction, WriteError, wait_for_change,
};
use crate::verbs::delete::{Deletion, delete};
use crate::verbs::delete_options::DeleteOptions;
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{get, list, set, text};

/// Resource prefix of definitions.
pub(crate) const RESOURCE_PREFIX: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Interval of syncs while objects of a deleted definition remain, because they have finalizers.
const FINALIZE_INTERVAL: Duration = Duration::from_secs(1);

/// Delay before the retry of a write that the store refused, for example because the disk is full.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Adds the resource types of all definitions to the table.
pub(crate) fn load(api: &Api) {
    refresh_served(api, &read_definitions(api));
}

/// Updates the table to the stored definitions.
fn refresh_served(api: &Api, definitions: &[StoredDefinition]) {
    let crds: Vec<&Value> = definitions.iter().map(|definition| &definition.crd).collect();
    api.served.refresh(&api.table, &crds);
}

/// Runs the controller until the server shuts down. `changes` signals writes to definitions. The controller holds no
/// strong reference while it waits, so the last user's drop ends the server and releases its data folder.
pub(crate) async fn run(api: Weak<Api>, mut changes: watch::Receiver<u64>) {
    loop {
        changes.mark_unchanged();
        let next_sync = match api.upgrade() {
            Some(api) => sync(&api).await,
            None => return,
        };
        if !wait_for_change(&mut changes, next_sync).await {
            return;
        }
    }
}

/// Definition with its entry in the store.
struct StoredDefinition {
    entry: Arc<Entry>,
    crd: Value,
}

/// Returns all definitions that can be decoded.
fn read_definitions(api: &Api) -> Vec<StoredDefinition> {
    let decode = |entry: Arc<Entry>| match entry.decode() {
        Ok(crd) => Some(StoredDefinition { entry, crd }),
        Err(error) => {
            tracing::error!(object = %entry.key, %error, "a definition cannot be read");
            None
        }
    };
    api.store.all(RESOURCE_PREFIX).into_iter().filter_map(decode).collect()
}

/// Syncs all definitions: first their conditions, one write at a time, then the finalizers of deleted ones. Returns the
/// delay until the next sync if work remains.
async fn sync(api: &Arc<Api>) -> Option<Duration> {
    let mut again = None;
    loop {
        let definitions = read_definitions(api);
        refresh_served(api, &definitions);
        let now = seconds(api.clock.now());
        let mut wrote = false;
        for (index, StoredDefinition { entry, crd }) in definitions.iter().enumerate() {
            let (before, after) = definitions.split_at(index);
            let others: Vec<&Value> =
                before.iter().chain(after.iter().skip(1)).map(|other| &other.crd).collect();
            let Some(updated) = conditions::next_status(crd, &others, &now) else { continue };
            // Update the table first, so that the resource is served when a client reads `Established`.
            let current: Vec<&Value> = others.iter().copied().chain([&updated]).collect();
            api.served.refresh(&api.table, &current);
            // Write one at a time: the accepted names of one definition affect the conditions of the next.
            wrote = write(api, entry, crd, updated).await;
            if wrote {
                break;
            }
            refresh_served(api, &definitions);
            // Continue with the other definitions.
            again = Some(RETRY_DELAY);
        }
        if wrote {
            continue;
        }
        for StoredDefinition { entry, crd } in &definitions {
            if text(crd, "metadata.deletionTimestamp").is_empty() || !has_cleanup_finalizer(crd) {
                continue;
            }
            match finalize(api, entry, crd, &now).await {
                Ok(true) => wrote = true,
                Ok(false) => again = Some(FINALIZE_INTERVAL),
                Err(error) => {
                    tracing::error!(definition = %entry.key, %error, "the objects of a definition cannot be deleted");
                    again = Some(FINALIZE_INTERVAL);
                }
            }
        }
        if !wrote {
            return again;
        }
        again = None;
    }
}

/// Returns whether the definition has the finalizer that this controller removes.
fn has_cleanup_finalizer(crd: &Value) -> bool {
    list(crd, "metadata.finalizers").iter().any(|finalizer| finalizer == CLEANUP_FINALIZER)
}

/// Deletes the custom resources of a deleted definition, then removes its finalizer. Returns false if objects remain or
/// the write failed.
///
/// Upstream: `CRDFinalizer.sync`.
async fn finalize(
    api: &Arc<Api>,
    entry: &Arc<Entry>,
    crd: &Value,
    now: &str,
) -> Result<bool, StatusError> {
    let mut in_progress = crd.clone();
    let set_terminating = |crd: &mut Value, status: &str, reason: &str, message: &str| {
        conditions::set_condition(crd, "Terminating", [status, reason, message], now);
    };
    set_terminating(
        &mut in_progress,
        "True",
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    );
    if in_progress != *crd {
        return Ok(write(api, entry, crd, in_progress).await);
    }
    let mut finished = crd.clone();
    if conditions::is_true(crd, "Established") {
        if !delete_objects(api, text(crd, "metadata.name")).await? {
            return Ok(false);
        }
        set_terminating(
            &mut finished,
            "False",
            "InstanceDeletionCompleted",
            "removed all instances",
        );
    } else {
        set_terminating(
            &mut finished,
            "False",
            "NeverEstablished",
            "resource was never established",
        );
    }
    let other_finalizers: Vec<Value> = list(crd, "metadata.finalizers")
        .iter()
        .filter(|finalizer| *finalizer != CLEANUP_FINALIZER)
        .cloned()
        .collect();
    if other_finalizers.is_empty() {
        evenkeel_apimachinery::value::remove(&mut finished, "metadata.finalizers");
    } else {
        set(&mut finished, "metadata.finalizers", other_finalizers);
    }
    Ok(write(api, entry, crd, finished).await)
}

/// Deletes all objects of a definition. Returns whether none remains.
async fn delete_objects(api: &Arc<Api>, name: &str) -> Result<bool, StatusError> {
    let Some(resource) = api.served.resource_type_for_deletion(name) else { return Ok(true) };
    let user = User::authenticated("system:apiserver", ["system:masters"]);
    let options = DeleteOptions::default();
    // These deletions skip admission, so that no admission plug-in or webhook can keep a definition alive.
    let deletion =
        Deletion { api, stored: &resource, user: &user, options: &options, admission: None };
    for entry in api.store.all(&resource.resource_prefix) {
        match delete(&deletion, &entry.key).await {
            Err(error) if error.code() != http::StatusCode::NOT_FOUND => return Err(error),
            _ => {}
        }
    }
    Ok(api.store.count(&resource.resource_prefix) == 0)
}

/// Writes a definition's new status and finalizers, and deletes it if it has no finalizer left. Returns false if the
/// store refused the write, but true after a conflict: the caller syncs again with the newer state.
async fn write(api: &Arc<Api>, entry: &Arc<Entry>, old: &Value, mut new: Value) -> bool {
    let Some(resource) = api.table.get("apiextensions.k8s.io/v1", "customresourcedefinitions")
    else {
        return false;
    };
    let writer = Writer { manager: "kube-apiserver", subresource: "status", now: api.clock.now() };
    let schema = evenkeel_apimachinery::schema::Schema::of(&resource.gvk);
    patch::update_managed_fields(schema.as_ref(), Some(old), &mut new, &writer);
    let encoded = Encoded::new(&new, SelectionAttributes::new(&new, |_| ()));
    let resource_prefix = &resource.resource_prefix;
    let mut transaction = Transaction::default();
    transaction.put(resource_prefix, &entry.key, Expect::At(entry.revision), encoded);
    let is_removed = get(&new, "metadata.deletionTimestamp").is_some()
        && list(&new, "metadata.finalizers").is_empty();
    if is_removed {
        transaction.delete(resource_prefix, &entry.key, Expect::Written);
    }
    match api.store.commit(transaction).await {
        Ok(_) => true,
        // The next iteration of `sync` handles the newer state.
        Err(WriteError::Mismatch { .. }) => true,
        Err(error) => {
            tracing::error!(definition = %entry.key, %error, "a definition cannot be written");
            false
        }
    }
}
