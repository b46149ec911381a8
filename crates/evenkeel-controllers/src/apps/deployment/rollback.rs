//! Rollback by annotation: restores an earlier template. Upstream: `rollback.go`.

use super::{
    annotations,
    sync::{DeploymentSync, Finish},
};
use crate::wire;
use evenkeel_api::{
    StrMap,
    template::{HASH_LABEL, Template},
    views::ReplicaSet,
};
use evenkeel_runtime::plan::{EventRecord, OnError, PatchForm, Rewrite};
use serde_json::json;

/// Performs the requested rollback, or records an event with the reason why not. Either way, removes the annotation.
/// Upstream: `rollback`.
pub(crate) fn rollback(sync: &mut DeploymentSync<'_>, to_revision: i64) {
    sync.get_or_create_new_set();
    sync.finish = Finish::Nothing;
    let revision = if to_revision == 0 { last(sync) } else { to_revision };
    let found =
        sync.sets.iter().position(|set| annotations::revision(&set.annotations) == Some(revision));
    let name = sync.observed.deployment.meta.name.clone();
    match found.filter(|_| revision != 0).map(|index| sync.sets[index].present) {
        Some(Some(set))
            if !set.spec.template.equal_ignoring_hash(&sync.observed.deployment.spec.template) =>
        {
            let text = format!("Rolled back deployment \"{name}\" to revision {revision}");
            let done = EventRecord::normal(sync.target.clone(), "DeploymentRollback", text);
            rewrite(sync, Some(set), Some(done));
        }
        Some(_) => {
            let text = format!(
                "The rollback revision contains the same template as current deployment \"{name}\""
            );
            reject(sync, "DeploymentRollbackTemplateUnchanged", text);
        }
        None if to_revision == 0 && revision == 0 => {
            reject(
                sync,
                "DeploymentRollbackRevisionNotFound",
                "Unable to find last revision.".into(),
            );
        }
        None => {
            let text = "Unable to find the revision to rollback to.".into();
            reject(sync, "DeploymentRollbackRevisionNotFound", text);
        }
    }
}

/// Returns the second highest revision, or 0 with fewer than two. Upstream: `LastRevision`.
fn last(sync: &DeploymentSync<'_>) -> i64 {
    let mut revisions: Vec<i64> =
        sync.sets.iter().filter_map(|set| annotations::revision(&set.annotations)).collect();
    revisions.sort_unstable();
    revisions.len().checked_sub(2).map_or(0, |index| revisions[index].max(0))
}

/// Records a warning, and removes the annotation.
fn reject(sync: &mut DeploymentSync<'_>, reason: &'static str, text: String) {
    sync.events.push(EventRecord::warning(sync.target.clone(), reason, text));
    rewrite(sync, None, None);
}

/// Patches the Deployment: removes the annotation and, for a rollback, restores the set's template. Upstream:
/// `rollbackToTemplate`, `updateDeploymentAndClearRollbackTo`.
fn rewrite(sync: &mut DeploymentSync<'_>, to: Option<&ReplicaSet>, done: Option<EventRecord>) {
    let meta = &sync.observed.deployment.meta;
    let annotations = rewritten_annotations(sync, to.map(|set| &set.meta.annotations));
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
    let mut changes =
        vec![json!({ "op": "add", "path": "/metadata/annotations", "value": annotations })];
    if let Some(set) = to {
        let template = without_hash(&set.spec.template);
        changes.push(json!({ "op": "replace", "path": "/spec/template", "value": template }));
    }
    let (target, version) = (sync.target.clone(), &meta.resource_version);
    sync.rewrite = Some(Rewrite {
        done,
        on_error: OnError::Abort,
        ..Rewrite::new(target, version, PatchForm::Json, wire::json(&changes))
    });
}

/// Returns the Deployment's annotations without `ROLLBACK_TO`. On a rollback, those that are copied come from
/// the set. Upstream: `SetDeploymentAnnotationsTo`.
fn rewritten_annotations(sync: &DeploymentSync<'_>, to: Option<&StrMap>) -> StrMap {
    let own = sync.observed.deployment.meta.annotations.iter();
    let kept = own.filter(|(key, _)| {
        *key != annotations::ROLLBACK_TO && (to.is_none() || !annotations::is_copied(key))
    });
    let revision = sync.revision.as_deref().map(|revision| (annotations::REVISION, revision));
    let copied =
        to.into_iter().flat_map(StrMap::iter).filter(|(key, _)| annotations::is_copied(key));
    kept.chain(revision).chain(copied).collect()
}

fn without_hash(template: &Template) -> serde_json::Value {
    let labels = template.labels.iter().filter(|(key, _)| *key != HASH_LABEL).collect();
    let text = Template { labels, ..template.clone() }.to_json();
    serde_json::from_str(&text).expect("a template's text is JSON")
}
