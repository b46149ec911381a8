//! Switches of the simulation: annotations of pods and nodes.

use evenkeel_nodes::{ANNOTATIONS, PREFIX};
use serde_json::{Value, json};

/// An annotation that a page can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Switch {
    /// Name of the annotation, with its prefix.
    pub(crate) annotation: String,
    /// Current value. Empty without the annotation.
    pub(crate) value: String,
    /// Description of the accepted values.
    pub(crate) values: String,
    /// Effect of the annotation.
    pub(crate) meaning: String,
    /// Whether the switch has two states, `true` and no annotation. Faults also accept their end time.
    pub(crate) is_toggle: bool,
}

/// Change of an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Path of the object's collection and name in the API.
    pub(crate) kind: &'static str,
    /// Namespace of the object. Empty for a node.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
    /// Name of the annotation, with its prefix.
    pub(crate) annotation: String,
    /// Value to set. Empty to remove the annotation.
    pub(crate) value: String,
}

/// Returns the switches of an object. Other kinds than pods and nodes have none.
pub(crate) fn switches(object: &Value) -> Vec<Switch> {
    if object["apiVersion"] != "v1" {
        return Vec::new();
    }
    let of_kind = ANNOTATIONS.iter().filter(|annotation| object["kind"] == annotation.kind);
    of_kind
        .map(|annotation| {
            let name = format!("{PREFIX}{}", annotation.name);
            let plain = |markdown: &str| markdown.replace('`', "");
            let value = object["metadata"]["annotations"][&name].as_str().unwrap_or_default();
            Switch {
                value: value.to_owned(),
                annotation: name,
                values: plain(annotation.values),
                meaning: plain(annotation.meaning),
                is_toggle: annotation.values.starts_with("`true`"),
            }
        })
        .collect()
}

impl Change {
    /// Reads a form. `None` if it names no annotation of the simulation, or no object of its kind.
    pub(crate) fn of_form(form: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let annotation = form("annotation")?;
        let known =
            ANNOTATIONS.iter().find(|known| annotation.strip_prefix(PREFIX) == Some(known.name))?;
        let (namespace, name) = (form("namespace").unwrap_or_default(), form("name")?);
        let has_namespace = known.kind == "Pod";
        if name.is_empty() || namespace.is_empty() == has_namespace {
            return None;
        }
        let value = form("value").unwrap_or_default();
        Some(Self { kind: known.kind, namespace, name, annotation, value })
    }

    /// Returns the merge patch (RFC 7396).
    pub(crate) fn patch(&self) -> Value {
        let value = if self.value.is_empty() { Value::Null } else { json!(self.value) };
        json!({"metadata": {"annotations": {&*self.annotation: value}}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_and_nodes_have_switches() {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"annotations": {"sim.evenkeel.dev/silent": "true"}},
        });
        let found = switches(&node);
        assert!(found.len() > 1 && found.iter().all(|switch| switch.is_toggle));
        let set: Vec<_> = found.iter().filter(|switch| !switch.value.is_empty()).collect();
        assert_eq!(set.len(), 1);
        assert_eq!((&*set[0].annotation, &*set[0].value), ("sim.evenkeel.dev/silent", "true"));
        let pod = switches(&json!({"apiVersion": "v1", "kind": "Pod"}));
        assert!(pod.len() > 5 && pod.iter().all(|switch| switch.value.is_empty()));
        assert!(switches(&json!({"apiVersion": "x/v1", "kind": "Node"})).is_empty());
        assert!(switches(&json!({"apiVersion": "v1", "kind": "Secret"})).is_empty());
    }

    #[test]
    fn forms_change_known_annotations_of_their_kind_alone() {
        let read = |pairs: &[(&str, &str)]| {
            Change::of_form(|name| {
                pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let silent = ("annotation", "sim.evenkeel.dev/silent");
        let change = read(&[silent, ("name", "node-1"), ("value", "true")]).expect("a change");
        assert_eq!(change.kind, "Node");
        assert_eq!(
            change.patch(),
            json!({"metadata": {"annotations": {"sim.evenkeel.dev/silent": "true"}}})
        );
        let off = read(&[silent, ("name", "node-1"), ("value", "")]).expect("a change");
        assert_eq!(
            off.patch(),
            json!({"metadata": {"annotations": {"sim.evenkeel.dev/silent": null}}})
        );
        for wrong in [
            &[silent, ("name", "")][..],
            &[silent, ("name", "n"), ("namespace", "a")],
            &[("annotation", "sim.evenkeel.dev/run-time"), ("name", "p")],
            &[("annotation", "example.com/silent"), ("name", "n")],
            &[("annotation", "sim.evenkeel.dev/"), ("name", "n")],
            &[],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
