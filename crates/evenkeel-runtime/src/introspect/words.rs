//! One-line descriptions of actions, for people.

use crate::plan::{Action, Create, Propagation, ReadRequest, Target};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt::Write as _};

/// Maximum number of characters of a value in a description.
const MAX_VALUE_CHARS: usize = 80;
/// Maximum number of characters of an event's message in a description.
const MAX_EVENT_MESSAGE_CHARS: usize = 200;
/// Maximum number of changed fields in a description.
const MAX_VALUES: usize = 12;
/// Metadata fields that are preconditions of a write and change nothing.
const PRECONDITIONS: [&str; 2] = ["uid", "resourceVersion"];

/// Describes an action, such as `create 2 Pods default/web-7d4b-xxxxx` or `patch status of ReplicaSet default/web:
/// replicas 3`.
pub fn action(action: &Action) -> String {
    match action {
        Action::Read(read) => match &read.request {
            ReadRequest::Get { path, .. } | ReadRequest::GetShared { path } => {
                format!("read {path} live")
            }
            ReadRequest::Review { path, .. } => format!("post a review to {path}"),
            ReadRequest::Discovery { .. } => "discover the API's resources".to_owned(),
        },
        Action::Create(create) => describe_create(create),
        Action::Delete(delete) => {
            let how = match delete.propagation {
                None => "",
                Some(Propagation::Orphan) => ", orphaning its dependents",
                Some(Propagation::Background) => ", then its dependents",
                Some(Propagation::Foreground) => ", its dependents first",
            };
            format!("delete {}{how}", target_name(&delete.target))
        }
        Action::DeleteCollection(delete) => {
            let in_namespace = if delete.namespace.is_empty() {
                String::new()
            } else {
                format!(" in {}", delete.namespace)
            };
            format!("delete all {}{in_namespace}", delete.kind.plural)
        }
        Action::Patch(patch) => {
            describe_change("patch", patch.subresource, &patch.target, &patch.body)
        }
        Action::Update(update) => {
            describe_change("update", update.subresource, &update.target, &update.body)
        }
        Action::Rewrite(rewrite) => {
            describe_change("change", rewrite.subresource, &rewrite.target, &rewrite.body)
        }
        Action::Local(local) => format!("{} {}", local.work, local.subject),
        Action::Event(event) => {
            let event_type = if event.warning { "Warning" } else { "Normal" };
            let about = target_name(&event.regarding);
            format!(
                "tell of {about}: {event_type} {}: {}",
                event.reason,
                short(&event.message, MAX_EVENT_MESSAGE_CHARS)
            )
        }
    }
}

fn describe_create(create: &Create) -> String {
    let body: Value = serde_json::from_slice(&create.body).unwrap_or_default();
    let metadata = &body["metadata"];
    let name = match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}xxxxx"),
        (None, None) => "?".to_owned(),
    };
    let slash = if create.namespace.is_empty() { "" } else { "/" };
    let kind = &create.kind.kind;
    let object =
        if create.count == 1 { kind.to_string() } else { format!("{} {kind}s", create.count) };
    format!("create {object} {}{slash}{name}", create.namespace)
}

fn target_name(target: &Target) -> String {
    let slash = if target.namespace.is_empty() { "" } else { "/" };
    format!("{} {}{slash}{}", target.kind.kind, target.namespace, target.name)
}

/// Describes a write that changes part of an object, with the changed fields.
fn describe_change(verb: &str, subresource: &str, target: &Target, body: &[u8]) -> String {
    let subresource_of =
        if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
    let mut text = format!("{verb} {subresource_of}{}", target_name(target));
    let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
    if target.kind.kind == "Secret" {
        hide_secrets(&mut body);
    }
    let body = if subresource.is_empty() { &body } else { body.get(subresource).unwrap_or(&body) };
    let changes = changes(body);
    if !changes.is_empty() {
        let _ = write!(text, ": {changes}");
    }
    text
}

/// Summarizes the fields of a body, such as `spec.replicas 3, metadata.labels.a b`. Omits preconditions and the fields
/// that only identify the object.
pub fn changes(body: &Value) -> String {
    let mut all = Vec::new();
    match body {
        Value::Object(fields) => flatten("", fields, &mut all),
        // The body is a JSON patch.
        Value::Array(steps) => all.extend(steps.iter().map(describe_patch_step)),
        _ => {}
    }
    let more = all.len().saturating_sub(MAX_VALUES);
    all.truncate(MAX_VALUES);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join(", ")
}

/// Adds a description of each changed field. `prefix` is the path of the object that has the fields.
fn flatten(prefix: &str, fields: &Map<String, Value>, all: &mut Vec<String>) {
    for (field, value) in fields {
        let is_skipped = match prefix {
            "" => matches!(&**field, "apiVersion" | "kind"),
            "metadata." => {
                PRECONDITIONS.contains(&&**field) || matches!(&**field, "name" | "namespace")
            }
            _ => false,
        };
        if is_skipped {
            continue;
        }
        let path = format!("{prefix}{field}");
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                flatten(&format!("{path}."), inner, all);
            }
            Value::Array(items) if field == "conditions" => {
                all.extend(items.iter().map(format_condition));
            }
            Value::Null => all.push(format!("{path} removed")),
            Value::String(text) => all.push(format!("{path} {}", short(text, MAX_VALUE_CHARS))),
            other => all.push(format!("{path} {}", short(&other.to_string(), MAX_VALUE_CHARS))),
        }
    }
}

/// Summarizes the differences of two states of an object, such as `spec.replicas 3, was 2`. For a subresource, compares
/// only its part and the metadata that writers change. If `before` is null, all fields differ.
pub fn differences(before: &Value, after: &Value, subresource: &str) -> String {
    let leaves_of = |object: &Value| {
        let mut all = BTreeMap::new();
        let Some(fields) = object.as_object() else { return all };
        for (field, value) in fields {
            let compared = match (subresource, &**field) {
                ("", "status") | (_, "apiVersion" | "kind") => continue,
                (_, "metadata") => {
                    let known = CHANGED_METADATA.iter();
                    known.filter_map(|name| Some((*name, value.get(*name)?))).collect()
                }
                ("", field) => vec![(field, value)],
                (part, field) if field == part || (part, field) == ("finalize", "spec") => {
                    vec![(field, value)]
                }
                _ => continue,
            };
            for (name, value) in compared {
                let prefix = if field == "metadata" { "metadata." } else { "" };
                add_leaves(format!("{prefix}{name}"), value, &mut all);
            }
        }
        all
    };
    let (old, new) = (leaves_of(before), leaves_of(after));
    let mut all = Vec::new();
    for (path, value) in &new {
        match old.get(path) {
            Some(previous) if previous == value => {}
            Some(previous) => {
                all.push(format!(
                    "{path} {}, was {}",
                    short(value, MAX_VALUE_CHARS),
                    short(previous, MAX_VALUE_CHARS)
                ));
            }
            None => all.push(format!("{path} {}", short(value, MAX_VALUE_CHARS))),
        }
    }
    let removed = old.keys().filter(|path| !new.contains_key(*path));
    all.extend(removed.map(|path| format!("{path} removed")));
    let more = all.len().saturating_sub(MAX_VALUES);
    all.truncate(MAX_VALUES);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join(", ")
}

/// Metadata fields that writers change.
const CHANGED_METADATA: [&str; 4] = ["labels", "annotations", "ownerReferences", "finalizers"];

/// Adds the value of each field below `path`, by the field's path.
fn add_leaves(path: String, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                add_leaves(format!("{path}.{field}"), value, all);
            }
        }
        Value::Array(items) if path.ends_with("conditions") => {
            for item in items {
                let condition = format_condition(item);
                let (name, value) = condition.split_once('=').unwrap_or((&condition, ""));
                all.insert(format!("condition {name}"), value.to_owned());
            }
        }
        // A null field is equal to an absent one.
        Value::Null => {}
        Value::String(text) => {
            all.insert(path, text.clone());
        }
        other => {
            all.insert(path, other.to_string());
        }
    }
}

/// Hides the data of a Secret or of a JSON patch of one, because readers of a report may lack permission to read it.
pub(crate) fn hide_secrets(secret: &mut Value) {
    // In a JSON patch, any value may be data.
    for step in secret.as_array_mut().into_iter().flatten() {
        if let Some(value) = step.get_mut("value") {
            *value = Value::from("(hidden)");
        }
    }
    // The last applied configuration repeats the data.
    let last_applied = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
    if let Some(applied) = secret.pointer_mut(last_applied) {
        *applied = Value::from("(hidden)");
    }
    for field in ["data", "stringData"] {
        if let Some(data) = secret.get_mut(field).and_then(Value::as_object_mut) {
            data.values_mut().for_each(|value| *value = Value::from("(hidden)"));
        }
    }
}

/// Formats a condition, such as `Available=True (MinimumReplicasAvailable)`.
fn format_condition(condition: &Value) -> String {
    let field = |name: &str| condition[name].as_str().unwrap_or_default();
    let reason = field("reason");
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    format!("{}={}{reason}", field("type"), field("status"))
}

fn describe_patch_step(step: &Value) -> String {
    let field = |name: &str| step[name].as_str().unwrap_or_default();
    let value =
        step.get("value").map(|value| format!(" {}", short(&value.to_string(), MAX_VALUE_CHARS)));
    format!("{} {}{}", field("op"), field("path"), value.unwrap_or_default())
}

/// Truncates a string to a number of characters.
fn short(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Delete, EventRecord, Patch, PatchType, Update};
    use evenkeel_api::Kind;
    use serde_json::json;

    const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);

    #[test]
    fn actions_are_described_in_one_line() {
        let pod = || Target::new(PODS, "ns", "p", "u");
        let status = json!({
            "metadata": {"name": "p", "resourceVersion": "7"},
            "status": {"replicas": 3, "conditions": [{"type": "A", "status": "True", "reason": "R"}]},
        });
        let patch = json!({"metadata": {"uid": "u", "labels": {"a": null}}, "spec": {"n": 1}});
        let table: [(Action, &str); 6] = [
            (
                Create {
                    count: 2,
                    ..Create::new(PODS, "ns", r#"{"metadata":{"generateName":"web-"}}"#)
                }
                .into(),
                "create 2 Pods ns/web-xxxxx",
            ),
            (Delete::new(pod()).into(), "delete Pod ns/p"),
            (
                Update::status(pod(), status.to_string()).into(),
                "update status of Pod ns/p: A=True (R), replicas 3",
            ),
            (
                Patch::new(pod(), PatchType::Merge, patch.to_string()).into(),
                "patch Pod ns/p: metadata.labels.a removed, spec.n 1",
            ),
            (
                Patch::new(pod(), PatchType::Json, r#"[{"op":"remove","path":"/a"}]"#).into(),
                "patch Pod ns/p: remove /a",
            ),
            (
                Action::Event(EventRecord::warning(pod(), "Bad", "it is")),
                "tell of Pod ns/p: Warning Bad: it is",
            ),
        ];
        for (done, words) in table {
            assert_eq!(action(&done), words);
        }
    }

    #[test]
    fn differences_list_changed_and_removed_fields() {
        let before = json!({
            "metadata": {"name": "a", "resourceVersion": "1", "annotations": {"x": "1", "y": "2"}},
            "spec": {"replicas": 2, "template": {"a": [1]}},
            "status": {"replicas": 2, "conditions": [{"type": "A", "status": "True"}]},
        });
        let after = json!({
            "metadata": {"name": "a", "annotations": {"x": "3"}},
            "spec": {"replicas": 3, "template": {"a": [1]}},
            "status": {"replicas": 1, "conditions": [{"type": "A", "status": "False"}]},
        });
        let whole = "metadata.annotations.x 3, was 1, spec.replicas 3, was 2, metadata.annotations.y removed";
        assert_eq!(differences(&before, &after, ""), whole);
        let status = "condition A False, was True, metadata.annotations.x 3, was 1, status.replicas 1, was 2, \
                      metadata.annotations.y removed";
        assert_eq!(differences(&before, &after, "status"), status);
        assert_eq!(differences(&before, &before, ""), "");
    }

    #[test]
    fn long_changes_are_truncated() {
        let many: Map<String, Value> =
            (0..50).map(|n| (format!("f{n:02}"), json!("x".repeat(500)))).collect();
        let words = changes(&Value::Object(many));
        assert!(words.ends_with("and 38 more"), "{words}");
        assert!(words.len() < 1200);
    }
}
