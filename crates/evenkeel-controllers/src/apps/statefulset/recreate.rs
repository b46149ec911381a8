//! Update strategy `Recreate`: deletes all pods of old revisions before it creates a new one (KEP-3541).

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

/// Reason and message of the condition.
pub(crate) type Progress = (&'static str, &'static str);

const DELETING: Progress = ("RecreateInProgress", "Deleting old revision pods");
const CREATING: Progress = ("RecreateInProgress", "Waiting for new-revision pods to be created");
const COMPLETED: Progress = ("RecreateCompleted", "All pods recreated successfully");

/// Whether the set has this strategy although its gate is off. The controller then only records an event.
pub(crate) fn is_disabled(observed: &Observed) -> bool {
    Strategy::of(&observed.set) == Strategy::Recreate && !observed.features.recreate
}

/// Returns the event about the unknown strategy.
pub(crate) fn unknown(sync: &StatefulSetSync<'_>) -> EventRecord {
    let meta = &sync.observed.set.meta;
    let text = format!(
        "statefulset {}/{} uses Recreate strategy but feature gate {RECREATE_STRATEGY} is disabled",
        meta.namespace, meta.name
    );
    EventRecord::warning(sync.target.clone(), "UnknownStrategy", text)
}

/// Deletes all pods of old revisions, condemned ones included. Returns whether any exist; while they do, the
/// controller only deletes.
pub(crate) fn delete_old_pods(sync: &mut StatefulSetSync<'_>) -> bool {
    let (observed, update) = (sync.observed, sync.observed.update.name());
    let is_old = |pod: &&Arc<Pod>| identity::ordinal(pod).is_some() && revision_of(pod) != update;
    let old: Vec<_> = observed.pods.owned.iter().filter(is_old).collect();
    for pod in old.iter().filter(|pod| !pod.meta.deleting()) {
        sync.delete(pod);
    }
    if !old.is_empty() {
        sync.progress = Some(DELETING);
    } else if observed.current_name() != update {
        sync.progress = Some(CREATING);
    }
    !old.is_empty()
}

/// Sets the condition `Progressing`. `complete` says whether all pods are ready and have the update revision.
pub(crate) fn set_progressing_condition(
    conditions: &mut Vec<Condition>,
    sync: &StatefulSetSync<'_>,
    complete: bool,
) {
    if let Some(progress) = sync.progress {
        set(conditions, "True", progress, sync.now);
    }
    let recreates = Strategy::of(&sync.observed.set) == Strategy::Recreate;
    if complete && recreates && conditions.iter().any(|c| &*c.type_ == PROGRESSING) {
        set(conditions, "False", COMPLETED, sync.now);
    }
}

/// Sets the condition; its transition time changes only with its status.
fn set(conditions: &mut Vec<Condition>, status: &str, (reason, message): Progress, now: Timestamp) {
    let new = Condition::new(PROGRESSING, status, reason, message).with_transition_time(now);
    match conditions.iter_mut().find(|c| &*c.type_ == PROGRESSING) {
        None => conditions.push(new),
        Some(old) if old.equal_apart_from_times(&new) => {}
        Some(old) if old.status == new.status => {
            *old = Condition { last_transition_time: old.last_transition_time, ..new };
        }
        Some(old) => *old = new,
    }
}
