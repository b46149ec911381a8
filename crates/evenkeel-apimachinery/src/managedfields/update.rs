//! Managed fields after an update: only the writer owns the fields that it changed.

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::managers::{self, ManagerEntry, ManagerId, Managers};
use super::to_field_set::has_items_without_key;
use super::{Write, reset_fields};
use crate::decode::typed;
use crate::schema::Schema;

/// Maximum number of updaters; the oldest ones beyond it are merged.
const MAX_UPDATE_MANAGERS: usize = 10;
/// Manager name of merged updaters.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// Sets the managed fields of `new` after `write` updated `old` (`None`: created the object). If `sent_typed` is false,
/// the managers do not change.
///
/// Upstream: `Update` of `FieldManager`; `structuredMergeManager.Update`, which keeps the managers if it cannot convert
/// the object.
pub(crate) fn update_managed_fields(
    schema: &Schema,
    old: Option<&Value>,
    new: &mut Value,
    write: &Write<'_>,
    sent_typed: bool,
) {
    let mut managers = managers_before(old, new, write.subresource);
    managers::remove_managed_fields(new);
    // After a client has reset the managed fields, they remain absent until an apply.
    if managers.entries.is_empty() && old.is_some() {
        return;
    }
    let empty;
    let old = match old {
        Some(old) => old,
        None => {
            empty = typed::zero_value(schema.type_ref());
            &empty
        }
    };
    // Values of a wrong type and items without their keys have no path, so that they have no owner. The managers do not
    // change.
    let has_paths = |object| !has_items_without_key(object, schema.type_ref());
    if sent_typed && has_paths(old) && has_paths(new) {
        take_ownership(schema, old, new, &mut managers, write);
    }
    managers.encode(new);
}

/// Returns the managers before the write: the client's list if it is valid and not empty, else the stored list.
///
/// Upstream: `decodeLiveOrNew`.
fn managers_before(old: Option<&Value>, new: &Value, subresource: &str) -> Managers {
    let stored = || old.and_then(|old| Managers::decode(old).ok()).unwrap_or_default();
    if !subresource.is_empty() {
        return stored();
    }
    if managers::is_reset(new) {
        return Managers::default();
    }
    match Managers::decode(new) {
        Ok(sent) if !sent.entries.is_empty() => sent,
        _ => stored(),
    }
}

/// Makes the writer the owner of the fields that differ between two objects, and removes them from all other managers.
///
/// Upstream: `Updater`, its `Update`.
pub(super) fn take_ownership(
    schema: &Schema,
    old: &Value,
    new: &Value,
    managers: &mut Managers,
    write: &Write<'_>,
) {
    let reset = reset_fields::reset_fields(schema, write.subresource);
    let changes = compare(old, new, schema.type_ref()).exclude_fields(&reset);
    remove_from_other_managers(schema, managers, &changes, None);
    let mut owned_by_writer = changes.added_or_modified();
    owned_by_writer.subtract(reset_fields::stripped_fields());
    if !owned_by_writer.is_empty() {
        let api_version = schema.api_version();
        let id = ManagerId {
            applied: false,
            manager: write.manager.to_owned(),
            api_version: api_version.clone(),
            subresource: write.subresource.to_owned(),
        };
        let mut fields = managers.entries.remove(&id).map(|e| e.fields).unwrap_or_default();
        fields.add(&owned_by_writer);
        let entry = ManagerEntry { api_version, fields, time: managers::time(write.now) };
        managers.entries.insert(id, entry);
    }
    cap_update_managers(managers);
}

/// Removes changed fields from all managers except one. Drops managers that own no field or whose version no longer
/// exists.
pub(super) fn remove_from_other_managers(
    schema: &Schema,
    managers: &mut Managers,
    changes: &Comparison,
    except: Option<&ManagerId>,
) {
    let changed_fields = changes.added_or_modified().union(&changes.removed);
    managers.entries.retain(|id, entry| {
        if Some(id) == except {
            return true;
        }
        if !version_exists(schema, &entry.api_version) {
            return false;
        }
        entry.fields.subtract(&changed_fields);
        !entry.fields.is_empty()
    });
}

/// Returns whether the kind exists at a version. Fields are compared without conversion, because all versions of a kind
/// have the same field names.
fn version_exists(schema: &Schema, api_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let same = group == schema.group() && version == schema.version();
    // Event is the only kind that two groups serve.
    let is_event = schema.kind() == "Event" && ["", "events.k8s.io"].contains(&group);
    same || is_event
        || (group == schema.group()
            && (schema.is_custom() || Schema::builtin(group, version, schema.kind()).is_some()))
}

/// Limits the number of updaters: merges the oldest ones of each version into one.
///
/// Upstream: `capUpdateManagers`.
fn cap_update_managers(managers: &mut Managers) {
    let mut updaters: Vec<ManagerId> =
        managers.entries.keys().filter(|id| !id.applied).cloned().collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATE_MANAGERS {
        return;
    }
    updaters.sort_by_key(|id| (managers.entries.get(id).map(|e| e.time.clone()), id.clone()));
    // The oldest updater of each version. It is merged only if there is a second one.
    let mut oldest_of_version: Vec<ManagerId> = Vec::new();
    for id in updaters {
        if count <= MAX_UPDATE_MANAGERS {
            break;
        }
        let oldest = oldest_of_version.iter().find(|oldest| oldest.api_version == id.api_version);
        let Some(oldest) = oldest.cloned() else {
            oldest_of_version.push(id);
            continue;
        };
        let bucket = ManagerId {
            manager: ANCIENT_CHANGES.to_owned(),
            subresource: String::new(),
            ..id.clone()
        };
        let Some(newer) = managers.entries.remove(&id) else { continue };
        let before = managers.entries.remove(&bucket).or_else(|| managers.entries.remove(&oldest));
        let fields = before.map(|e| e.fields).unwrap_or_default().union(&newer.fields);
        managers.entries.insert(bucket, ManagerEntry { fields, ..newer });
        count -= 1;
    }
}
