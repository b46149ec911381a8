//! Revisions: which ReplicaSet came when, kept in annotations, and what else a deployment notes on its ReplicaSets.

use evenkeel_api::StrMap;
use std::collections::BTreeMap;

/// The place of a ReplicaSet in the deployment's history; on the deployment, that of its present template.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Places that a ReplicaSet had before it was rolled back to.
pub(crate) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Size of the deployment when the ReplicaSet was last scaled: another size means that the deployment was scaled.
pub(crate) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// That size and the surge, against which shares are worked out.
pub(crate) const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Asks for a rollback to a revision; 0 means the last one.
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations that belong to one object only.
const NOT_COPIED: [&str; 6] = [LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, ROLLBACK_TO];

/// A history grows to this many characters, then loses its oldest entries.
const HISTORY_LIMIT: usize = 2000;

/// Whether an annotation goes from a deployment to its ReplicaSets, and back on a rollback.
pub(crate) fn is_copied(key: &str) -> bool {
    !NOT_COPIED.contains(&key)
}

/// The revision among these annotations: 0 where there is none, `None` where it is no number.
pub(crate) fn of(annotations: &StrMap) -> Option<i64> {
    annotations.get(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// A size noted in an annotation.
pub(crate) fn size(annotations: &StrMap, key: &str) -> Option<i32> {
    annotations.get(key)?.parse().ok().filter(|size| *size >= 0)
}

/// A revision that a rollback is asked to.
pub(crate) fn rollback_to(annotations: &StrMap) -> Option<i64> {
    annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// Annotations of the ReplicaSet that has the deployment's template: the deployment's own, and a revision beyond all
/// older ones'. They stay as they are where the present revision is no number.
pub(crate) fn of_new_set(present: &StrMap, deployment: &StrMap, revision: i64) -> StrMap {
    let Some(before) = present
        .get(REVISION)
        .filter(|text| !text.is_empty())
        .map_or(Some(0), |text| text.parse().ok())
    else {
        return present.clone();
    };
    let mut annotations: BTreeMap<&str, &str> = present.iter().collect();
    annotations.extend(deployment.iter().filter(|(key, _)| is_copied(key)));
    let (number, history);
    if before < revision {
        number = revision.to_string();
        annotations.insert(REVISION, &number);
        if let Some(before) = present.get(REVISION) {
            history = lengthened(present.get(HISTORY).unwrap_or_default(), before);
            if let Some(history) = &history {
                annotations.insert(HISTORY, history);
            }
        }
    }
    annotations.into_iter().collect()
}

/// These annotations with the deployment's size and most pods noted.
pub(crate) fn with_sizes(annotations: &StrMap, replicas: i32, max: i32) -> StrMap {
    annotations.with(DESIRED, &replicas.to_string()).with(MAX, &max.to_string())
}

/// Whether these annotations note the deployment's size and most pods as they are.
pub(crate) fn notes_sizes(annotations: &StrMap, replicas: i32, max: i32) -> bool {
    let notes = |key, size: i32| annotations.get(key).is_some_and(|text| text == size.to_string());
    notes(DESIRED, replicas) && notes(MAX, max)
}

/// A history with one more entry, or `None` if that is too long by itself.
fn lengthened(history: &str, entry: &str) -> Option<String> {
    if history.split(',').next().is_none_or(str::is_empty) {
        return Some(entry.to_owned());
    }
    let mut rest = Some(history);
    while let Some(kept) = rest {
        if kept.len() + 1 + entry.len() <= HISTORY_LIMIT {
            return Some(format!("{kept},{entry}"));
        }
        rest = kept.split_once(',').map(|(_, rest)| rest);
    }
    (entry.len() <= HISTORY_LIMIT).then(|| entry.to_owned())
}
