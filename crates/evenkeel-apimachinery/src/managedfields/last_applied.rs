//! kubectl's last-applied annotation, which can resolve conflicts of an apply. An apply by kubectl also updates it.

use serde_json::Value;

use super::apply::Conflicts;
use super::compare::compare;
use super::field_set::FieldSet;
use super::to_field_set::to_field_set;
use crate::schema::Schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the conflicts without fields of the last-applied configuration that no one has changed since.
///
/// Upstream: `conflictsDifference`.
pub(super) fn conflicts_difference(
    schema: &Schema,
    live: &Value,
    conflicts: &Conflicts,
) -> Conflicts {
    let Some(allowed_conflicts) = allowed_conflicts(schema, live) else { return conflicts.clone() };
    let rest =
        conflicts.iter().map(|(id, fields)| (id.clone(), fields.difference(&allowed_conflicts)));
    rest.filter(|(_, fields)| !fields.is_empty()).collect()
}

/// Returns the fields of the last-applied configuration that no one has changed; `None` without a valid configuration.
///
/// Upstream: `allowedConflictsFromLastApplied`.
fn allowed_conflicts(schema: &Schema, live: &Value) -> Option<FieldSet> {
    let text = annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(&schema.api_version()) {
        return None;
    }
    let changes = compare(&applied, live, schema.type_ref());
    let changed_fields = changes.added_or_modified().union(&changes.removed);
    Some(to_field_set(&applied, schema.type_ref()).difference(&changed_fields))
}

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Updates the annotation, if the object has one, to the applied configuration.
///
/// Upstream: `lastAppliedUpdater`.
pub(super) fn update_annotation(object: &mut Value, patch: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = patch.clone();
    if let Some(annotations) =
        applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{applied}\n");
    if let Some(place) =
        object.pointer_mut("/metadata/annotations").and_then(|a| a.get_mut(ANNOTATION))
    {
        *place = text.into();
    }
}
