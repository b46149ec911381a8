//! What a set's decision looked at, in words.

use super::{
    identity,
    plan::{Pass, Slot},
    recreate,
    seen::{Seen, Update},
    strategy::RECREATE_STRATEGY,
};
use crate::{pods, wire, words};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::Description;

/// What holds up others is named one by one up to this number.
const NAMED: usize = 5;

/// What is seen, what is waited for, and the set's pods.
pub(super) fn describe(seen: &Seen, now: Timestamp) -> Description {
    let (pass, mut told) = (Pass::begin(seen, now), Description::new());
    let set = &*seen.set;
    told.fact("wanted", words::count(i64::from(identity::replicas(set)), "pod"));
    told.fact("order", if seen.is_ordered() { "one after another" } else { "all at once" });
    told.fact("revision", revision(seen));
    told.fact("history", words::count(words::signed(seen.history.len()), "revision"));
    if let Some(error) = set.spec.selector.error() {
        told.waits(format!("its selector cannot be read: {error}"));
    } else if recreate::is_unknown(seen) {
        told.waits(format!("its strategy needs the feature gate {RECREATE_STRATEGY}"));
    } else if set.meta.deleting() {
        told.waits("it is being deleted: its pods are left as they are");
    } else {
        waits(&pass, &mut told);
    }
    for pod in &seen.pods.owned {
        told.child(&wire::target(&**pod));
    }
    told
}

fn revision(seen: &Seen) -> String {
    let (name, current) = (seen.update.name(), seen.current_name());
    match &seen.update {
        Update::Made(..) => format!("{name}, to be made"),
        Update::Renumbered(..) => format!("{name}, an older one that is gone back to"),
        Update::Present(_) | Update::Gone(_) if name == current => name.to_owned(),
        Update::Present(_) | Update::Gone(_) => format!("{name}, after {current}"),
    }
}

fn waits(pass: &Pass<'_>, told: &mut Description) {
    let min_ready_seconds = pass.seen.set.spec.min_ready_seconds;
    let unavailable = pass.replicas.iter().filter_map(|slot| match slot {
        Slot::There(pod) if pass.is_unavailable(pod) => Some(*pod),
        Slot::There(_) | Slot::Missing(_) => None,
    });
    for pod in unavailable.take(NAMED) {
        let why = match pods::until_available(pod, min_ready_seconds, pass.now) {
            _ if pod.meta.deleting() => "is ending".to_owned(),
            Some(left) => format!("becomes available in {}", words::time(left)),
            None => pods::unready(pod),
        };
        told.waits(format!("pod {} {why}", pod.meta.name));
    }
    let (unavailable, max) = (pass.n_unavailable(), pass.max_unavailable());
    if unavailable >= max {
        told.waits(format!(
            "{unavailable} of its pods are not available, of at most {max}: no more are replaced"
        ));
    }
}
