//! Steps of the deletion of a namespace: set its phase, delete its content, write its conditions, finalize it.
//! Upstream: `namespacedResourcesDeleter`.

use super::{
    content::ContentDeleter,
    plan::{self, Next},
};
use evenkeel_api::{View, time::Timestamp, views::Namespace};
use evenkeel_runtime::{
    discovery::ServerResources,
    plan::{Failure, LiveRead, OnError, Plan, Steps, Target, Update},
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Time after the deletion timestamp in which an API server may still admit objects: 5 s. Upstream:
/// `namespaceDeletionGracePeriod`.
pub(super) const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Result of a reconciliation over a namespace.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SyncResult {
    pub(super) plan: Plan,
    /// Error of writing the conditions, if any. It does not stop the deletion, because conditions only inform.
    pub(super) unwritten_conditions: Option<String>,
}

/// Reason to stop the sequence of steps.
#[derive(Debug)]
pub(super) enum Stop {
    /// The plan of this step must be executed first.
    Execute(Plan),
    /// The namespace no longer exists. Another one may have its name.
    Gone,
    /// A request failed.
    Failed(String),
}

impl From<Plan> for Stop {
    fn from(step: Plan) -> Self {
        Self::Execute(step)
    }
}

impl From<&Failure> for Stop {
    fn from(failure: &Failure) -> Self {
        if failure.is_not_found() { Self::Gone } else { Self::Failed(failure.message.clone()) }
    }
}

/// Deletes a terminating namespace. Upstream: `syncNamespaceFromKey`.
pub(super) fn sync_namespace(
    namespace: &Namespace,
    sync_period: Duration,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<SyncResult, Plan> {
    let Some(deleted_at) = namespace.meta.deletion else { return Ok(SyncResult::default()) };
    let remaining = remaining_grace(deleted_at, now);
    if !remaining.is_zero() {
        let plan = Plan { requeue: Some(remaining), ..Plan::nothing() };
        return Ok(SyncResult { plan, ..SyncResult::default() });
    }
    match delete(&namespace.meta.name, sync_period, now, steps) {
        Ok(result) => Ok(result),
        Err(Stop::Execute(step)) => Err(step),
        Err(Stop::Gone) => Ok(SyncResult::default()),
        Err(Stop::Failed(why)) => {
            Ok(SyncResult { plan: Plan::failure(why), ..SyncResult::default() })
        }
    }
}

/// Returns the rest of the grace period, after which the content of the namespace is deleted.
pub(super) fn remaining_grace(deleted_at: Timestamp, now: Timestamp) -> Duration {
    let waited = Duration::try_from(now.duration_since(deleted_at)).unwrap_or_default();
    GRACE_PERIOD.saturating_sub(waited)
}

/// Deletes the content, and finalizes the namespace once nothing remains. Upstream: `Delete`.
fn delete(
    name: &str,
    sync_period: Duration,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<SyncResult, Stop> {
    let mut namespace = read_live(name, steps)?;
    let Some(deleted_at) = deletion_timestamp(&namespace) else { return Ok(SyncResult::default()) };
    update_with_retries(&mut namespace, "status", plan::with_terminating_phase, steps)?;
    if deletion_timestamp(&namespace).is_none() || plan::is_finalized(&namespace) {
        return Ok(SyncResult::default());
    }
    let discovered = discover(steps)?;
    let deletion =
        ContentDeleter { namespace: name, deleted_at, now }.delete(&discovered, steps)?;
    // As upstream, finalization uses the version before this write. It gets a conflict, and retries.
    let mut with_conditions = namespace.clone();
    let change = |current: &Value| deletion.with_conditions(current, now);
    let unwritten_conditions =
        match update_with_retries(&mut with_conditions, "status", change, steps) {
            Err(step @ Stop::Execute(_)) => return Err(step),
            Err(Stop::Failed(why)) => Some(why),
            Err(Stop::Gone) => Some(format!("namespaces {name:?} not found")),
            Ok(()) => None,
        };
    let plan = match deletion.next() {
        Next::Finalize => {
            let change = |current: &Value| {
                (!plan::is_finalized(current)).then(|| plan::without_finalizer(current))
            };
            update_with_retries(&mut namespace, "finalize", change, steps)?;
            Plan::nothing()
        }
        Next::Wait(delay) => {
            Plan { requeue: Some(plan::limit_wait(delay, sync_period)), ..Plan::nothing() }
        }
        Next::Failed(error) => Plan::failure(error),
    };
    Ok(SyncResult { plan, unwritten_conditions })
}

/// Returns the deletion timestamp of a namespace.
fn deletion_timestamp(namespace: &Value) -> Option<Timestamp> {
    namespace["metadata"]["deletionTimestamp"].as_str()?.parse().ok()
}

/// Reads the whole namespace, because an update must have every field.
fn read_live(name: &str, steps: &mut Steps<'_>) -> Result<Value, Stop> {
    let path = format!("{}/{name}", Namespace::kind().path(""));
    let read = steps.one(LiveRead { on_error: OnError::Ignore, ..LiveRead::json(&path) })?;
    if let Some(error) = &read.error {
        return Err(error.into());
    }
    let body = read.reply.as_ref().map(|reply| reply.body().clone()).unwrap_or_default();
    Ok(serde_json::from_slice(&body).unwrap_or_default())
}

/// Discovers the resources of the API server.
fn discover(steps: &mut Steps<'_>) -> Result<Arc<ServerResources>, Stop> {
    let read = LiveRead::resources(Duration::ZERO);
    let read = steps.one(LiveRead { on_error: OnError::Ignore, ..read })?;
    if let Some(error) = &read.error {
        return Err(error.into());
    }
    let resources = read.reply.as_ref().and_then(|reply| reply.resources());
    Ok(resources.cloned().unwrap_or_default())
}

/// Updates the namespace until `change` returns `None` or an update succeeds. After a conflict, reads the namespace
/// again; stops if another one has its name. Upstream: `retryOnConflictError`.
fn update_with_retries(
    namespace: &mut Value,
    subresource: &'static str,
    change: impl Fn(&Value) -> Option<Value>,
    steps: &mut Steps<'_>,
) -> Result<(), Stop> {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    while let Some(changed) = change(namespace) {
        let target = Target::new(Namespace::kind(), "", &name, "");
        let update = Update::new(target, changed.to_string());
        let written = steps.one(Update { subresource, on_error: OnError::Ignore, ..update })?;
        match &written.error {
            None => {
                *namespace = changed;
                let version = written.resource_version.as_deref().unwrap_or_default();
                namespace["metadata"]["resourceVersion"] = version.into();
                break;
            }
            Some(error) if error.code == 409 && !error.is_already_exists() => {
                let latest = read_live(&name, steps)?;
                if latest["metadata"]["uid"] != namespace["metadata"]["uid"] {
                    return Err(Stop::Gone);
                }
                *namespace = latest;
            }
            Some(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
