//! Server-side apply: merges the applied fields, removes fields that are no longer applied, and finds conflicts.
//!
//! Upstream: `sigs.k8s.io/structured-merge-diff/v6/merge`, `structuredMergeManager`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compare::{compare, equal};
use super::field_set::FieldSet;
use super::managers::{self, ManagerEntry, ManagerId, Managers};
use super::merge::merge;
use super::remove::{ensure_named_fields_are_members, remove};
use super::to_field_set::{to_field_set, validation_errors};
use super::{Write, last_applied, path_element, reset_fields, update};
use crate::decode::decode_as;
use crate::decode::json::Json;
use crate::decode::typed::{self, DecoderKind};
use crate::group_version::GroupVersionKind;
use crate::schema::Schema;
use crate::status::{Cause, StatusError};

/// Conflicting fields that other managers own, by manager.
///
/// Upstream: `Conflicts`.
pub(super) type Conflicts = BTreeMap<ManagerId, FieldSet>;

/// Reason why an apply failed.
pub(super) enum ApplyFailure {
    Conflicts(Conflicts),
    Refused(StatusError),
}

/// Applies `patch` to `live` (`None` creates the object). Returns the merged object with its managed fields; its
/// values are not yet canonical.
pub(crate) fn apply(
    schema: &Schema,
    kind: &GroupVersionKind,
    live: Option<&Value>,
    patch: &Value,
    write: &Write<'_>,
    force: bool,
) -> Result<Value, StatusError> {
    check(schema, kind, patch)?;
    let mut start = live.cloned().unwrap_or_else(|| typed::zero_value(schema.type_ref()));
    let decode = |e| StatusError::plain_internal(format!("failed to decode managed fields: {e}"));
    let mut managers = Managers::decode(&start).map_err(decode)?;
    managers::remove_managed_fields(&mut start);
    if managers.entries.is_empty() {
        let before = Write { manager: "before-first-apply", ..*write };
        update::take_ownership(
            schema,
            &typed::zero_value(schema.type_ref()),
            &start,
            &mut managers,
            &before,
        );
    }
    let attempt = Attempt { schema, kind, live: &start, patch, write };
    let (mut object, managers) = match attempt.apply(managers.clone(), force) {
        Ok(applied) => applied,
        Err(ApplyFailure::Refused(error)) => return Err(error),
        Err(ApplyFailure::Conflicts(conflicts)) => {
            let unresolved = if write.manager == "kubectl" {
                last_applied::conflicts_difference(schema, &start, &conflicts)
            } else {
                conflicts
            };
            if !unresolved.is_empty() {
                return Err(conflict_error(&unresolved));
            }
            match attempt.apply(managers, true) {
                Ok(applied) => applied,
                Err(ApplyFailure::Refused(error)) => return Err(error),
                Err(ApplyFailure::Conflicts(conflicts)) => return Err(conflict_error(&conflicts)),
            }
        }
    };
    if write.manager == "kubectl" {
        last_applied::update_annotation(&mut object, patch);
    }
    managers.encode(&mut object);
    Ok(object)
}

/// Checks the kind of the applied object, and that it has no managed fields.
fn check(schema: &Schema, kind: &GroupVersionKind, patch: &Value) -> Result<(), StatusError> {
    let text = |name: &str| patch.get(name).and_then(Value::as_str).unwrap_or("");
    if text("apiVersion") != kind.api_version() || text("kind") != &*kind.kind {
        let (group, version) =
            text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        return Err(StatusError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={}",
            text("kind")
        )));
    }
    // Upstream ignores a value of another type here; decoding by the schema rejects it later.
    let Some(Value::Array(entries)) = patch.pointer("/metadata/managedFields") else {
        return Ok(());
    };
    let metadata = json!({"metadata": {"managedFields": entries}});
    let (_, errors) = decode_as(DecoderKind::Unstructured, &Json::from(&metadata), schema);
    if entries.iter().all(Value::is_object) && errors.error.is_none() {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// Inputs of one apply. If kubectl's last-applied configuration resolves the conflicts, the apply is repeated with
/// `force`.
struct Attempt<'a> {
    schema: &'a Schema,
    kind: &'a GroupVersionKind,
    live: &'a Value,
    patch: &'a Value,
    write: &'a Write<'a>,
}

impl Attempt<'_> {
    fn apply(&self, managers: Managers, force: bool) -> Result<(Value, Managers), ApplyFailure> {
        let (type_ref, mut managers) = (self.schema.type_ref(), managers);
        self.validate_patch()?;
        let merged = merge(self.live, self.patch, type_ref);
        let reset = reset_fields::reset_fields(self.schema, self.write.subresource);
        let applied = to_field_set(self.patch, type_ref).recursive_difference(&reset);
        let id = ManagerId {
            applied: true,
            manager: self.write.manager.to_owned(),
            api_version: String::new(),
            subresource: self.write.subresource.to_owned(),
        };
        let before = managers.entries.remove(&id);
        let entry = ManagerEntry {
            api_version: self.schema.api_version(),
            fields: applied,
            time: before.as_ref().map(|e| e.time.clone()).unwrap_or_default(),
        };
        managers.entries.insert(id.clone(), entry);
        let object = match before {
            Some(before) if !before.fields.is_empty() => {
                self.prune(&merged, &managers, &before.fields)
            }
            _ => merged,
        };
        let changes = compare(self.live, &object, type_ref).exclude_fields(&reset);
        if !force {
            let conflicts = conflicts(&managers, &id, &changes.added_or_modified());
            if !conflicts.is_empty() {
                return Err(ApplyFailure::Conflicts(conflicts));
            }
        }
        update::remove_from_other_managers(self.schema, &mut managers, &changes, Some(&id));
        let changed = !equal(self.live, &object);
        if let Some(entry) = managers.entries.get_mut(&id) {
            entry.fields = entry.fields.difference(reset_fields::stripped_fields());
            if changed {
                entry.time = managers::time(self.write.now);
            }
            if entry.fields.is_empty() {
                managers.entries.remove(&id);
            }
        }
        Ok((if changed { object } else { self.live.clone() }, managers))
    }

    fn validate_patch(&self) -> Result<(), ApplyFailure> {
        let validation_errors = validation_errors(self.patch, self.schema.type_ref());
        let errors = match validation_errors.as_slice() {
            [] => return Ok(()),
            [error] => error.clone(),
            errors => format!("errors:\n  {}", errors.join("\n  ")),
        };
        let name = |name: &str| {
            self.patch.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or("")
        };
        let (namespace, name, kind) = (name("namespace"), name("name"), self.kind);
        let text =
            format!("failed to create typed patch object ({namespace}/{name}; {kind}): {errors}");
        Err(ApplyFailure::Refused(StatusError::plain_internal(text)))
    }

    /// Removes the fields that this manager applied before and no longer applies, unless another manager owns them.
    ///
    /// Upstream: `prune`, `addBackOwnedItems`, `addBackDanglingItems`.
    fn prune(&self, merged: &Value, managers: &Managers, applied_before: &FieldSet) -> Value {
        let type_ref = self.schema.type_ref();
        let with_named_fields = |set: &FieldSet| ensure_named_fields_are_members(set, type_ref);
        let fields_of = |value: &Value| with_named_fields(&to_field_set(value, type_ref));
        let applied_before = with_named_fields(applied_before);
        let all_fields = fields_of(merged);
        let mut owned = FieldSet::default();
        for entry in managers.entries.values() {
            owned = owned.union(&entry.fields);
        }
        // First removes all fields that this manager applied before, then adds back those that a manager owns.
        let pruned = remove(merged, &applied_before, type_ref);
        let kept = fields_of(&pruned).union(&with_named_fields(&owned));
        let pruned = remove(merged, &all_fields.difference(&kept), type_ref);
        // Adds back fields that were removed only with a parent, and that this manager never applied.
        let removed = all_fields.difference(&fields_of(&pruned));
        remove(merged, &removed.intersection(&applied_before), type_ref)
    }
}

/// Returns the written fields that other managers than the writer own.
fn conflicts(managers: &Managers, writer: &ManagerId, written: &FieldSet) -> Conflicts {
    let others = managers.entries.iter().filter(|(id, _)| *id != writer);
    let conflicts = others.map(|(id, entry)| (id.clone(), entry.fields.intersection(written)));
    conflicts.filter(|(_, fields)| !fields.is_empty()).collect()
}

/// Returns the 409 with one cause per conflicting field.
///
/// Upstream: `NewConflictError`.
fn conflict_error(conflicts: &Conflicts) -> StatusError {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    // Upstream sorts managers by their JSON, which begins with name and operation.
    let mut conflicts: Vec<_> = conflicts.iter().collect();
    conflicts.sort_by_key(|(id, _)| {
        let subresource = (id.subresource.is_empty(), &id.subresource);
        (&id.manager, !id.applied, &id.api_version, subresource)
    });
    for (id, fields) in conflicts {
        let manager = id.print();
        lines.push(format!("conflicts with {manager}:"));
        fields.for_each(&mut |path| {
            let field = path_element::print(path);
            lines.push(format!("- {field}"));
            causes.push(Cause {
                reason: "FieldManagerConflict".into(),
                message: format!("conflict with {manager}"),
                field,
            });
        });
    }
    let message = match causes.as_slice() {
        [cause] => format!("Apply failed with 1 conflict: {}: {}", cause.message, cause.field),
        causes => format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n")),
    };
    StatusError::apply_conflict(message, causes)
}
