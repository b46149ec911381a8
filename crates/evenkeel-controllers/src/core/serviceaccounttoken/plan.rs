//! Decision about a token Secret, in steps. If the cache lacks the service account, the planner reads it live, and
//! deletes the Secret of a missing account. It reads an incomplete Secret live and fills it. Upstream: `syncSecret`.

use super::{
    sign::Signer,
    token_secret::{self, AccountRef, MissingData, Verdict},
};
use crate::wire;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_api::{View, views::ServiceAccount};
use evenkeel_runtime::{
    cache::Full,
    plan::{Delete, Failure, LiveRead, OnError, Outcome, Outcomes, Plan, Reply, Target, Update},
};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A token Secret, or the accounts that still refer to it after its deletion.
pub(super) enum Observed {
    /// A Secret, and the account that it names, if the cache has it.
    Secret { secret: Arc<Full<Secret>>, account: Option<Arc<ServiceAccount>> },
    /// A deleted Secret, and the accounts that refer to it.
    Gone { name: Arc<str>, referrers: Vec<Arc<ServiceAccount>> },
}

/// Sources of the data that token Secrets get.
pub(super) struct DataSources {
    /// Certificate authority of the API server.
    pub(super) ca: Option<Arc<str>>,
    pub(super) signer: Signer,
}

/// Reads the accounts or the Secret live, before any write.
pub(super) fn plan(observed: &Observed, sources: &DataSources) -> Plan {
    match observed {
        Observed::Gone { referrers, .. } => {
            let read = |account: &Arc<ServiceAccount>| read_live(&**account).into();
            Plan::of(referrers.iter().map(read).collect())
        }
        Observed::Secret { secret, account: None } => {
            let Some(reference) = AccountRef::of(secret) else { return Plan::nothing() };
            let namespace = &secret.meta().namespace;
            let read = LiveRead::get::<ServiceAccount>(
                &ServiceAccount::kind(),
                namespace,
                reference.account,
            );
            Plan::one(LiveRead { on_error: OnError::Abort, ..read })
        }
        Observed::Secret { secret, account } => {
            sync_secret(secret, account.as_deref(), sources, &[]).unwrap_or_default()
        }
    }
}

/// Returns the step after the outcomes so far; `None` at the end.
pub(super) fn next(observed: &Observed, sources: &DataSources, done: &Outcomes) -> Option<Plan> {
    match observed {
        Observed::Gone { name, referrers } => remove_references(name, referrers, &done.0),
        Observed::Secret { secret, account: Some(account) } => {
            sync_secret(secret, Some(account), sources, &done.0)
        }
        Observed::Secret { secret, account: None } => {
            let (answer, rest) = done.0.split_first()?;
            let decoded = answer.reply.as_ref().map(Reply::object::<ServiceAccount>);
            match decoded.transpose() {
                Ok(live_account) => {
                    let reference = AccountRef::of(secret)?;
                    let account = live_account.filter(|account| reference.is_for(account));
                    sync_secret(secret, account.as_ref(), sources, rest)
                }
                Err(error) => Some(Plan::failure(error.message)),
            }
        }
    }
}

/// Returns the next step for a Secret once its account is known. `done` are the outcomes since then.
fn sync_secret(
    secret: &Full<Secret>,
    account: Option<&ServiceAccount>,
    sources: &DataSources,
    done: &[Outcome],
) -> Option<Plan> {
    AccountRef::of(secret)?;
    match (token_secret::verdict(secret, account, sources.ca.as_deref()), account, done) {
        (Verdict::Delete, _, []) => Some(Plan::one(Delete::new(wire::target(secret)))),
        (Verdict::Fill(_), _, []) => Some(Plan::one(read_live(secret))),
        (Verdict::Fill(missing), Some(account), [answer]) => {
            fill(secret, account, missing, sources, answer)
        }
        (Verdict::Fill(_), _, [_, written]) => write_error(written).map(Plan::failure),
        _ => None,
    }
}

/// Fills a Secret if the live Secret has the observed version. If it has another version, the event of that change
/// enqueues it again. Upstream: `generateTokenIfNeeded`.
fn fill(
    secret: &Full<Secret>,
    account: &ServiceAccount,
    missing: MissingData,
    sources: &DataSources,
    answer: &Outcome,
) -> Option<Plan> {
    let mut live: Value = match serde_json::from_slice(answer.reply.as_ref()?.body()) {
        Ok(live) => live,
        Err(error) => return Some(Plan::failure(error.to_string())),
    };
    let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    if version.unwrap_or_default() != &*secret.meta().resource_version {
        return None;
    }
    let claims = missing.token.then(|| token_secret::claims(secret, account));
    let token = match claims.map(|claims| sources.signer.sign(&claims)).transpose() {
        Ok(token) => token,
        Err(error) => return Some(Plan::failure(error.to_string())),
    };
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let ca = sources.ca.as_deref();
    let token = token.as_deref();
    merge(&mut live, &token_secret::missing_data_patch(account, missing, ca, token, encode));
    Some(Plan::one(update_ignoring_errors(wire::target(secret), &live)))
}

/// Removes references to a deleted Secret from the accounts that were read live. Upstream:
/// `removeSecretReference`.
fn remove_references(
    name: &str,
    referrers: &[Arc<ServiceAccount>],
    done: &[Outcome],
) -> Option<Plan> {
    let (answers, writes) = done.split_at_checked(referrers.len())?;
    if !writes.is_empty() {
        let error_of = |write: &Outcome| write.error.clone().filter(|error| !error.is_not_found());
        return writes.iter().find_map(error_of).map(|error| Plan::failure(error.message));
    }
    let mut plan = Plan::nothing();
    for (account, answer) in referrers.iter().zip(answers) {
        let Some(reply) = &answer.reply else { continue };
        let mut live: Value = match serde_json::from_slice(reply.body()) {
            Ok(live) => live,
            Err(error) => return Some(Plan::failure(error.to_string())),
        };
        // Another account of this name may refer to a Secret that will be created.
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
        if uid == Some(&*account.meta.uid) && remove_reference(&mut live, name) {
            plan.push(update_ignoring_errors(wire::target(&**account), &live));
        }
    }
    Some(plan)
}

/// Removes the reference to a Secret from an account. Returns whether it had one.
fn remove_reference(account: &mut Value, name: &str) -> bool {
    let Some(Value::Array(secrets)) = account.get_mut("secrets") else { return false };
    let before = secrets.len();
    secrets.retain(|reference| reference.get("name").and_then(Value::as_str) != Some(name));
    secrets.len() < before
}

/// Returns a live read of the whole object.
fn read_live<V: View>(object: &V) -> LiveRead {
    let meta = object.meta();
    let read = LiveRead::json(&format!("{}/{}", V::kind().path(&meta.namespace), meta.name));
    LiveRead { on_error: OnError::Abort, ..read }
}

/// Returns an update whose failure the next step handles.
fn update_ignoring_errors(target: Target, object: &Value) -> Update {
    Update { on_error: OnError::Ignore, ..Update::new(target, object.to_string()) }
}

/// Returns the error of a write. A conflict or NotFound is not a failure, because an event enqueues the Secret again.
fn write_error(written: &Outcome) -> Option<String> {
    let error: &Failure = written.error.as_ref()?;
    (!error.is_not_found() && !error.is_conflict()).then(|| error.message.clone())
}

/// Merges JSON objects recursively. Other values are replaced.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return object.clone_from(patch) };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (name, patch) in patch {
        merge(fields.entry(name.as_str()).or_insert(Value::Null), patch);
    }
}

#[cfg(test)]
mod tests;
