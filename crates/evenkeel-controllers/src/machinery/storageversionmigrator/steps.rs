//! Steps of the two planners that prepare a migration: one lets the oldest migration of a resource run, one notes up to which
//! version there is something to do.

use super::{
    Migration,
    custom::{self, MANAGER, Stage},
    name,
    plan::{self, News},
};
use crate::wire;
use evenkeel_api::{Kind, time::Timestamp};
use evenkeel_runtime::{
    client::{ListOptions, Metadata},
    discovery::Resource,
    plan::{LiveRead, OnError, Outcomes, Patch, PatchForm, Plan, Steps, Target, Update},
};
use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Verbs that a resource must support.
pub(super) const VERBS: [&str; 3] = ["update", "patch", "list"];
/// A name that no namespace has, so that a list in it is empty and only returns the resource version. Upstream: `fakeSVMNamespaceName`.
const NOWHERE: &str = "@fake:svm_ns!";
/// Maximum attempts to update a definition that others change.
const MAX_ATTEMPTS: usize = 5;

/// The migrations of a resource.
pub(super) struct OfResource {
    /// Name of the resource's definition, if it is a custom one.
    pub(super) definition: String,
    pub(super) migrations: Vec<Arc<Migration>>,
}

/// Ends what has ended of a resource's migrations, and lets the next one begin.
pub(super) fn run_next(observed: &OfResource, done: &Outcomes, now: Timestamp) -> Option<Plan> {
    Steps::next(done, |steps| {
        let (turn, definition) = (plan::turn(observed.migrations.clone()), &*observed.definition);
        for ended in &turn.ended {
            let well = plan::has_succeeded(ended);
            tell_definition(definition, Stage::Ended { well }, now, steps)?;
            tell(ended, News::Over, now, steps)?;
        }
        if let Some(next) = &turn.next {
            tell_definition(definition, Stage::Begun(name(next)), now, steps)?;
            tell(next, News::Begun, now, steps)?;
        }
        Ok(Plan::nothing())
    })
}

/// Notes up to which version objects are to be written again.
pub(super) fn note_version(migration: &Migration, done: &Outcomes, now: Timestamp) -> Option<Plan> {
    Steps::next(done, |steps| {
        if !plan::is_open(migration) || !plan::version(migration).is_empty() {
            return Ok(Plan::nothing());
        }
        let Some(found) = found(migration, now, steps)? else { return Ok(Plan::nothing()) };
        if let Some(words) = unsupported(&found) {
            tell(migration, News::Impossible(words), now, steps)?;
            return Ok(Plan::nothing());
        }
        let namespace = if found.kind.namespaced { NOWHERE } else { "" };
        let options = ListOptions { limit: 1, ..ListOptions::default() };
        let read = LiveRead::list::<Metadata>(&found.kind, namespace, &options);
        let read = steps.one(LiveRead { on_error: OnError::Abort, ..read })?;
        let list = match (&read.reply, &read.error) {
            (Some(reply), _) => reply.list::<Metadata>(),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => return Ok(Plan::nothing()),
        };
        let list = list.map_err(|error| Plan::failure(error.message))?;
        tell(migration, News::Version(list.resource_version.to_string()), now, steps)?;
        Ok(Plan::nothing())
    })
}

/// Why the resource cannot be migrated, if so.
pub(super) fn unsupported(found: &Resource) -> Option<String> {
    if VERBS.iter().all(|verb| found.supports_verb(verb)) {
        return None;
    }
    let Kind { group, version, plural, .. } = &found.kind;
    Some(format!(
        "resource \"{group}/{version}, Resource={plural}\" does not support discovery operations: [{}]",
        VERBS.join(" ")
    ))
}

/// The resource as the server has it; a migration of one that it does not have fails once the resource is not new any more.
fn found(
    migration: &Migration,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Option<Resource>, Plan> {
    let Some(wanted) = plan::resource(migration) else { return Ok(None) };
    let read = LiveRead { on_error: OnError::Abort, ..LiveRead::resources(Duration::ZERO) };
    let read = steps.one(read)?;
    let Some(resources) = read.reply.as_ref().and_then(|reply| reply.resources()) else {
        let error = read.error.as_ref().map(|error| error.message.clone());
        return Err(Plan::failure(error.unwrap_or_default()));
    };
    match plan::find(resources, wanted, migration, now) {
        plan::Found::Is(found) => Ok(Some(found)),
        plan::Found::NotYet(why) => Err(Plan::failure(why)),
        plan::Found::Never(why) => {
            tell(migration, News::Impossible(why), now, steps)?;
            Ok(None)
        }
    }
}

/// Puts news into a migration's status, where it does not say so already.
fn tell(
    migration: &Migration,
    news: News,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<(), Plan> {
    if let Some(changed) = plan::with(migration, news, now) {
        steps.one(update_status(migration, &changed))?;
    }
    Ok(())
}

fn update_status(migration: &Migration, changed: &StorageVersionMigration) -> Update {
    let update = Update::status(wire::target(migration), wire::json(changed));
    Update { on_error: OnError::Abort, ..update }
}

/// Tells the resource's definition, if it is a custom one. Its status is applied to the version that was read, and read again
/// after a conflict.
fn tell_definition(
    definition: &str,
    stage: Stage<'_>,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<(), Plan> {
    let kind = definitions();
    let read = LiveRead::json(&format!("{}/{definition}", kind.path("")));
    let read = LiveRead { on_error: OnError::Abort, ..read };
    let mut last = String::new();
    for _ in 0..MAX_ATTEMPTS {
        let Some(reply) = &steps.one(read.clone())?.reply else { return Ok(()) };
        let live: Value = evenkeel_api::json::from_slice(reply.body())
            .map_err(|error| Plan::failure(error.to_string()))?;
        let body = custom::status(&live, stage, now).to_string();
        let target = Target::new(kind.clone(), "", definition, "");
        let patch = Patch::new(target, PatchForm::Apply(MANAGER), body);
        let patch = Patch { subresource: "status", on_error: OnError::Ignore, ..patch };
        match &steps.one(patch)?.error {
            None => return Ok(()),
            Some(error) if error.is_conflict() => last.clone_from(&error.message),
            Some(error) => return Err(Plan::failure(error.message.clone())),
        }
    }
    Err(Plan::failure(last))
}

fn definitions() -> Kind {
    let (kind, plural) = ("CustomResourceDefinition", "customresourcedefinitions");
    Kind::new("apiextensions.k8s.io", "v1", kind, plural, false)
}

#[cfg(test)]
mod tests;
