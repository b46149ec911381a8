//! Steps of the deletion of a namespace: set its phase, delete its content, write its conditions, finalize it.
//! Upstream: `namespacedResourcesDeleter`.

use super::{
    content::Content,
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
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Result of the last step.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Deleted {
    pub(super) plan: Plan,
    /// Error of writing the conditions, if any. They are informative; finalization does not depend on them.
    pub(super) unwritten_conditions: Option<String>,
}

/// Reason why the sequence of steps ends for now.
#[derive(Debug)]
pub(super) enum Ended {
    /// The plan of this step must be executed first.
    Step(Plan),
    /// The namespace no longer exists; another one may have its name.
    Gone,
    /// A request failed.
    Failed(String),
}

impl From<Plan> for Ended {
    fn from(step: Plan) -> Self {
        Self::Step(step)
    }
}

impl From<&Failure> for Ended {
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
) -> Result<Deleted, Plan> {
    let Some(deletion) = namespace.meta.deletion else { return Ok(Deleted::default()) };
    let remaining = grace_left(deletion, now);
    if !remaining.is_zero() {
        let plan = Plan { requeue: Some(remaining), ..Plan::nothing() };
        return Ok(Deleted { plan, ..Deleted::default() });
    }
    match delete(&namespace.meta.name, sync_period, now, steps) {
        Ok(deleted) => Ok(deleted),
        Err(Ended::Step(step)) => Err(step),
        Err(Ended::Gone) => Ok(Deleted::default()),
        Err(Ended::Failed(why)) => Ok(Deleted { plan: Plan::failure(why), ..Deleted::default() }),
    }
}

/// Returns the rest of the grace period. The content of the namespace is deleted after it.
pub(super) fn grace_left(deletion: Timestamp, now: Timestamp) -> Duration {
    let waited = Duration::try_from(now.duration_since(deletion)).unwrap_or_default();
    GRACE.saturating_sub(waited)
}

/// Deletes the content, and finalizes the namespace once nothing remains. Upstream: `Delete`.
fn delete(
    name: &str,
    sync_period: Duration,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Deleted, Ended> {
    let mut namespace = live(name, steps)?;
    let Some(deleted_at) = deletion(&namespace) else { return Ok(Deleted::default()) };
    write(&mut namespace, "status", plan::terminating, steps)?;
    if deletion(&namespace).is_none() || plan::is_finalized(&namespace) {
        return Ok(Deleted::default());
    }
    let discovered = discover(steps)?;
    let findings = Content { namespace: name, deleted_at, now }.delete(&discovered, steps)?;
    // As upstream, finalization uses the version before this write. It gets a conflict, and retries.
    let mut with_conditions = namespace.clone();
    let change = |seen: &Value| findings.with_conditions(seen, now);
    let unwritten_conditions = match write(&mut with_conditions, "status", change, steps) {
        Err(step @ Ended::Step(_)) => return Err(step),
        Err(Ended::Failed(why)) => Some(why),
        Err(Ended::Gone) => Some(format!("namespaces {name:?} not found")),
        Ok(()) => None,
    };
    let plan = match findings.next() {
        Next::Finalize => {
            let change = |seen: &Value| (!plan::is_finalized(seen)).then(|| plan::finalized(seen));
            write(&mut namespace, "finalize", change, steps)?;
            Plan::nothing()
        }
        Next::Wait(time) => {
            Plan { requeue: Some(plan::within(time, sync_period)), ..Plan::nothing() }
        }
        Next::Failed(error) => Plan::failure(error),
    };
    Ok(Deleted { plan, unwritten_conditions })
}

fn deletion(namespace: &Value) -> Option<Timestamp> {
    namespace["metadata"]["deletionTimestamp"].as_str()?.parse().ok()
}

/// Reads the whole namespace, because an update must have every field.
fn live(name: &str, steps: &mut Steps<'_>) -> Result<Value, Ended> {
    let path = format!("{}/{name}", Namespace::kind().path(""));
    let read = steps.one(LiveRead { on_error: OnError::Ignore, ..LiveRead::json(&path) })?;
    if let Some(error) = &read.error {
        return Err(error.into());
    }
    let body = read.reply.as_ref().map(|reply| reply.body().clone()).unwrap_or_default();
    Ok(serde_json::from_slice(&body).unwrap_or_default())
}

fn discover(steps: &mut Steps<'_>) -> Result<Arc<ServerResources>, Ended> {
    let read = LiveRead::resources(Duration::ZERO);
    let read = steps.one(LiveRead { on_error: OnError::Ignore, ..read })?;
    if let Some(error) = &read.error {
        return Err(error.into());
    }
    let found = read.reply.as_ref().and_then(|reply| reply.resources());
    Ok(found.cloned().unwrap_or_default())
}

/// Updates the namespace with `change`, and retries conflicts until none remains. Does not write to a new namespace of the same name.
/// Upstream: `retryOnConflictError`.
fn write(
    namespace: &mut Value,
    subresource: &'static str,
    change: impl Fn(&Value) -> Option<Value>,
    steps: &mut Steps<'_>,
) -> Result<(), Ended> {
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
                let now = live(&name, steps)?;
                if now["metadata"]["uid"] != namespace["metadata"]["uid"] {
                    return Err(Ended::Gone);
                }
                *namespace = now;
            }
            Some(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
