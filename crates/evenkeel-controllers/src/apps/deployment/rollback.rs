//! Rollback by annotation: restores the template of an earlier revision. Upstream: `rollback.go`.

use super::{
    annotations,
    sets::PlannedSet,
    sync::{DeploymentSync, StatusPart},
};
use crate::wire;
use evenkeel_api::{
    StrMap,
    template::{HASH_LABEL, Template},
    views::ReplicaSet,
};
use evenkeel_runtime::plan::{EventRecord, OnError, PatchType, Rewrite};
use serde_json::{Value, json};

/// Performs the requested rollback, or records an event with the reason why it is impossible. In both cases, removes the
/// annotation. `to_revision` 0 means the revision before the present one. Upstream: `rollback`.
pub(crate) fn rollback(sync: &mut DeploymentSync<'_>, to_revision: i64) {
    const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
    sync.get_or_create_new_set();
    sync.status_part = StatusPart::Nothing;
    let deployment = &*sync.observed.deployment;
    let revision = if to_revision == 0 { last_revision(sync) } else { to_revision };
    if revision == 0 {
        reject(sync, NOT_FOUND, "Unable to find last revision.".into());
        return;
    }
    let has_revision =
        |set: &&PlannedSet<'_>| annotations::revision(&set.annotations) == Some(revision);
    let Some(found) = sync.sets.iter().find(has_revision) else {
        reject(sync, NOT_FOUND, "Unable to find the revision to rollback to.".into());
        return;
    };
    let name = &deployment.meta.name;
    match found.existing {
        Some(set) if !set.spec.template.equal_ignoring_hash(&deployment.spec.template) => {
            let text = format!("Rolled back deployment \"{name}\" to revision {revision}");
            let done = EventRecord::normal(sync.target.clone(), "DeploymentRollback", text);
            restore_template(sync, set, done);
        }
        // A set that does not exist yet is the new set, which has the Deployment's template.
        _ => {
            let text = format!(
                "The rollback revision contains the same template as current deployment \"{name}\""
            );
            reject(sync, "DeploymentRollbackTemplateUnchanged", text);
        }
    }
}

/// Returns the second highest revision, or 0 if there are fewer than two revisions. Upstream: `LastRevision`.
fn last_revision(sync: &DeploymentSync<'_>) -> i64 {
    let mut revisions: Vec<i64> =
        sync.sets.iter().filter_map(|set| annotations::revision(&set.annotations)).collect();
    revisions.sort_unstable();
    revisions.len().checked_sub(2).map_or(0, |index| revisions[index].max(0))
}

/// Records a warning, and removes the annotation. Upstream: `updateDeploymentAndClearRollbackTo`.
fn reject(sync: &mut DeploymentSync<'_>, reason: &'static str, text: String) {
    sync.events.push(EventRecord::warning(sync.target.clone(), reason, text));
    let annotations = annotations_without_rollback(sync);
    rewrite(sync, &[annotations_change(&annotations)], None);
}

/// Restores the set's template and annotations, and removes the annotation. Upstream: `rollbackToTemplate`.
fn restore_template(sync: &mut DeploymentSync<'_>, set: &ReplicaSet, done: EventRecord) {
    let annotations = restored_annotations(sync, &set.meta.annotations);
    let template = without_hash(&set.spec.template);
    let changes = [
        annotations_change(&annotations),
        json!({ "op": "replace", "path": "/spec/template", "value": template }),
    ];
    rewrite(sync, &changes, Some(done));
}

/// Plans a patch of the Deployment. `changes` are the operations of a JSON patch.
fn rewrite(sync: &mut DeploymentSync<'_>, changes: &[Value], done: Option<EventRecord>) {
    let version = &sync.observed.deployment.meta.resource_version;
    let target = sync.target.clone();
    sync.rewrite = Some(Rewrite {
        done,
        on_error: OnError::Abort,
        ..Rewrite::new(target, version, PatchType::Json, wire::json(&changes))
    });
}

/// Returns the JSON patch operation that replaces all annotations.
fn annotations_change(annotations: &StrMap) -> Value {
    json!({ "op": "add", "path": "/metadata/annotations", "value": wire::json_map(annotations) })
}

/// Returns the Deployment's annotations without `ROLLBACK_TO`.
fn annotations_without_rollback(sync: &DeploymentSync<'_>) -> StrMap {
    let present = sync.observed.deployment.meta.annotations.iter();
    let kept = present.filter(|(key, _)| *key != annotations::ROLLBACK_TO);
    let revision = sync.revision.as_deref().map(|revision| (annotations::REVISION, revision));
    kept.chain(revision).collect()
}

/// Returns the Deployment's annotations without `ROLLBACK_TO`, after the set's annotations are copied back. Upstream:
/// `SetDeploymentAnnotationsTo`.
fn restored_annotations(sync: &DeploymentSync<'_>, set_annotations: &StrMap) -> StrMap {
    let present = annotations_without_rollback(sync);
    let kept = present.iter().filter(|(key, _)| !annotations::is_copied(key));
    let copied = set_annotations.iter().filter(|(key, _)| annotations::is_copied(key));
    kept.chain(copied).collect()
}

/// Returns the template without the label of the pod template hash.
fn without_hash(template: &Template) -> Value {
    let labels = template.labels.iter().filter(|(key, _)| *key != HASH_LABEL).collect();
    let text = Template { labels, ..template.clone() }.to_json();
    serde_json::from_str(&text).expect("a pod template serializes to JSON")
}
