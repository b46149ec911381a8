//! Objects that were applied by the client: kubectl's annotation excuses conflicts, and is kept up to date.

use serde_json::Value;

use super::apply::Conflicts;
use super::compare::compare;
use super::fields_of::fields_of;
use super::set::FieldSet;
use crate::schema::Schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The conflicts that are left when kubectl may take what it last applied and nobody changed since.
pub(super) fn unexcused(schema: &Schema, live: &Value, conflicts: &Conflicts) -> Conflicts {
    let Some(excused) = excused(schema, live) else { return conflicts.clone() };
    let left = conflicts.iter().map(|(id, fields)| (id.clone(), fields.difference(&excused)));
    left.filter(|(_, fields)| !fields.is_empty()).collect()
}

fn excused(schema: &Schema, live: &Value) -> Option<FieldSet> {
    let text = annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(&schema.api_version()) {
        return None;
    }
    let changes = compare(&applied, live, schema.at());
    let gone = changes.written().union(&changes.removed);
    Some(fields_of(&applied, schema.at()).difference(&gone))
}

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Sets the annotation of an object that has one to what was applied now.
pub(super) fn refresh(object: &mut Value, patch: &Value) {
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
