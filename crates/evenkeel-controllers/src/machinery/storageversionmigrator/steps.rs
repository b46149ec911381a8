//! Steps of the two planners that prepare a migration. One starts the oldest migration of a resource. The other
//! records the resource version up to which objects are migrated.

use super::{
    Migration,
    custom::{self, FIELD_MANAGER, Stage},
    name,
    plan::{self, StatusChange},
};
use crate::{newer_kinds::StorageVersionMigration, wire};
use evenkeel_api::{Kind, time::Timestamp};
use evenkeel_runtime::{
    client::{ListOptions, Metadata},
    discovery::Resource,
    plan::{LiveRead, OnError, Outcomes, Patch, PatchType, Plan, Steps, Target, Update},
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Verbs that a resource must support.
pub(super) const REQUIRED_VERBS: [&str; 3] = ["update", "patch", "list"];
/// A name that no namespace can have. A list in this namespace is empty, and only returns the resource version.
/// Upstream: `fakeSVMNamespaceName`.
const FAKE_NAMESPACE: &str = "@fake:svm_ns!";
/// Maximum number of attempts to update a definition. Conflicts are retried.
const MAX_UPDATE_ATTEMPTS: usize = 5;

/// Migrations of one resource.
pub(super) struct ResourceMigrations {
    /// Name of the CustomResourceDefinition, if the resource is a custom resource.
    pub(super) definition: String,
    pub(super) migrations: Vec<Arc<Migration>>,
}

/// Completes finished migrations of a resource, and starts the next one.
pub(super) fn start_next(
    observed: &ResourceMigrations,
    outcomes: &Outcomes,
    now: Timestamp,
) -> Option<Plan> {
    Steps::next(outcomes, |steps| {
        let schedule = plan::schedule(observed.migrations.clone());
        let definition = &*observed.definition;
        for ended in &schedule.ended {
            let succeeded = plan::has_succeeded(ended);
            update_definition_status(definition, Stage::Finished { succeeded }, now, steps)?;
            update_status(ended, StatusChange::Ended, now, steps)?;
        }
        if let Some(next) = &schedule.next {
            let stage = Stage::Running { name: name(next) };
            update_definition_status(definition, stage, now, steps)?;
            update_status(next, StatusChange::Started, now, steps)?;
        }
        Ok(Plan::nothing())
    })
}

/// Records the resource version up to which objects are migrated.
pub(super) fn record_version(
    migration: &Migration,
    outcomes: &Outcomes,
    now: Timestamp,
) -> Option<Plan> {
    Steps::next(outcomes, |steps| {
        if !plan::is_in_progress(migration) || !plan::version(migration).is_empty() {
            return Ok(Plan::nothing());
        }
        let Some(resource) = discover_resource(migration, now, steps)? else {
            return Ok(Plan::nothing());
        };
        if let Some(message) = unsupported_message(&resource) {
            update_status(migration, StatusChange::Unsupported(message), now, steps)?;
            return Ok(Plan::nothing());
        }
        let namespace = if resource.kind.namespaced { FAKE_NAMESPACE } else { "" };
        let options = ListOptions { limit: 1, ..ListOptions::default() };
        let read = LiveRead::list::<Metadata>(&resource.kind, namespace, &options);
        let read = steps.one(LiveRead { on_error: OnError::Abort, ..read })?;
        let list = match (&read.reply, &read.error) {
            (Some(reply), _) => reply.list::<Metadata>(),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => return Ok(Plan::nothing()),
        };
        let list = list.map_err(|error| Plan::failure(error.message))?;
        let change = StatusChange::VersionRecorded(list.resource_version.to_string());
        update_status(migration, change, now, steps)?;
        Ok(Plan::nothing())
    })
}

/// Returns the reason why the resource cannot be migrated, or `None` if it can.
pub(super) fn unsupported_message(resource: &Resource) -> Option<String> {
    if REQUIRED_VERBS.iter().all(|verb| resource.supports_verb(verb)) {
        return None;
    }
    let Kind { group, version, plural, .. } = &resource.kind;
    Some(format!(
        "resource \"{group}/{version}, Resource={plural}\" does not support discovery operations: [{}]",
        REQUIRED_VERBS.join(" ")
    ))
}

/// Discovers the migration's resource. `None` if there is nothing to migrate. If the server still lacks the resource
/// after the grace period for new resources, records that the migration failed.
fn discover_resource(
    migration: &Migration,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Option<Resource>, Plan> {
    let Some(group_resource) = plan::resource(migration) else { return Ok(None) };
    let read = LiveRead { on_error: OnError::Abort, ..LiveRead::resources(Duration::ZERO) };
    let read = steps.one(read)?;
    let Some(resources) = read.reply.as_ref().and_then(|reply| reply.resources()) else {
        let error = read.error.as_ref().map(|error| error.message.clone());
        return Err(Plan::failure(error.unwrap_or_default()));
    };
    match plan::find_resource(resources, group_resource, migration, now) {
        plan::ResourceLookup::Served(resource) => Ok(Some(resource)),
        plan::ResourceLookup::NotYet(why) => Err(Plan::failure(why)),
        plan::ResourceLookup::NotServed(why) => {
            update_status(migration, StatusChange::Unsupported(why), now, steps)?;
            Ok(None)
        }
    }
}

/// Updates the migration's status, unless the change has no effect.
fn update_status(
    migration: &Migration,
    change: StatusChange,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<(), Plan> {
    if let Some(changed) = plan::with_change(migration, change, now) {
        steps.one(status_update(migration, &changed))?;
    }
    Ok(())
}

/// Returns the update of a migration's status.
fn status_update(migration: &Migration, changed: &StorageVersionMigration) -> Update {
    let update = Update::status(wire::target(migration), wire::json(changed));
    Update { on_error: OnError::Abort, ..update }
}

/// Updates the status of the CustomResourceDefinition, if it exists. After a conflict, reads the definition again.
fn update_definition_status(
    definition: &str,
    stage: Stage<'_>,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<(), Plan> {
    let kind = definition_kind();
    let read = LiveRead::json(&format!("{}/{definition}", kind.path("")));
    let read = LiveRead { on_error: OnError::Abort, ..read };
    let mut last_conflict = String::new();
    for _ in 0..MAX_UPDATE_ATTEMPTS {
        let Some(reply) = &steps.one(read.clone())?.reply else { return Ok(()) };
        let live: Value = evenkeel_api::json::from_slice(reply.body())
            .map_err(|error| Plan::failure(error.to_string()))?;
        let body = custom::apply_configuration(&live, stage, now).to_string();
        let target = Target::new(kind.clone(), "", definition, "");
        let patch = Patch::new(target, PatchType::Apply(FIELD_MANAGER), body);
        let patch = Patch { subresource: "status", on_error: OnError::Ignore, ..patch };
        match &steps.one(patch)?.error {
            None => return Ok(()),
            Some(error) if error.is_conflict() => last_conflict.clone_from(&error.message),
            Some(error) => return Err(Plan::failure(error.message.clone())),
        }
    }
    Err(Plan::failure(last_conflict))
}

/// Returns the kind of CustomResourceDefinitions.
fn definition_kind() -> Kind {
    let kind = "CustomResourceDefinition";
    let plural = "customresourcedefinitions";
    Kind::new("apiextensions.k8s.io", "v1", kind, plural, false)
}

#[cfg(test)]
mod tests;
