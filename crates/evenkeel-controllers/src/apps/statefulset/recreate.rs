//! Recreate: all pods of old revisions are gone before the first new one is made (KEP-3541).

use super::{
    identity,
    plan::Pass,
    seen::Seen,
    strategy::{RECREATE_STRATEGY, Strategy},
};
use crate::{conditions::Condition, pods::revision_of};
use evenkeel_api::{time::Timestamp, views::Pod};
use evenkeel_runtime::plan::Note;
use std::sync::Arc;

/// The condition that tells how far it is.
const PROGRESSING: &str = "Progressing";

/// What is told of a pass: reason and message.
pub(crate) type Progress = (&'static str, &'static str);

const DELETING: Progress = ("RecreateInProgress", "Deleting old revision pods");
const MAKING: Progress = ("RecreateInProgress", "Waiting for new-revision pods to be created");
const COMPLETED: Progress = ("RecreateCompleted", "All pods recreated successfully");

/// Whether the set asks for this strategy while its gate is off: then nothing is done but to say so.
pub(crate) fn is_unknown(seen: &Seen) -> bool {
    Strategy::of(&seen.set) == Strategy::Recreate && !seen.features.recreate
}

/// The event that says so.
pub(crate) fn unknown(pass: &Pass<'_>) -> Note {
    let meta = &pass.seen.set.meta;
    let text = format!(
        "statefulset {}/{} uses Recreate strategy but feature gate {RECREATE_STRATEGY} is disabled",
        meta.namespace, meta.name
    );
    Note::warning(pass.target.clone(), "UnknownStrategy", text)
}

/// Deletes all pods of old revisions at once, those beyond the set's size too. Whether there are any: nothing else is done
/// until they are gone.
pub(crate) fn clear(pass: &mut Pass<'_>) -> bool {
    let (seen, update) = (pass.seen, pass.seen.update.name());
    let is_old = |pod: &&Arc<Pod>| identity::ordinal(pod).is_some() && revision_of(pod) != update;
    let old: Vec<_> = seen.pods.owned.iter().filter(is_old).collect();
    for pod in old.iter().filter(|pod| !pod.meta.deleting()) {
        pass.delete(pod);
    }
    if !old.is_empty() {
        pass.progress = Some(DELETING);
    } else if seen.current_name() != update {
        pass.progress = Some(MAKING);
    }
    !old.is_empty()
}

/// Notes among the set's conditions how far it is; `complete` when all pods are of the new revision and ready.
pub(crate) fn tell(conditions: &mut Vec<Condition>, pass: &Pass<'_>, complete: bool) {
    if let Some(progress) = pass.progress {
        set(conditions, "True", progress, pass.now);
    }
    let recreates = Strategy::of(&pass.seen.set) == Strategy::Recreate;
    if complete && recreates && conditions.iter().any(|c| &*c.type_ == PROGRESSING) {
        set(conditions, "False", COMPLETED, pass.now);
    }
}

/// While its status stays, so does the time since when.
fn set(conditions: &mut Vec<Condition>, status: &str, (reason, message): Progress, now: Timestamp) {
    let new = Condition::new(PROGRESSING, status, reason, message).transitioned(now);
    match conditions.iter_mut().find(|c| &*c.type_ == PROGRESSING) {
        None => conditions.push(new),
        Some(old) if old.says_as(&new) => {}
        Some(old) if old.status == new.status => {
            *old = Condition { last_transition_time: old.last_transition_time, ..new };
        }
        Some(old) => *old = new,
    }
}
