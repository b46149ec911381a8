//! An object: owners and dependents, explanations, events, switches, and its fields.

use super::{
    Chip, Link,
    ago::Ago,
    events::EventRow,
    explain::{CauseRow, Reports},
    nodepage::NodeFacts,
    switches::Switch,
    tree::Branch,
};
use askama::Template;
use evenkeel_api::time::Timestamp;
use serde_json::{Value, json};

/// Maximum length of the shown fields in bytes.
const MAX_FIELDS: usize = 200_000;

/// Replacement of a value of a Secret.
const HIDDEN: &str = "(not shown)";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Page of an object.
#[derive(Debug, Clone, Template)]
#[template(path = "object.html")]
pub(crate) struct ObjectPage {
    /// Kind of the object.
    pub(crate) kind: String,
    /// Namespace. Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
    /// List of the object's kind.
    pub(crate) list: Link,
    /// Conditions and phase.
    pub(crate) chips: Vec<Chip>,
    /// Age since the creation.
    pub(crate) created: Option<Ago>,
    /// Page of the pod's scheduling. Empty for other objects.
    pub(crate) scheduling: String,
    /// Preview of an edit. Empty if there is none.
    pub(crate) edit: String,
    /// Owners above and dependents below.
    pub(crate) tree: Branch,
    /// Faults and resources of a node. `None` for other objects.
    pub(crate) node: Option<NodeFacts>,
    /// Errors of parts that the user may not see.
    pub(crate) refused: Vec<String>,
    /// Causes why the object is not in its desired state.
    pub(crate) why: Vec<CauseRow>,
    /// Number of causes that are not listed.
    pub(crate) more_causes: usize,
    /// Reports of the controllers. `None` if the user may not see them.
    pub(crate) reports: Option<Reports>,
    /// Pods of a node.
    pub(crate) pods: Vec<Link>,
    /// Number of pods of a node that are not listed.
    pub(crate) more_pods: usize,
    /// Events of the object. `None` if the user may not see them.
    pub(crate) events: Option<Vec<EventRow>>,
    /// Switches of the simulation.
    pub(crate) switches: Vec<Switch>,
    /// Token of forms. Empty if pages only read.
    pub(crate) form_token: String,
    /// Fields as YAML.
    pub(crate) fields: String,
}

/// Returns the object without managed fields, and without the values of a Secret, including those in the annotation of `kubectl
/// apply`.
pub(crate) fn shown(mut object: Value) -> Value {
    let is_secret = object["kind"] == "Secret" && object["apiVersion"] == "v1";
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if is_secret && let Some(applied) = metadata.get_mut("annotations") {
            hide(applied, |name| name == LAST_APPLIED);
        }
    }
    if is_secret {
        for field in ["data", "stringData"] {
            if let Some(values) = object.get_mut(field) {
                hide(values, |_| true);
            }
        }
    }
    object
}

fn hide(values: &mut Value, is_hidden: impl Fn(&str) -> bool) {
    let values = values.as_object_mut().into_iter().flatten();
    for (_, value) in values.filter(|(name, _)| is_hidden(name)) {
        *value = json!(HIDDEN);
    }
}

/// Returns the fields of an object as YAML.
pub(crate) fn yaml(object: &Value) -> String {
    let mut text = match serde_saphyr::to_string(object) {
        Ok(text) => text,
        Err(error) => return format!("# The fields cannot be shown: {error}\n"),
    };
    if text.len() > MAX_FIELDS {
        let mut end = MAX_FIELDS;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("\n# … cut here; kubectl get -o yaml prints all of it\n");
    }
    text
}

/// Returns the state of an object: phase, conditions, deletion. A pod's own state replaces phase and deletion.
pub(crate) fn chips(object: &Value, pod: Option<&Chip>) -> Vec<Chip> {
    let mut chips: Vec<Chip> = pod.into_iter().cloned().collect();
    if pod.is_none() && !object["metadata"]["deletionTimestamp"].is_null() {
        chips.push(Chip::of_state("Terminating"));
    }
    let status = &object["status"];
    if let (Some(phase), None) = (status["phase"].as_str(), pod) {
        chips.push(Chip::of_state(phase));
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let (type_, value, reason) = (text("type"), text("status"), text("reason"));
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        chips.push(Chip::new(format!("{type_}={value}{reason}"), tone(type_, value)));
    }
    if let (Some(wanted), false) = (object["spec"]["replicas"].as_u64(), status.is_null()) {
        let ready = status["readyReplicas"].as_u64().unwrap_or_default();
        let tone = if ready >= wanted { "good" } else { "warn" };
        chips.push(Chip::new(format!("{ready} of {wanted} ready"), tone));
    }
    chips
}

/// Returns the tone of a condition. Some conditions report a problem when they are true.
fn tone(type_: &str, value: &str) -> &'static str {
    let reports_trouble = ["Pressure", "Failure", "Failed", "Unavailable", "DisruptionTarget"];
    let is_trouble = reports_trouble.iter().any(|part| type_.ends_with(part));
    match (value, is_trouble) {
        ("True", false) => "good",
        ("True", true) => "bad",
        ("False", true) => "quiet",
        _ => "warn",
    }
}

/// Returns the creation time of an object.
pub(crate) fn created(now: Timestamp, object: &Value) -> Option<Ago> {
    Ago::parse(now, object["metadata"]["creationTimestamp"].as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": "s", "managedFields": [{"manager": "m"}],
                "annotations": {LAST_APPLIED: "{\"data\": {\"key\": \"aHVudGVyMg==\"}}", "note": "kept"},
            },
            "data": {"key": "aHVudGVyMg==", "other": ""},
            "stringData": {"plain": "hunter2"},
        });
        let text = yaml(&shown(secret));
        for hidden in ["aHVudGVyMg", "hunter2", "managedFields"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
        for kept in ["key: ", "plain: ", "note: kept", "(not shown)", "type: Opaque"] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
        for other in [json!([]), json!("text"), json!(null), json!({"metadata": []})] {
            assert_eq!(shown(other.clone()), other, "an aggregated API server may answer it");
        }
        let config = shown(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}));
        assert_eq!(config["data"]["a"], "b");
        assert_eq!(
            shown(json!({"apiVersion": "v1", "kind": "Secret"})),
            json!({"apiVersion": "v1", "kind": "Secret"})
        );
    }

    #[test]
    fn long_fields_are_cut() {
        let long = "é".repeat(MAX_FIELDS);
        let text = yaml(&json!({"data": {"long": long}}));
        assert!(text.len() < MAX_FIELDS + 100 && text.contains("cut here"), "{}", text.len());
    }

    #[test]
    fn states_have_tones() {
        let object = json!({
            "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 3},
            "status": {
                "phase": "Running", "readyReplicas": 2,
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "ReplicaFailure", "status": "True"},
                ],
            },
        });
        let shown: Vec<_> =
            chips(&object, None).into_iter().map(|chip| (chip.text, chip.tone)).collect();
        let want = [
            ("Terminating", "warn"),
            ("Running", "good"),
            ("Ready=False (ContainersNotReady)", "warn"),
            ("MemoryPressure=False", "quiet"),
            ("ReplicaFailure=True", "bad"),
            ("2 of 3 ready", "warn"),
        ];
        assert_eq!(shown, want.map(|(text, tone)| (text.to_owned(), tone)));
        let pod = Chip::new("CrashLoopBackOff", "bad");
        let shown = chips(&object, Some(&pod));
        assert_eq!(shown[..2], [pod, Chip::new("Ready=False (ContainersNotReady)", "warn")]);
    }
}
