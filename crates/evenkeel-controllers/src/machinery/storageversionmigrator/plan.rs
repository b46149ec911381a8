//! Chooses the migration to run, and sets the conditions of migrations.

use super::{Migration, name};
use evenkeel_api::{View as _, time::Timestamp};
use evenkeel_runtime::{
    discovery::{Resource, ServerResources},
    introspect::Description,
};
use k8s_openapi::{
    api::storagemigration::v1::StorageVersionMigration,
    apimachinery::pkg::apis::meta::v1::{Condition, GroupResource, Time},
};
use std::sync::Arc;

const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Decision about the migrations of one resource.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Finished migrations with the condition `Running`.
    pub(super) ended: Vec<Arc<Migration>>,
    /// The migration to start.
    pub(super) next: Option<Arc<Migration>>,
}

/// Returns the oldest migration that has not started, unless one runs. A finished migration that still has the condition
/// `Running` does not count as running for others, as upstream.
pub(super) fn schedule(migrations: Vec<Arc<Migration>>) -> Schedule {
    let (running, mut waiting): (Vec<_>, Vec<_>) =
        migrations.into_iter().partition(|one| is_running(one));
    let (ended, busy): (Vec<_>, Vec<_>) = running.into_iter().partition(|one| has_ended(one));
    waiting.retain(|one| !has_ended(one));
    let age = |one: &Arc<Migration>| (one.meta().creation, name(one).to_owned());
    let next = if busy.is_empty() { waiting.into_iter().min_by_key(age) } else { None };
    Schedule { ended, next }
}

fn conditions(migration: &StorageVersionMigration) -> &[Condition] {
    let status = migration.status.as_ref();
    status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn is_true(migration: &Migration, type_: &str) -> bool {
    conditions(migration).iter().any(|one| one.type_ == type_ && one.status == "True")
}

/// Whether the migration has the condition `Running`.
fn is_running(migration: &Migration) -> bool {
    is_true(migration, RUNNING)
}

/// Whether the migration succeeded or failed.
fn has_ended(migration: &Migration) -> bool {
    is_true(migration, SUCCEEDED) || is_true(migration, FAILED)
}

/// Whether the migration succeeded.
pub(super) fn has_succeeded(migration: &Migration) -> bool {
    is_true(migration, SUCCEEDED)
}

/// Returns the resource version up to which objects are migrated; empty until it is recorded.
pub(super) fn version(migration: &Migration) -> &str {
    let status = migration.status.as_ref();
    status.and_then(|status| status.resource_version.as_deref()).unwrap_or_default()
}

/// Whether the migration is so new that discovery may lack its resource.
fn is_new(migration: &Migration, now: Timestamp) -> bool {
    let made = migration.meta().creation;
    made.is_some_and(|made| now.duration_since(made).as_secs() < 60)
}

/// Whether the migration is running and not finished.
pub(super) fn is_open(migration: &Migration) -> bool {
    is_running(migration) && !has_ended(migration)
}

/// Returns the resource whose objects are migrated.
pub(super) fn resource(migration: &Migration) -> Option<&GroupResource> {
    migration.spec.as_ref().map(|spec| &spec.resource)
}

/// Result of the discovery of a migration's resource.
pub(super) enum Found {
    /// The server serves the resource.
    Is(Resource),
    /// The resource may be too new for discovery. The text is the reason of the retry.
    NotYet(&'static str),
    /// The server does not serve the resource. The text is the message of the status.
    Never(String),
}

/// Finds a migration's resource.
pub(super) fn find(
    all: &ServerResources,
    group_resource: &GroupResource,
    migration: &Migration,
    now: Timestamp,
) -> Found {
    let is_it = |one: &&Resource| {
        *one.kind.group == *group_resource.group && *one.kind.plural == *group_resource.resource
    };
    match all.preferred().find(is_it) {
        Some(found) => Found::Is(found.clone()),
        None if is_new(migration, now) => {
            Found::NotYet("resource does not exist in our rest mapper, requeuing to attempt again")
        }
        None => Found::Never("resource does not exist in discovery".to_owned()),
    }
}

/// Progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of objects that are not migrated yet.
    pub(super) remaining: usize,
    /// Number of all objects.
    pub(super) all: usize,
}

/// Change of a migration's status.
#[derive(Debug)]
pub(super) enum StatusChange {
    /// The migration starts.
    Started,
    /// The migration was interrupted and continues later.
    Interrupted(Progress, String),
    /// The migration succeeded.
    Succeeded(Progress),
    /// The resource cannot be migrated.
    Unsupported(String),
    /// The migration failed.
    Failed(Option<Progress>, String),
    /// The migration has finished: the condition `Running` becomes False.
    Finished,
    /// The resource version up to which objects are migrated.
    Version(String),
}

/// Returns the migration with the changed status; `None` if nothing changes.
pub(super) fn with(
    migration: &Migration,
    news: StatusChange,
    now: Timestamp,
) -> Option<StorageVersionMigration> {
    let mut changed: StorageVersionMigration = (**migration).clone();
    changed.metadata.managed_fields = None;
    let generation = changed.metadata.generation;
    let status = changed.status.get_or_insert_default();
    if let StatusChange::Version(version) = news {
        status.resource_version = Some(version);
        return Some(changed);
    }
    let all = status.conditions.get_or_insert_default();
    let mut set = |type_: &str, status: &str, reason: &str, message: String, generation| {
        put(
            all,
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
    let runs = |progress: Option<Progress>, error: &str| running_words(progress, error);
    let (running, reason) = ("MigrationRunning", "StorageVersionMigrationFailed");
    let is_new = match news {
        StatusChange::Started => set(RUNNING, "True", running, runs(None, ""), None),
        StatusChange::Interrupted(progress, error) => {
            set(RUNNING, "True", running, runs(Some(progress), &error), None)
        }
        StatusChange::Succeeded(progress) => {
            let said = set(RUNNING, "True", running, runs(Some(progress), ""), None);
            let words = "Migration completed".to_owned();
            set(SUCCEEDED, "True", "StorageVersionMigrationSucceeded", words, None) || said
        }
        StatusChange::Unsupported(words) => set(FAILED, "True", reason, words, None),
        StatusChange::Failed(None, error) => {
            let words = format!("migration encountered unhandled error: {error}");
            set(FAILED, "True", reason, words, None)
        }
        StatusChange::Failed(Some(progress), error) => {
            let said = set(RUNNING, "True", running, runs(Some(progress), ""), None);
            let Progress { remaining, all } = progress;
            let words = format!(
                "{remaining}/{all} not yet migrated. migration encountered unhandled error: {error}"
            );
            set(FAILED, "True", reason, words, None) || said
        }
        StatusChange::Finished => set(
            RUNNING,
            "False",
            "MigrationCompleted",
            "Migration completed".to_owned(),
            generation,
        ),
        StatusChange::Version(_) => false,
    };
    is_new.then_some(changed)
}

/// Sets a condition; its time changes only with its status. Returns whether anything changed.
fn put(all: &mut Vec<Condition>, mut new: Condition) -> bool {
    match all.iter_mut().find(|one| one.type_ == new.type_) {
        None => {
            all.push(new);
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

fn running_words(progress: Option<Progress>, error: &str) -> String {
    let mut words = "The migration is running".to_owned();
    match progress {
        Some(Progress { all: 0, .. }) | None => {}
        Some(Progress { remaining: 0, all }) => {
            words += &format!(", {all} objects verified migrated");
        }
        Some(Progress { remaining, all }) => {
            words += &format!(", {remaining}/{all} objects not yet migrated");
        }
    }
    if !error.is_empty() {
        words += &format!("; transient error: {error}");
    }
    words
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

    fn description(migrations: &[Arc<Migration>]) -> (Vec<String>, Option<String>) {
        let schedule = schedule(migrations.to_vec());
        let names = schedule.ended.iter().map(|one| name(one).to_owned());
        (names.collect(), schedule.next.map(|one| name(&one).to_owned()))
    }

    #[test]
    fn oldest_migration_runs_next_and_alone() {
        let waiting = |name: &str, age| migration(name, age, &[]);
        assert_eq!(
            description(&[waiting("b", 5), waiting("c", 9), waiting("a", 5)]).1.as_deref(),
            Some("c")
        );
        assert_eq!(description(&[waiting("b", 5), waiting("a", 5)]).1.as_deref(), Some("a"));
        let busy = migration("busy", 1, &[(RUNNING, "True")]);
        assert_eq!(description(&[waiting("b", 5), busy]), (vec![], None));
        let ended = migration("ended", 7, &[(RUNNING, "True"), (SUCCEEDED, "True")]);
        assert_eq!(
            description(&[waiting("b", 5), ended]),
            (vec!["ended".to_owned()], Some("b".to_owned()))
        );
        let over = migration("over", 7, &[(RUNNING, "False"), (FAILED, "True")]);
        assert_eq!(description(&[over]), (vec![], None));
    }

    fn described_conditions(
        migration: Option<StorageVersionMigration>,
    ) -> Vec<(String, String, String)> {
        let migration = migration.expect("a change");
        let words = |one: &Condition| (one.type_.clone(), one.status.clone(), one.message.clone());
        conditions(&migration).iter().map(words).collect()
    }

    #[test]
    fn conditions_of_each_status_change() {
        let fresh = migration("m", 0, &[]);
        let begun = with(&fresh, StatusChange::Started, T0);
        let text = |text: &str| text.to_owned();
        assert_eq!(
            described_conditions(begun.clone()),
            [(text(RUNNING), text("True"), text("The migration is running"))]
        );
        let begun = Full::new(begun.unwrap());
        assert_eq!(with(&begun, StatusChange::Started, at(9)), None);
        let progress = Progress { remaining: 2, all: 3 };
        let late = described_conditions(with(
            &begun,
            StatusChange::Interrupted(progress, text("too busy")),
            T0,
        ));
        assert_eq!(
            late[0].2,
            "The migration is running, 2/3 objects not yet migrated; transient error: too busy"
        );
        let done = with(&begun, StatusChange::Succeeded(Progress { remaining: 0, all: 3 }), at(9));
        let words = described_conditions(done.clone());
        assert_eq!(words[0].2, "The migration is running, 3 objects verified migrated");
        assert_eq!((&*words[1].0, &*words[1].2), (SUCCEEDED, "Migration completed"));
        let done = Full::new(done.unwrap());
        assert_eq!(conditions(&done)[0].last_transition_time.0, T0);
        let over = described_conditions(with(&done, StatusChange::Finished, at(10)));
        assert_eq!((&*over[0].1, &*over[0].2), ("False", "Migration completed"));
        let failed = described_conditions(with(
            &begun,
            StatusChange::Failed(Some(progress), text("no")),
            T0,
        ));
        assert_eq!(failed[1].2, "2/3 not yet migrated. migration encountered unhandled error: no");
    }
}
