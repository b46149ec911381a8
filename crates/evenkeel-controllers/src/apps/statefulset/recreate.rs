//! Update strategy `Recreate`: deletes all pods of old revisions before it creates pods of the new revision (KEP-3541).

use super::{
    identity,
    observed::Observed,
    plan::StatefulSetSync,
    strategy::{RECREATE_STRATEGY, Strategy},
};
use crate::{conditions::Condition, pods::revision_of};
use evenkeel_api::{time::Timestamp, views::Pod};
use evenkeel_runtime::plan::EventRecord;
use std::sync::Arc;

/// Condition type of the strategy's progress.
const PROGRESSING: &str = "Progressing";

/// Reason and message of the condition `Progressing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    reason: &'static str,
    message: &'static str,
}

/// Pods of old revisions still exist.
const DELETING: Progress =
    Progress { reason: "RecreateInProgress", message: "Deleting old revision pods" };
/// Only pods of the update revision exist, but the update is not complete.
const CREATING: Progress = Progress {
    reason: "RecreateInProgress",
    message: "Waiting for new-revision pods to be created",
};
/// All pods are ready and have the update revision.
const COMPLETED: Progress =
    Progress { reason: "RecreateCompleted", message: "All pods recreated successfully" };

/// Returns whether the set has this strategy although the feature gate is off. The controller then only records an
/// event.
pub(crate) fn is_disabled(observed: &Observed) -> bool {
    Strategy::of(&observed.set) == Strategy::Recreate && !observed.features.recreate
}

/// Returns the event for a set whose strategy needs the disabled feature gate.
pub(crate) fn unknown_strategy_event(sync: &StatefulSetSync<'_>) -> EventRecord {
    let meta = &sync.observed.set.meta;
    let text = format!(
        "statefulset {}/{} uses Recreate strategy but feature gate {RECREATE_STRATEGY} is disabled",
        meta.namespace, meta.name
    );
    EventRecord::warning(sync.target.clone(), "UnknownStrategy", text)
}

/// Deletes all pods of old revisions, including those beyond `spec.replicas`. Returns whether any exist. While they
/// exist, the controller creates no pods.
pub(crate) fn delete_old_pods(sync: &mut StatefulSetSync<'_>) -> bool {
    let observed = sync.observed;
    let update_revision = observed.update_revision.name();
    let is_old =
        |pod: &&Arc<Pod>| identity::ordinal(pod).is_some() && revision_of(pod) != update_revision;
    let old_pods: Vec<_> = observed.pods.owned.iter().filter(is_old).collect();
    for pod in old_pods.iter().filter(|pod| !pod.meta.deleting()) {
        sync.delete(pod);
    }
    if !old_pods.is_empty() {
        sync.progress = Some(DELETING);
    } else if observed.current_revision_name() != update_revision {
        sync.progress = Some(CREATING);
    }
    !old_pods.is_empty()
}

/// Sets the condition `Progressing`. `is_complete` says whether all pods are ready and have the update revision.
pub(crate) fn set_progressing_condition(
    conditions: &mut Vec<Condition>,
    sync: &StatefulSetSync<'_>,
    is_complete: bool,
) {
    if let Some(progress) = sync.progress {
        set_condition(conditions, "True", progress, sync.now);
    }
    let recreates = Strategy::of(&sync.observed.set) == Strategy::Recreate;
    if is_complete
        && recreates
        && conditions.iter().any(|condition| &*condition.type_ == PROGRESSING)
    {
        set_condition(conditions, "False", COMPLETED, sync.now);
    }
}

/// Sets the condition. Its transition time changes only with its status.
fn set_condition(
    conditions: &mut Vec<Condition>,
    status: &str,
    progress: Progress,
    now: Timestamp,
) {
    let new = Condition::new(PROGRESSING, status, progress.reason, progress.message)
        .with_transition_time(now);
    match conditions.iter_mut().find(|condition| &*condition.type_ == PROGRESSING) {
        None => conditions.push(new),
        Some(old) if old.equal_apart_from_times(&new) => {}
        Some(old) if old.status == new.status => {
            *old = Condition { last_transition_time: old.last_transition_time, ..new };
        }
        Some(old) => *old = new,
    }
}
