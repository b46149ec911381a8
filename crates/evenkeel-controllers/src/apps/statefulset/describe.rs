//! Description of a StatefulSet for `evenkeel explain`.

use super::{
    identity,
    observed::{Observed, UpdateRevision},
    plan::{Replica, StatefulSetSync},
    recreate,
    strategy::RECREATE_STRATEGY,
};
use crate::{pods, wire, words};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::Description;

/// Maximum number of blocking pods listed by name.
const MAX_LISTED: usize = 5;

/// Describes the observed state, the pending changes and the pods.
pub(super) fn describe(observed: &Observed, now: Timestamp) -> Description {
    let sync = StatefulSetSync::begin(observed, now);
    let mut description = Description::new();
    let set = &*observed.set;
    description.fact("wanted", words::count(i64::from(identity::replicas(set)), "pod"));
    description
        .fact("order", if observed.is_ordered() { "one after another" } else { "all at once" });
    description.fact("revision", describe_revision(observed));
    description.fact("history", words::count(words::signed(observed.history.len()), "revision"));
    if let Some(error) = set.spec.selector.error() {
        description.waits(format!("its selector cannot be read: {error}"));
    } else if recreate::is_disabled(observed) {
        description.waits(format!("its strategy needs the feature gate {RECREATE_STRATEGY}"));
    } else if set.meta.deleting() {
        description.waits("it is being deleted: its pods are left as they are");
    } else {
        describe_waits(&sync, &mut description);
    }
    for pod in &observed.pods.owned {
        description.child(&wire::target(&**pod));
    }
    description
}

/// Names the update revision, and the current revision that it replaces.
fn describe_revision(observed: &Observed) -> String {
    let name = observed.update_revision.name();
    let current = observed.current_revision_name();
    match &observed.update_revision {
        UpdateRevision::Created { .. } => format!("{name}, to be made"),
        UpdateRevision::Renumbered { .. } => format!("{name}, an older one that is gone back to"),
        UpdateRevision::Present(_) | UpdateRevision::Gone(_) if name == current => name.to_owned(),
        UpdateRevision::Present(_) | UpdateRevision::Gone(_) => format!("{name}, after {current}"),
    }
}

/// Adds the pods that the StatefulSet waits for.
fn describe_waits(sync: &StatefulSetSync<'_>, description: &mut Description) {
    let min_ready_seconds = sync.observed.set.spec.min_ready_seconds;
    let unavailable = sync.replicas.iter().filter_map(|replica| match replica {
        Replica::Existing(pod) if sync.is_unavailable(pod) => Some(*pod),
        Replica::Existing(_) | Replica::Missing(_) => None,
    });
    for pod in unavailable.take(MAX_LISTED) {
        let state = pods::describe_unavailable(pod, min_ready_seconds, sync.now);
        description.waits(format!("pod {} {state}", pod.meta.name));
    }
    let n_unavailable = sync.n_unavailable();
    let max = sync.max_unavailable();
    if n_unavailable >= max {
        let are = if n_unavailable == 1 { "is" } else { "are" };
        description.waits(format!(
            "{n_unavailable} of its pods {are} not available, of at most {max}: no more are replaced"
        ));
    }
}
