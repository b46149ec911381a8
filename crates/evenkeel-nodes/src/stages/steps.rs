//! Actions of the steps of a Stage on an object.

use serde_json::{Map, Value, json};

use super::spec::{Event, Finalizers, Form, Patch, Stage};
use crate::template::Environment;

/// Action on an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Event(Event),
    Patch {
        /// Empty for the object itself.
        subresource: String,
        form: Form,
        body: String,
    },
    /// Deletion without a grace period.
    Delete,
}

/// Actions, each with the index of its step, and the error because of which the remaining steps have no actions.
pub(crate) type Actions = (Vec<(usize, Action)>, Option<String>);

/// Returns the actions of a Stage's steps after the first `n_done`. All templates read the object as it is now. After a
/// deletion, only events follow. If a template fails or its output is not YAML, returns the actions before it, and the
/// error.
pub(crate) fn actions(
    stage: &Stage,
    n_done: usize,
    object: &Value,
    environment: &Environment<'_>,
) -> Actions {
    let (mut actions, mut is_deleted) = (Vec::new(), false);
    for (index, step) in stage.steps.iter().enumerate().skip(n_done) {
        if let Some(event) = &step.event {
            actions.push((index, Action::Event(event.clone())));
        }
        if is_deleted {
            continue;
        }
        if let Some(changes) = &step.finalizers {
            let current = object["metadata"]["finalizers"].as_array();
            let current: Vec<&str> =
                current.into_iter().flatten().filter_map(Value::as_str).collect();
            let operations = finalizers(&current, changes);
            if !operations.is_empty() {
                let body = Value::Array(operations).to_string();
                let subresource = String::new();
                actions.push((index, Action::Patch { subresource, form: Form::Json, body }));
            }
        }
        if step.delete {
            is_deleted = true;
            actions.push((index, Action::Delete));
        } else if let Some(patch) = &step.patch {
            let body = match body(patch, object, environment) {
                Ok(body) => body.to_string(),
                Err(why) => return (actions, Some(format!("step {index}: {why}"))),
            };
            let (subresource, form) = (patch.subresource.clone(), patch.form);
            actions.push((index, Action::Patch { subresource, form, body }));
        }
    }
    (actions, None)
}

/// Returns the body of a patch.
fn body(patch: &Patch, object: &Value, environment: &Environment<'_>) -> Result<Value, String> {
    let text = patch.template.render(object, environment)?;
    let body: Value = serde_saphyr::from_str(&text).map_err(|error| {
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        format!("the output of the template is not YAML: {first}")
    })?;
    if patch.root.is_empty() {
        return Ok(body);
    }
    if patch.form != Form::Json {
        return Ok(Value::Object(Map::from_iter([(patch.root.clone(), body)])));
    }
    let Value::Array(operations) = body else {
        return Err("the output of the template is not a list of operations".to_owned());
    };
    let below = |mut operation: Value| {
        let path = operation["path"].as_str().unwrap_or_default();
        let path = format!("/{}{path}", patch.root);
        if let Some(fields) = operation.as_object_mut() {
            fields.insert("path".to_owned(), path.into());
        }
        operation
    };
    Ok(operations.into_iter().map(below).collect())
}

/// Returns the operations of a JSON patch that change finalizers.
fn finalizers(current: &[&str], changes: &Finalizers) -> Vec<Value> {
    let mut operations = Vec::new();
    let is_removed = |name: &&str| changes.remove.iter().any(|removed| removed == name);
    let n_removed = current.iter().filter(|name| is_removed(name)).count();
    let empties = changes.empty || !changes.remove.is_empty() && n_removed == current.len();
    if empties {
        if !current.is_empty() {
            operations.push(json!({"op": "remove", "path": "/metadata/finalizers"}));
        }
    } else {
        // From the end, so that a removal does not move the finalizers that are still to be removed.
        for (index, _) in current.iter().enumerate().rev().filter(|(_, name)| is_removed(name)) {
            let path = format!("/metadata/finalizers/{index}");
            operations.push(json!({"op": "remove", "path": path}));
        }
    }
    if changes.add.is_empty() {
        return operations;
    }
    if empties || current.is_empty() {
        let path = "/metadata/finalizers";
        operations.push(json!({"op": "add", "path": path, "value": changes.add}));
        return operations;
    }
    for name in changes.add.iter().filter(|name| !current.contains(&name.as_str())) {
        let path = "/metadata/finalizers/-";
        operations.push(json!({"op": "add", "path": path, "value": name}));
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_are_added_and_removed() {
        let changes = |add: &[&str], remove: &[&str], empty| Finalizers {
            add: add.iter().map(|name| (*name).to_owned()).collect(),
            remove: remove.iter().map(|name| (*name).to_owned()).collect(),
            empty,
        };
        let all = "/metadata/finalizers";
        for (current, changes, want) in [
            (
                vec![],
                changes(&["a"], &[], false),
                json!([{"op": "add", "path": all, "value": ["a"]}]),
            ),
            (
                vec!["a"],
                changes(&["a", "b"], &[], false),
                json!([{"op": "add", "path": format!("{all}/-"), "value": "b"}]),
            ),
            (
                vec!["a", "b", "c"],
                changes(&[], &["a", "c"], false),
                json!([{"op": "remove", "path": format!("{all}/2")}, {"op": "remove", "path": format!("{all}/0")}]),
            ),
            (vec!["a"], changes(&[], &["a"], false), json!([{"op": "remove", "path": all}])),
            (
                vec!["a"],
                changes(&["b"], &["a"], false),
                json!([{"op": "remove", "path": all}, {"op": "add", "path": all, "value": ["b"]}]),
            ),
            (vec!["a", "b"], changes(&[], &[], true), json!([{"op": "remove", "path": all}])),
            (vec![], changes(&[], &["x"], true), json!([])),
            (vec!["a"], changes(&[], &["x"], false), json!([])),
        ] {
            assert_eq!(
                Value::Array(finalizers(&current, &changes)),
                want,
                "{current:?} {changes:?}"
            );
        }
    }
}
