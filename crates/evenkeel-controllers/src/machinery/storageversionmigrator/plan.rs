//! Chooses the migration to run, and sets the conditions of migrations.

use super::{Migration, name};
use crate::{
    newer_kinds::{GroupResource, StorageVersionMigration},
    wire,
};
use evenkeel_api::{View as _, time::Timestamp};
use evenkeel_runtime::{
    discovery::{Resource, ServerResources},
    introspect::Description,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::sync::Arc;

/// Condition type: the migration is in progress.
const RUNNING: &str = "Running";
/// Condition type: all objects are migrated.
const SUCCEEDED: &str = "Succeeded";
/// Condition type: the migration ended with an error.
const FAILED: &str = "Failed";

/// Decision about the migrations of one resource.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Finished migrations that still have the condition `Running`.
    pub(super) ended: Vec<Arc<Migration>>,
    /// The migration to start.
    pub(super) next: Option<Arc<Migration>>,
}

/// Chooses the oldest migration that has not started, unless another one is in progress. As upstream, a finished migration that
/// still has the condition `Running` does not prevent the next one from starting.
pub(super) fn schedule(migrations: Vec<Arc<Migration>>) -> Schedule {
    let (running, mut waiting): (Vec<_>, Vec<_>) =
        migrations.into_iter().partition(|migration| has_running_condition(migration));
    let (ended, in_progress): (Vec<_>, Vec<_>) =
        running.into_iter().partition(|migration| has_ended(migration));
    waiting.retain(|migration| !has_ended(migration));
    let by_age =
        |migration: &Arc<Migration>| (migration.meta().creation, name(migration).to_owned());
    let next = if in_progress.is_empty() { waiting.into_iter().min_by_key(by_age) } else { None };
    Schedule { ended, next }
}

/// Returns the conditions of a migration.
fn conditions(migration: &StorageVersionMigration) -> &[Condition] {
    let status = migration.status.as_ref();
    status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// Returns whether the migration has this condition with the status `True`.
fn is_true(migration: &Migration, type_: &str) -> bool {
    let is_it = |condition: &Condition| condition.type_ == type_ && condition.status == "True";
    conditions(migration).iter().any(is_it)
}

/// Returns whether the migration has the condition `Running`.
fn has_running_condition(migration: &Migration) -> bool {
    is_true(migration, RUNNING)
}

/// Returns whether the migration succeeded or failed.
fn has_ended(migration: &Migration) -> bool {
    is_true(migration, SUCCEEDED) || is_true(migration, FAILED)
}

/// Returns whether the migration succeeded.
pub(super) fn has_succeeded(migration: &Migration) -> bool {
    is_true(migration, SUCCEEDED)
}

/// Returns the resource version up to which objects are migrated. Empty until it is recorded.
pub(super) fn version(migration: &Migration) -> &str {
    let status = migration.status.as_ref();
    status.and_then(|status| status.resource_version.as_deref()).unwrap_or_default()
}

/// Returns whether the migration is less than one minute old, so that discovery may still lack its resource.
fn is_new(migration: &Migration, now: Timestamp) -> bool {
    let created = migration.meta().creation;
    created.is_some_and(|created| now.duration_since(created).as_secs() < 60)
}

/// Returns whether the migration has started and not ended.
pub(super) fn is_in_progress(migration: &Migration) -> bool {
    has_running_condition(migration) && !has_ended(migration)
}

/// Returns the resource whose objects are migrated.
pub(super) fn resource(migration: &Migration) -> Option<&GroupResource> {
    migration.spec.as_ref().map(|spec| &spec.resource)
}

/// Result of the search for a migration's resource in a discovery.
pub(super) enum ResourceLookup {
    /// The server serves the resource.
    Served(Resource),
    /// The resource may be too new for discovery. The string is the reason for the retry.
    NotYet(&'static str),
    /// The server does not serve the resource. The string is the message of the status.
    NotServed(String),
}

/// Finds a migration's resource in a discovery.
pub(super) fn find_resource(
    discovered: &ServerResources,
    group_resource: &GroupResource,
    migration: &Migration,
    now: Timestamp,
) -> ResourceLookup {
    let is_it = |resource: &&Resource| {
        let kind = &resource.kind;
        *kind.group == *group_resource.group && *kind.plural == *group_resource.resource
    };
    match discovered.preferred().find(is_it) {
        Some(resource) => ResourceLookup::Served(resource.clone()),
        None if is_new(migration, now) => ResourceLookup::NotYet(
            "resource does not exist in our rest mapper, requeuing to attempt again",
        ),
        None => ResourceLookup::NotServed("resource does not exist in discovery".to_owned()),
    }
}

/// Progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of objects that are not migrated yet.
    pub(super) remaining: usize,
    /// Number of all objects of the resource.
    pub(super) total: usize,
}

/// Change of a migration's status.
#[derive(Debug)]
pub(super) enum StatusChange {
    /// The migration starts.
    Started,
    /// The migration was interrupted and continues later.
    Interrupted { progress: Progress, error: String },
    /// The migration succeeded.
    Succeeded(Progress),
    /// The resource cannot be migrated, for this reason.
    Unsupported(String),
    /// The migration failed. `progress` is `None` if the objects were not listed.
    Failed { progress: Option<Progress>, error: String },
    /// The migration has ended, so the condition `Running` becomes False.
    Ended,
    /// Objects up to this resource version must be migrated.
    VersionRecorded(String),
}

/// Returns the migration with the changed status, or `None` if nothing changes.
pub(super) fn with_change(
    migration: &Migration,
    change: StatusChange,
    now: Timestamp,
) -> Option<StorageVersionMigration> {
    let mut changed = wire::copy_for_update(&**migration);
    let generation = changed.metadata.generation;
    let status = changed.status.get_or_insert_default();
    if let StatusChange::VersionRecorded(version) = change {
        status.resource_version = Some(version);
        return Some(changed);
    }
    let conditions = status.conditions.get_or_insert_default();
    let mut set = |type_: &str, status: &str, reason: &str, message: String, generation| {
        set_condition(
            conditions,
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                observed_generation: generation,
                last_transition_time: Time(now),
            },
        )
    };
    let running = "MigrationRunning";
    let failed = "StorageVersionMigrationFailed";
    let is_changed = match change {
        StatusChange::Started => set(RUNNING, "True", running, running_message(None, ""), None),
        StatusChange::Interrupted { progress, error } => {
            set(RUNNING, "True", running, running_message(Some(progress), &error), None)
        }
        StatusChange::Succeeded(progress) => {
            let message = running_message(Some(progress), "");
            let is_running_changed = set(RUNNING, "True", running, message, None);
            let message = "Migration completed".to_owned();
            set(SUCCEEDED, "True", "StorageVersionMigrationSucceeded", message, None)
                || is_running_changed
        }
        StatusChange::Unsupported(message) => set(FAILED, "True", failed, message, None),
        StatusChange::Failed { progress: None, error } => {
            let message = format!("migration encountered unhandled error: {error}");
            set(FAILED, "True", failed, message, None)
        }
        StatusChange::Failed { progress: Some(progress), error } => {
            let message = running_message(Some(progress), "");
            let is_running_changed = set(RUNNING, "True", running, message, None);
            let Progress { remaining, total } = progress;
            let message = format!(
                "{remaining}/{total} not yet migrated. migration encountered unhandled error: {error}"
            );
            set(FAILED, "True", failed, message, None) || is_running_changed
        }
        StatusChange::Ended => set(
            RUNNING,
            "False",
            "MigrationCompleted",
            "Migration completed".to_owned(),
            generation,
        ),
        StatusChange::VersionRecorded(_) => false,
    };
    is_changed.then_some(changed)
}

/// Sets a condition. Its time changes only with its status. Returns whether anything changed.
fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        None => {
            conditions.push(new);
            true
        }
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            let changed = *old != new;
            *old = new;
            changed
        }
    }
}

/// Returns the message of the condition `Running`. `error` is empty without an error.
fn running_message(progress: Option<Progress>, error: &str) -> String {
    let mut message = "The migration is running".to_owned();
    match progress {
        Some(Progress { total: 0, .. }) | None => {}
        Some(Progress { remaining: 0, total }) => {
            message += &format!(", {total} objects verified migrated");
        }
        Some(Progress { remaining, total }) => {
            message += &format!(", {remaining}/{total} objects not yet migrated");
        }
    }
    if !error.is_empty() {
        message += &format!("; transient error: {error}");
    }
    message
}

/// Describes a migration.
pub(super) fn describe(migration: &Migration) -> Description {
    let mut description = Description::new();
    for condition in conditions(migration) {
        description.fact(&condition.type_, format!("{}: {}", condition.status, condition.message));
    }
    description.fact("up to version", version(migration));
    description
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, object};
    use evenkeel_api::time::seconds;
    use evenkeel_runtime::cache::Full;
    use serde_json::{Value, json};

    fn migration(name: &str, age: i64, conditions: &[(&str, &str)]) -> Arc<Migration> {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| json!({"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": seconds(T0)}))
            .collect();
        Arc::new(object(&json!({
            "metadata": {"name": name, "creationTimestamp": seconds(at(-age))},
            "spec": {"resource": {"group": "g", "resource": "r"}}, "status": {"conditions": conditions},
        })))
    }

    /// Returns the names of the ended migrations and of the next one.
    fn ended_and_next(migrations: &[Arc<Migration>]) -> (Vec<String>, Option<String>) {
        let schedule = schedule(migrations.to_vec());
        let ended = schedule.ended.iter().map(|migration| name(migration).to_owned());
        (ended.collect(), schedule.next.map(|migration| name(&migration).to_owned()))
    }

    #[test]
    fn oldest_migration_runs_next_and_alone() {
        let waiting = |name: &str, age| migration(name, age, &[]);
        assert_eq!(
            ended_and_next(&[waiting("b", 5), waiting("c", 9), waiting("a", 5)]).1.as_deref(),
            Some("c")
        );
        assert_eq!(ended_and_next(&[waiting("b", 5), waiting("a", 5)]).1.as_deref(), Some("a"));
        let busy = migration("busy", 1, &[(RUNNING, "True")]);
        assert_eq!(ended_and_next(&[waiting("b", 5), busy]), (vec![], None));
        let ended = migration("ended", 7, &[(RUNNING, "True"), (SUCCEEDED, "True")]);
        assert_eq!(
            ended_and_next(&[waiting("b", 5), ended]),
            (vec!["ended".to_owned()], Some("b".to_owned()))
        );
        let finished = migration("over", 7, &[(RUNNING, "False"), (FAILED, "True")]);
        assert_eq!(ended_and_next(&[finished]), (vec![], None));
    }

    fn described_conditions(
        migration: Option<StorageVersionMigration>,
    ) -> Vec<(String, String, String)> {
        let migration = migration.expect("a change");
        let message =
            |one: &Condition| (one.type_.clone(), one.status.clone(), one.message.clone());
        conditions(&migration).iter().map(message).collect()
    }

    #[test]
    fn each_status_change_sets_its_conditions() {
        let pending = migration("m", 0, &[]);
        let begun = with_change(&pending, StatusChange::Started, T0);
        let text = |text: &str| text.to_owned();
        assert_eq!(
            described_conditions(begun.clone()),
            [(text(RUNNING), text("True"), text("The migration is running"))]
        );
        let begun = Full::new(begun.unwrap());
        assert_eq!(with_change(&begun, StatusChange::Started, at(9)), None);
        let progress = Progress { remaining: 2, total: 3 };
        let interrupted = described_conditions(with_change(
            &begun,
            StatusChange::Interrupted { progress, error: text("too busy") },
            T0,
        ));
        assert_eq!(
            interrupted[0].2,
            "The migration is running, 2/3 objects not yet migrated; transient error: too busy"
        );
        let done = with_change(
            &begun,
            StatusChange::Succeeded(Progress { remaining: 0, total: 3 }),
            at(9),
        );
        let message = described_conditions(done.clone());
        assert_eq!(message[0].2, "The migration is running, 3 objects verified migrated");
        assert_eq!((&*message[1].0, &*message[1].2), (SUCCEEDED, "Migration completed"));
        let done = Full::new(done.unwrap());
        assert_eq!(conditions(&done)[0].last_transition_time.0, T0);
        let finished = described_conditions(with_change(&done, StatusChange::Ended, at(10)));
        assert_eq!((&*finished[0].1, &*finished[0].2), ("False", "Migration completed"));
        let failed = described_conditions(with_change(
            &begun,
            StatusChange::Failed { progress: Some(progress), error: text("no") },
            T0,
        ));
        assert_eq!(failed[1].2, "2/3 not yet migrated. migration encountered unhandled error: no");
    }
}
