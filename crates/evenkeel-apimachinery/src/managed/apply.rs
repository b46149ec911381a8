//! Server-side apply: the applied fields merged in, those no longer applied taken out, conflicts found.

use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::{compare, equal};
use super::entries::{self, Entry, ManagerId, Managers};
use super::fields_of::{fields_of, problems};
use super::merge::merge;
use super::remove::{remove, with_named};
use super::set::FieldSet;
use super::{Write, element, ignored, last_applied, update};
use crate::decode::typed;
use crate::group_version::GroupVersionKind;
use crate::schema::Schema;
use crate::status::{Cause, StatusError};

/// Fields that others own, by owner.
pub(super) type Conflicts = BTreeMap<ManagerId, FieldSet>;

/// Why an apply did not go through.
pub(super) enum Stopped {
    Conflicts(Conflicts),
    Refused(StatusError),
}

/// Applies `patch` to `live` (none: the object is made) and returns the object with its managers; the values are not
/// canonical yet.
pub(crate) fn apply(
    schema: &Schema,
    kind: &GroupVersionKind,
    live: Option<&Value>,
    patch: &Value,
    write: &Write<'_>,
    force: bool,
) -> Result<Value, StatusError> {
    check(kind, patch)?;
    let mut start = live.cloned().unwrap_or_else(|| typed::zero(schema.at()));
    let decode = |e| StatusError::plain_internal(format!("failed to decode managed fields: {e}"));
    let mut managers = Managers::of(&start).map_err(decode)?;
    entries::forget(&mut start);
    if managers.entries.is_empty() {
        let before = Write { manager: "before-first-apply", ..*write };
        update::own_changes(schema, &typed::zero(schema.at()), &start, &mut managers, &before);
    }
    let run = Run { schema, kind, live: &start, patch, write };
    let (mut object, managers) = match run.apply(managers.clone(), force) {
        Ok(done) => done,
        Err(Stopped::Refused(error)) => return Err(error),
        Err(Stopped::Conflicts(conflicts)) => {
            let left = if write.manager == "kubectl" {
                last_applied::unexcused(schema, &start, &conflicts)
            } else {
                conflicts
            };
            if !left.is_empty() {
                return Err(refusal(&left));
            }
            match run.apply(managers, true) {
                Ok(done) => done,
                Err(Stopped::Refused(error)) => return Err(error),
                Err(Stopped::Conflicts(conflicts)) => return Err(refusal(&conflicts)),
            }
        }
    };
    if write.manager == "kubectl" {
        last_applied::refresh(&mut object, patch);
    }
    managers.write(&mut object);
    Ok(object)
}

fn check(kind: &GroupVersionKind, patch: &Value) -> Result<(), StatusError> {
    let text = |name: &str| patch.get(name).and_then(Value::as_str).unwrap_or("");
    if text("apiVersion") != kind.api_version() || text("kind") != &*kind.kind {
        let (group, version) =
            text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        return Err(StatusError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={}",
            text("kind")
        )));
    }
    match patch.pointer("/metadata/managedFields") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(StatusError::bad_request("metadata.managedFields must be nil")),
    }
}

/// One attempt.
struct Run<'a> {
    schema: &'a Schema,
    kind: &'a GroupVersionKind,
    live: &'a Value,
    patch: &'a Value,
    write: &'a Write<'a>,
}

impl Run<'_> {
    fn apply(&self, managers: Managers, force: bool) -> Result<(Value, Managers), Stopped> {
        let (at, mut managers) = (self.schema.at(), managers);
        self.refuse_malformed()?;
        let merged = merge(self.live, self.patch, at);
        let reset = ignored::reset(self.schema, self.write.subresource);
        let applied = fields_of(self.patch, at).outside(&reset);
        let id = ManagerId {
            applied: true,
            manager: self.write.manager.to_owned(),
            api_version: String::new(),
            subresource: self.write.subresource.to_owned(),
        };
        let before = managers.entries.remove(&id);
        let entry = Entry {
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
        let changes = compare(self.live, &object, at).outside(&reset);
        if !force {
            let conflicts = conflicts(&managers, &id, &changes.written());
            if !conflicts.is_empty() {
                return Err(Stopped::Conflicts(conflicts));
            }
        }
        update::take(self.schema, &mut managers, &changes, Some(&id));
        let changed = !equal(self.live, &object);
        if let Some(entry) = managers.entries.get_mut(&id) {
            entry.fields = entry.fields.difference(ignored::system());
            if changed {
                entry.time = entries::time(self.write.now);
            }
            if entry.fields.is_empty() {
                managers.entries.remove(&id);
            }
        }
        Ok((if changed { object } else { self.live.clone() }, managers))
    }

    fn refuse_malformed(&self) -> Result<(), Stopped> {
        let problems = problems(self.patch, self.schema.at());
        let what = match problems.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        let name = |name: &str| {
            self.patch.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or("")
        };
        let (namespace, name, kind) = (name("namespace"), name("name"), self.kind);
        let text =
            format!("failed to create typed patch object ({namespace}/{name}; {kind}): {what}");
        Err(Stopped::Refused(StatusError::plain_internal(text)))
    }

    /// Takes out what this manager applied before and does not now, unless someone else owns it or it was never its own.
    fn prune(&self, merged: &Value, managers: &Managers, before: &FieldSet) -> Value {
        let at = self.schema.at();
        let before = with_named(before, at);
        let pruned = remove(merged, &before, at);
        let all = with_named(&fields_of(merged, at), at);
        let owned =
            managers.entries.values().fold(FieldSet::default(), |all, e| all.union(&e.fields));
        let left = with_named(&fields_of(&pruned, at), at);
        let pruned = remove(merged, &all.difference(&left.union(&with_named(&owned, at))), at);
        let left = with_named(&fields_of(&pruned, at), at);
        remove(merged, &all.difference(&left).intersection(&before), at)
    }
}

fn conflicts(managers: &Managers, own: &ManagerId, written: &FieldSet) -> Conflicts {
    let others = managers.entries.iter().filter(|(id, _)| *id != own);
    let found = others.map(|(id, entry)| (id.clone(), entry.fields.intersection(written)));
    found.filter(|(_, fields)| !fields.is_empty()).collect()
}

/// 409 with a cause for every field.
fn refusal(conflicts: &Conflicts) -> StatusError {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (id, fields) in conflicts {
        let manager = id.print();
        lines.push(format!("conflicts with {manager}:"));
        fields.for_each(&mut |path| {
            let field = element::print(path);
            lines.push(format!("- {field}"));
            causes.push(Cause {
                reason: "FieldManagerConflict".into(),
                message: format!("conflict with {manager}"),
                field,
            });
        });
    }
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n")),
    };
    StatusError::apply_conflict(message, causes)
}
