//! Ownership after a write that is no apply: who changed a field owns it, and alone.

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::entries::{self, Entry, ManagerId, Managers};
use super::{Write, ignored};
use crate::decode::typed;
use crate::schema::Schema;

/// More updaters than this are merged, the oldest first.
const MAX_UPDATERS: usize = 10;
/// The manager of merged updates.
const ANCIENT: &str = "ancient-changes";

/// Sets the managers of `new` after a write by `write` over `old` (none: it was made).
pub(crate) fn track(schema: &Schema, old: Option<&Value>, new: &mut Value, write: &Write<'_>) {
    let mut managers = believed(old, new, write.subresource);
    entries::forget(new);
    // Managers of an object that had been told to forget them stay forgotten until an apply.
    if managers.entries.is_empty() && old.is_some() {
        return;
    }
    let empty;
    let old = match old {
        Some(old) => old,
        None => {
            empty = typed::zero(schema.at());
            &empty
        }
    };
    own_changes(schema, old, new, &mut managers, write);
    managers.write(new);
}

/// The managers to go on from: the client's own list when it sent a good one, and the stored list otherwise.
fn believed(old: Option<&Value>, new: &Value, subresource: &str) -> Managers {
    let stored = || old.and_then(|old| Managers::of(old).ok()).unwrap_or_default();
    if !subresource.is_empty() {
        return stored();
    }
    if entries::is_reset(new) {
        return Managers::default();
    }
    match Managers::of(new) {
        Ok(given) if !given.entries.is_empty() => given,
        _ => stored(),
    }
}

/// Gives what changed between two objects to the writer, and takes it from everybody else.
pub(super) fn own_changes(
    schema: &Schema,
    old: &Value,
    new: &Value,
    managers: &mut Managers,
    write: &Write<'_>,
) {
    let reset = ignored::reset(schema, write.subresource);
    let changes = compare(old, new, schema.at()).outside(&reset);
    take(schema, managers, &changes, None);
    let own = changes.written().difference(ignored::system());
    if !own.is_empty() {
        let api_version = schema.api_version();
        let id = ManagerId {
            applied: false,
            manager: write.manager.to_owned(),
            api_version: api_version.clone(),
            subresource: write.subresource.to_owned(),
        };
        let before = managers.entries.remove(&id).map(|e| e.fields).unwrap_or_default();
        let entry =
            Entry { api_version, fields: own.union(&before), time: entries::time(write.now) };
        managers.entries.insert(id, entry);
    }
    merge_oldest(managers);
}

/// Takes changed fields from all managers but one; who is left with nothing is gone, and so is who managed a version
/// that is no more.
pub(super) fn take(
    schema: &Schema,
    managers: &mut Managers,
    changes: &Comparison,
    but: Option<&ManagerId>,
) {
    let gone = changes.written().union(&changes.removed);
    managers.entries.retain(|id, entry| {
        if Some(id) == but {
            return true;
        }
        if !is_version(schema, &entry.api_version) {
            return false;
        }
        entry.fields = entry.fields.difference(&gone);
        !entry.fields.is_empty()
    });
}

/// Whether the kind exists at a version. Fields are compared under their names, which the versions of a kind share.
fn is_version(schema: &Schema, api_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let same = group == schema.group() && version == schema.version();
    same || (group == schema.group()
        && (schema.is_custom() || Schema::builtin(group, version, schema.kind()).is_some()))
}

/// Keeps the number of updaters within bounds: the oldest of each version become one.
fn merge_oldest(managers: &mut Managers) {
    let mut updaters: Vec<ManagerId> =
        managers.entries.keys().filter(|id| !id.applied).cloned().collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATERS {
        return;
    }
    updaters.sort_by_key(|id| (managers.entries.get(id).map(|e| e.time.clone()), id.clone()));
    let mut first: Vec<ManagerId> = Vec::new();
    for id in updaters {
        if count <= MAX_UPDATERS {
            break;
        }
        let Some(oldest) = first.iter().find(|f| f.api_version == id.api_version).cloned() else {
            first.push(id);
            continue;
        };
        let bucket =
            ManagerId { manager: ANCIENT.to_owned(), subresource: String::new(), ..id.clone() };
        let Some(newer) = managers.entries.remove(&id) else { continue };
        let before = managers.entries.remove(&bucket).or_else(|| managers.entries.remove(&oldest));
        let fields = before.map(|e| e.fields).unwrap_or_default().union(&newer.fields);
        managers.entries.insert(bucket, Entry { fields, ..newer });
        count -= 1;
    }
}
