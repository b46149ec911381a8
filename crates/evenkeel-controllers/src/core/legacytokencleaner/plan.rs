//! Pass over all legacy tokens, in steps. The first step reads the date since which the API server tracks their use.
//! Each further step lists the pods of one namespace, and marks or deletes the tokens that no pod uses. Upstream:
//! `evaluateSATokens`.

use super::token::{self, Cutoff, INVALID_SINCE, Verdict};
use crate::wire;
use bytes::Bytes;
use evenkeel_api::{
    Text, View,
    time::Timestamp,
    views::{ConfigMap, Pod, ServiceAccount},
};
use evenkeel_runtime::{
    cache::Full,
    plan::{Action, Delete, LiveRead, OnError, Outcomes, Patch, PatchType, Plan, Reply},
};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Namespace of [`TRACKING_CONFIG_MAP`].
const TRACKING_NAMESPACE: &str = "kube-system";
/// ConfigMap with the date since which the API server tracks the use of tokens.
const TRACKING_CONFIG_MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// All tokens, and the clean-up period.
pub(super) struct Observed {
    pub(super) tokens: Vec<Token>,
    /// Time without use after which a token is marked, and then deleted.
    pub(super) period: Duration,
}

/// A token Secret, and the account that it names.
pub(super) struct Token {
    pub(super) secret: Arc<Full<Secret>>,
    pub(super) account: Option<Arc<ServiceAccount>>,
}

/// Reads the date since which the use of tokens is tracked. Upstream: `latestPossibleTrackedSinceTime`.
pub(super) fn plan() -> Plan {
    let read =
        LiveRead::get::<ConfigMap>(&ConfigMap::kind(), TRACKING_NAMESPACE, TRACKING_CONFIG_MAP);
    Plan::one(LiveRead { on_error: OnError::Abort, ..read })
}

/// Marks or deletes the tokens of the namespace whose pods were listed last, and lists the pods of the next
/// namespace. Each step except the last ends with a live read.
pub(super) fn next(observed: &Observed, done: &Outcomes, now: Timestamp) -> Option<Plan> {
    let mut replies = done.0.iter().filter_map(|outcome| outcome.reply.as_ref());
    let Some(tracking) = replies.next() else {
        let error = done.0.first()?.error.as_ref()?;
        return Some(Plan::failure(error.message.clone()));
    };
    let cutoff = match read_cutoff(tracking, observed.period, now) {
        Ok(cutoff) => cutoff?,
        Err(error) => return Some(Plan::failure(error)),
    };
    let candidates = candidates_by_namespace(&observed.tokens, &cutoff);
    let listed_namespaces = replies.clone().count();
    let last = done.0.last()?;
    let Some(pods) = last.reply.as_ref() else {
        if listed_namespaces >= candidates.len() {
            // The last step had only writes.
            return None;
        }
        return Some(Plan::failure(last.error.as_ref()?.message.clone()));
    };
    let mut plan = Plan::nothing();
    let mut remaining = candidates.iter().skip(listed_namespaces.saturating_sub(1));
    if listed_namespaces > 0 {
        let mounted = match mounted_secret_names(pods) {
            Ok(mounted) => mounted,
            Err(error) => return Some(Plan::failure(error)),
        };
        let (_, secrets) = remaining.next()?;
        let unused = secrets.iter().filter(|secret| !mounted.contains(&*secret.meta().name));
        plan.actions.extend(unused.filter_map(|secret| mark_or_delete(secret, &cutoff)));
    }
    plan.actions.extend(remaining.next().map(|(namespace, _)| list_pods(namespace).into()));
    Some(plan)
}

/// Reads the tracking date from the reply, and returns the date before which a token counts as unused.
fn read_cutoff(reply: &Reply, period: Duration, now: Timestamp) -> Result<Option<Cutoff>, String> {
    let tracking = reply.object::<ConfigMap>().map_err(|error| error.message)?;
    let since = tracking.data.get("since").ok_or("the server does not say since when it tracks")?;
    Cutoff::new(now, period, since)
}

/// Returns the unused tokens by namespace.
fn candidates_by_namespace(
    tokens: &[Token],
    cutoff: &Cutoff,
) -> BTreeMap<Text, Vec<Arc<Full<Secret>>>> {
    let mut candidates: BTreeMap<Text, Vec<_>> = BTreeMap::new();
    for Token { secret, account } in tokens {
        if token::is_candidate(secret, account.as_ref(), cutoff) {
            let namespace = secret.meta().namespace.clone();
            candidates.entry(namespace).or_default().push(Arc::clone(secret));
        }
    }
    candidates
}

/// Lists the pods of a namespace with all fields, through the shared client. The role of the controller's own client
/// does not permit the list, because upstream reads an informer.
fn list_pods(namespace: &str) -> LiveRead {
    let read = LiveRead::shared_json(&Pod::kind().path(namespace));
    LiveRead { on_error: OnError::Abort, ..read }
}

/// Returns the names of the Secrets that the listed pods use. Upstream: `getMountedSecretNames`.
fn mounted_secret_names(pods: &Reply) -> Result<BTreeSet<String>, String> {
    let list: Value = serde_json::from_slice(pods.body())
        .map_err(|error| format!("the list of pods cannot be read: {error}"))?;
    let mut names = BTreeSet::new();
    token::visit_secret_names(&list, &mut |name| {
        names.insert(name.to_owned());
    });
    Ok(names)
}

/// Marks or deletes a token that no pod uses. The write conflicts if another client used or changed the token. As upstream, a
/// conflict is not a failure: the next reconciliation decides again.
fn mark_or_delete(secret: &Full<Secret>, cutoff: &Cutoff) -> Option<Action> {
    let meta = secret.meta();
    let target = wire::target(secret);
    Some(match token::verdict(secret, cutoff)? {
        Verdict::Mark(day) => {
            let labels = json!({INVALID_SINCE: day.to_string()});
            let body = json!({"metadata": {"uid": &*meta.uid, "labels": labels}});
            let body = Bytes::from(body.to_string());
            Patch { tolerates: &[409], ..Patch::new(target, PatchType::Merge, body) }.into()
        }
        Verdict::Delete => {
            let resource_version = Some(meta.resource_version.clone());
            Delete { resource_version, tolerates: &[409], ..Delete::new(target) }.into()
        }
    })
}

#[cfg(test)]
mod tests;
