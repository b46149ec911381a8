//! Annotations of a Deployment and its ReplicaSets: revisions and numbers of replicas. Upstream: `deployment_util.go`.

use super::limits::RolloutLimits;
use crate::wire::LAST_APPLIED_ANNOTATION;
use evenkeel_api::StrMap;

/// Revision number of a ReplicaSet; on the Deployment, of the current template. Upstream: `RevisionAnnotation`.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier revision numbers of a ReplicaSet that was rolled back to. Upstream: `RevisionHistoryAnnotation`.
pub(crate) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The Deployment's `replicas` when the set was last scaled. A difference shows that the Deployment was scaled.
/// Upstream: `DesiredReplicasAnnotation`.
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The Deployment's `replicas` plus `maxSurge` when the set was last scaled, for proportional scaling.
/// Upstream: `MaxReplicasAnnotation`.
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Requested rollback to a revision; 0 is the previous one. Upstream: `DeprecatedRollbackTo`.
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Annotations that are not copied between Deployment and ReplicaSet. Upstream: `annotationsToSkip`.
const NOT_COPIED: [&str; 6] = [
    LAST_APPLIED_ANNOTATION,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];

/// Maximum length of the revision history, in characters. Upstream: `maxRevHistoryLengthInChars`.
const MAX_HISTORY_LENGTH: usize = 2000;

/// Returns whether an annotation is copied to ReplicaSets, and back on a rollback. Upstream: `skipCopyAnnotation`.
pub(crate) fn is_copied(key: &str) -> bool {
    !NOT_COPIED.contains(&key)
}

/// Returns the revision number: 0 without the annotation, `None` if it is invalid. Upstream: `Revision`.
pub(crate) fn revision(annotations: &StrMap) -> Option<i64> {
    annotations.get(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// Returns the number of replicas in an annotation, or `None` if it is missing, negative or invalid. Upstream:
/// `getNonNegativeInt32FromAnnotation`.
pub(crate) fn replicas(annotations: &StrMap, key: &str) -> Option<i32> {
    annotations.get(key)?.parse().ok().filter(|replicas| *replicas >= 0)
}

/// Returns the revision of a requested rollback.
pub(crate) fn rollback_to(annotations: &StrMap) -> Option<i64> {
    annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// Adds copies of the Deployment's annotations to those of the new set, and raises its revision number to `revision`.
/// If the set's present number is invalid, changes nothing. Upstream: `SetNewReplicaSetAnnotations`.
pub(crate) fn for_new_set(set: &StrMap, deployment: &StrMap, revision: i64) -> StrMap {
    let present_revision = match set.get(REVISION) {
        None | Some("") => Some(0),
        Some(text) => text.parse().ok(),
    };
    let Some(present_revision) = present_revision else { return set.clone() };
    let copied = deployment.iter().filter(|(key, _)| is_copied(key));
    let annotations: StrMap = set.iter().chain(copied).collect();
    if present_revision >= revision {
        return annotations;
    }
    let history = set
        .get(REVISION)
        .and_then(|text| append_history(set.get(REVISION_HISTORY).unwrap_or_default(), text));
    let annotations = annotations.with(REVISION, &revision.to_string());
    match history {
        Some(history) => annotations.with(REVISION_HISTORY, &history),
        None => annotations,
    }
}

/// Sets [`DESIRED_REPLICAS`] and [`MAX_REPLICAS`]. Upstream: `SetReplicasAnnotations`.
pub(crate) fn with_replica_limits(annotations: &StrMap, limits: RolloutLimits) -> StrMap {
    annotations
        .with(DESIRED_REPLICAS, &limits.desired.to_string())
        .with(MAX_REPLICAS, &limits.max_replicas().to_string())
}

/// Returns whether [`DESIRED_REPLICAS`] and [`MAX_REPLICAS`] are up to date. Upstream: `ReplicasAnnotationsNeedUpdate`.
pub(crate) fn are_replicas_current(annotations: &StrMap, limits: RolloutLimits) -> bool {
    let has_value =
        |key, value: i32| annotations.get(key).is_some_and(|text| text == value.to_string());
    has_value(DESIRED_REPLICAS, limits.desired) && has_value(MAX_REPLICAS, limits.max_replicas())
}

/// Appends an entry to the history, and drops its oldest entries beyond `MAX_HISTORY_LENGTH`. Returns `None` if
/// a history exists and the entry alone exceeds the limit.
fn append_history(history: &str, entry: &str) -> Option<String> {
    if history.is_empty() || history.starts_with(',') {
        return Some(entry.to_owned());
    }
    let mut remaining = Some(history);
    while let Some(kept) = remaining {
        if kept.len() + 1 + entry.len() <= MAX_HISTORY_LENGTH {
            return Some(format!("{kept},{entry}"));
        }
        remaining = kept.split_once(',').map(|(_oldest, newer)| newer);
    }
    (entry.len() <= MAX_HISTORY_LENGTH).then(|| entry.to_owned())
}
