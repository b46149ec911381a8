//! Rollback by annotation: restores an earlier template. Upstream: `rollback.go`.

use super::{
    pass::{Finish, Pass},
    revision,
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
pub(crate) fn rollback(pass: &mut Pass<'_>, to_revision: i64) {
    pass.get_or_create_new_set();
    pass.finish = Finish::Nothing;
    let revision = if to_revision == 0 { last(pass) } else { to_revision };
    let found = pass.sets.iter().position(|set| revision::of(&set.annotations) == Some(revision));
    let name = pass.observed.deployment.meta.name.clone();
    match found.filter(|_| revision != 0).map(|index| pass.sets[index].present) {
        Some(Some(set))
            if !set.spec.template.equal_ignoring_hash(&pass.observed.deployment.spec.template) =>
        {
            let text = format!("Rolled back deployment \"{name}\" to revision {revision}");
            let done = EventRecord::normal(pass.target.clone(), "DeploymentRollback", text);
            rewrite(pass, Some(set), Some(done));
        }
        Some(_) => {
            let text = format!(
                "The rollback revision contains the same template as current deployment \"{name}\""
            );
            reject(pass, "DeploymentRollbackTemplateUnchanged", text);
        }
        None if to_revision == 0 && revision == 0 => {
            reject(
                pass,
                "DeploymentRollbackRevisionNotFound",
                "Unable to find last revision.".into(),
            );
        }
        None => {
            let text = "Unable to find the revision to rollback to.".into();
            reject(pass, "DeploymentRollbackRevisionNotFound", text);
        }
    }
}

/// Returns the second highest revision, or 0 with fewer than two. Upstream: `LastRevision`.
fn last(pass: &Pass<'_>) -> i64 {
    let mut revisions: Vec<i64> =
        pass.sets.iter().filter_map(|set| revision::of(&set.annotations)).collect();
    revisions.sort_unstable();
    revisions.len().checked_sub(2).map_or(0, |index| revisions[index].max(0))
}

/// Records a warning, and removes the annotation.
fn reject(pass: &mut Pass<'_>, reason: &'static str, text: String) {
    pass.events.push(EventRecord::warning(pass.target.clone(), reason, text));
    rewrite(pass, None, None);
}

/// Patches the Deployment: removes the annotation and, for a rollback, restores the set's template. Upstream:
/// `rollbackToTemplate`, `updateDeploymentAndClearRollbackTo`.
fn rewrite(pass: &mut Pass<'_>, to: Option<&ReplicaSet>, done: Option<EventRecord>) {
    let meta = &pass.observed.deployment.meta;
    let annotations = annotations(pass, to.map(|set| &set.meta.annotations));
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
    let mut changes =
        vec![json!({ "op": "add", "path": "/metadata/annotations", "value": annotations })];
    if let Some(set) = to {
        let template = without_hash(&set.spec.template);
        changes.push(json!({ "op": "replace", "path": "/spec/template", "value": template }));
    }
    let (target, version) = (pass.target.clone(), &meta.resource_version);
    pass.rewrite = Some(Rewrite {
        done,
        on_error: OnError::Abort,
        ..Rewrite::new(target, version, PatchForm::Json, wire::json(&changes))
    });
}

/// Returns the Deployment's annotations without `ROLLBACK_TO`. On a rollback, those that are copied come from
/// the set. Upstream: `SetDeploymentAnnotationsTo`.
fn annotations(pass: &Pass<'_>, to: Option<&StrMap>) -> StrMap {
    let own = pass.observed.deployment.meta.annotations.iter();
    let kept = own.filter(|(key, _)| {
        *key != revision::ROLLBACK_TO && (to.is_none() || !revision::is_copied(key))
    });
    let revision = pass.revision.as_deref().map(|revision| (revision::REVISION, revision));
    let copied = to.into_iter().flat_map(StrMap::iter).filter(|(key, _)| revision::is_copied(key));
    kept.chain(revision).chain(copied).collect()
}

fn without_hash(template: &Template) -> serde_json::Value {
    let labels = template.labels.iter().filter(|(key, _)| *key != HASH_LABEL).collect();
    let text = Template { labels, ..template.clone() }.to_json();
    serde_json::from_str(&text).expect("a template's text is JSON")
}
