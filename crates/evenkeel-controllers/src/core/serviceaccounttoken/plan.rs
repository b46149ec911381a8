//! Token Secrets of service accounts, in steps. If the cache lacks the account, the planner reads it live,
//! and deletes the Secret of a missing account. It reads an incomplete Secret live and fills it. Upstream:
//! `syncSecret`.

use super::{
    sign::Signer,
    token_secret::{self, Claim, Lacks, Verdict},
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

/// The Secret of a key, or the references to a deleted one.
pub(super) enum Observed {
    /// A Secret, and the account that it names, if the cache has it.
    Secret { secret: Arc<Full<Secret>>, account: Option<Arc<ServiceAccount>> },
    /// A deleted Secret, and the accounts that refer to it.
    Gone { name: Arc<str>, referrers: Vec<Arc<ServiceAccount>> },
}

/// Data for token Secrets, besides the token.
pub(super) struct Filling {
    /// Certificate authority of the API server.
    pub(super) ca: Option<Arc<str>>,
    pub(super) signer: Signer,
}

/// Reads the accounts or the Secret live, before any write.
pub(super) fn plan(observed: &Observed, filling: &Filling) -> Plan {
    match observed {
        Observed::Gone { referrers, .. } => {
            let read = |account: &Arc<ServiceAccount>| live(&**account).into();
            Plan::of(referrers.iter().map(read).collect())
        }
        Observed::Secret { secret, account: None } => {
            let Some(claim) = Claim::of(secret) else { return Plan::nothing() };
            let namespace = &secret.meta().namespace;
            let read =
                LiveRead::get::<ServiceAccount>(&ServiceAccount::kind(), namespace, claim.account);
            Plan::one(LiveRead { on_error: OnError::Abort, ..read })
        }
        Observed::Secret { secret, account } => {
            settle(secret, account.as_deref(), filling, &[]).unwrap_or_default()
        }
    }
}

/// Returns the step after the outcomes so far; `None` at the end.
pub(super) fn next(observed: &Observed, filling: &Filling, done: &Outcomes) -> Option<Plan> {
    match observed {
        Observed::Gone { name, referrers } => remove_references(name, referrers, &done.0),
        Observed::Secret { secret, account: Some(account) } => {
            settle(secret, Some(account), filling, &done.0)
        }
        Observed::Secret { secret, account: None } => {
            let (answer, rest) = done.0.split_first()?;
            let found = answer.reply.as_ref().map(Reply::object::<ServiceAccount>);
            match found.transpose() {
                Ok(found) => {
                    let claim = Claim::of(secret)?;
                    let account = found.filter(|account| claim.is_for(account));
                    settle(secret, account.as_ref(), filling, rest)
                }
                Err(error) => Some(Plan::failure(error.message)),
            }
        }
    }
}

/// Deletes or fills a Secret once its account is known. `done` are the outcomes since then.
fn settle(
    secret: &Full<Secret>,
    account: Option<&ServiceAccount>,
    filling: &Filling,
    done: &[Outcome],
) -> Option<Plan> {
    Claim::of(secret)?;
    match (token_secret::verdict(secret, account, filling.ca.as_deref()), account, done) {
        (Verdict::Delete, _, []) => Some(Plan::one(Delete::new(wire::target(secret)))),
        (Verdict::Fill(_), _, []) => Some(Plan::one(live(secret))),
        (Verdict::Fill(lacks), Some(account), [answer]) => {
            fill(secret, account, lacks, filling, answer)
        }
        (Verdict::Fill(_), _, [_, written]) => failure(written).map(Plan::failure),
        _ => None,
    }
}

/// Fills a Secret if the live Secret has the observed version. If it has another version, the event of that change
/// enqueues it again. Upstream: `generateTokenIfNeeded`.
fn fill(
    secret: &Full<Secret>,
    account: &ServiceAccount,
    lacks: Lacks,
    filling: &Filling,
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
    let claims = lacks.token.then(|| token_secret::claims(secret, account));
    let token = match claims.map(|claims| filling.signer.sign(&claims)).transpose() {
        Ok(token) => token,
        Err(error) => return Some(Plan::failure(error.to_string())),
    };
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let (ca, token) = (filling.ca.as_deref(), token.as_deref());
    merge(&mut live, &token_secret::change(account, lacks, ca, token, encode));
    Some(Plan::one(update(wire::target(secret), &live)))
}

/// Removes references to a deleted Secret from the accounts that were read live. Upstream:
/// `removeSecretReference`.
fn remove_references(
    name: &str,
    referrers: &[Arc<ServiceAccount>],
    done: &[Outcome],
) -> Option<Plan> {
    let (answers, written) = done.split_at_checked(referrers.len())?;
    if !written.is_empty() {
        let lost = |outcome: &Outcome| outcome.error.clone().filter(|e| !e.is_not_found());
        return written.iter().find_map(lost).map(|error| Plan::failure(error.message));
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
            plan.push(update(wire::target(&**account), &live));
        }
    }
    Some(plan)
}

/// Removes the reference to a Secret from an account. Returns whether it had one.
fn remove_reference(account: &mut Value, name: &str) -> bool {
    let Some(Value::Array(secrets)) = account.get_mut("secrets") else { return false };
    let before = secrets.len();
    secrets.retain(|one| one.get("name").and_then(Value::as_str) != Some(name));
    secrets.len() < before
}

/// Returns a live read of the whole object.
fn live<V: View>(object: &V) -> LiveRead {
    let meta = object.meta();
    let read = LiveRead::json(&format!("{}/{}", V::kind().path(&meta.namespace), meta.name));
    LiveRead { on_error: OnError::Abort, ..read }
}

/// Returns an update whose failure the next step handles.
fn update(target: Target, live: &Value) -> Update {
    Update { on_error: OnError::Ignore, ..Update::new(target, live.to_string()) }
}

/// Returns the error of a write. A conflict or NotFound is no failure, because an event enqueues the Secret again.
fn failure(written: &Outcome) -> Option<String> {
    let error: &Failure = written.error.as_ref()?;
    (!error.is_not_found() && !error.is_conflict()).then(|| error.message.clone())
}

/// Merges JSON objects recursively; other values are replaced.
fn merge(object: &mut Value, change: &Value) {
    let Value::Object(change) = change else { return object.clone_from(change) };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (name, change) in change {
        merge(fields.entry(name.as_str()).or_insert(Value::Null), change);
    }
}

#[cfg(test)]
mod tests;
