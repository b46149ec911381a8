//! Decides which APIServices of this server's own APIs are created, restored and deleted.
//!
//! An APIService is desired if a CustomResourceDefinition serves its group and version:
//!
//! | current APIService | not desired | desired |
//! |---|---|---|
//! | none | - | create |
//! | without the label `kube-aggregator.kubernetes.io/automanaged` | - | - |
//! | label `onstart` | - | - |
//! | label `true` | delete | restore the spec |
//!
//! The APIServices of built-in groups have the label `onstart`; the server restores them when it starts.
//!
//! Upstream: `autoRegisterController.checkAPIService`, `crdRegistrationController.handleVersionUpdate`.

use std::collections::BTreeMap;

use evenkeel_apimachinery::value::{flag, get, list, text};
use serde_json::{Value, json};

/// Label whose value determines when the server restores an APIService.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Value of the label for APIServices that are restored when the server starts.
const ON_START: &str = "onstart";
/// Value of the label for APIServices that are always restored.
const ALWAYS: &str = "true";

/// Priority of each group of custom resources.
const GROUP_PRIORITY: u32 = 1000;
/// Priority of each version of custom resources. All are equal, so that discovery sorts the versions by name.
const VERSION_PRIORITY: u32 = 100;

/// Write that makes an APIService the desired one.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Creates this APIService.
    Create(Value),
    /// Sets the spec of the APIService with this name to this one.
    Restore(String, Value),
    /// Deletes the APIService with this name.
    Delete(String),
}

/// Returns the writes for the APIServices of custom resources.
pub(super) fn plan(services: &[Value], definitions: &[Value]) -> Vec<Action> {
    let mut missing = desired_specs(definitions);
    let mut actions = Vec::new();
    for service in services {
        let name = text(service, "metadata.name");
        let is_managed = automanaged(service) == ALWAYS;
        match missing.remove(name) {
            Some(spec) if is_managed && get(service, "spec") != Some(&spec) => {
                actions.push(Action::Restore(name.to_owned(), spec));
            }
            None if is_managed => actions.push(Action::Delete(name.to_owned())),
            _ => {}
        }
    }
    let create = |(name, spec): (String, Value)| {
        let labels = json!({AUTOMANAGED: ALWAYS});
        Action::Create(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
    };
    actions.extend(missing.into_iter().map(create));
    actions
}

/// Returns the specs of the APIServices for all served versions of CustomResourceDefinitions, by name.
fn desired_specs(definitions: &[Value]) -> BTreeMap<String, Value> {
    let mut specs = BTreeMap::new();
    for definition in definitions {
        let group = text(definition, "spec.group");
        let versions = list(definition, "spec.versions").iter();
        for version in versions.filter(|version| flag(version, "served")) {
            let version = text(version, "name");
            let spec = json!({
                "group": group, "version": version,
                "groupPriorityMinimum": GROUP_PRIORITY, "versionPriority": VERSION_PRIORITY,
            });
            specs.insert(format!("{version}.{group}"), spec);
        }
    }
    specs
}

/// Returns the value of the label [`AUTOMANAGED`]; empty without the label.
fn automanaged(service: &Value) -> &str {
    let labels = get(service, "metadata.labels");
    labels.and_then(|labels| labels.get(AUTOMANAGED)).and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether the server restores the spec of a built-in group's APIService when it starts.
pub(crate) fn is_restored_on_start(current: &Value, recorded: &Value) -> bool {
    matches!(automanaged(current), ON_START | ALWAYS)
        && get(current, "spec") != get(recorded, "spec")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(group: &str, versions: &[(&str, bool)]) -> Value {
        let versions: Vec<Value> =
            versions.iter().map(|(name, served)| json!({"name": name, "served": served})).collect();
        json!({"spec": {"group": group, "versions": versions}})
    }

    fn service(name: &str, managed: &str, spec: &Value) -> Value {
        let labels = if managed.is_empty() { json!({}) } else { json!({AUTOMANAGED: managed}) };
        json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
    }

    #[test]
    fn the_label_determines_what_is_restored() {
        let definitions = [
            definition("a.example", &[("v1", true), ("v2", false)]),
            definition("a.example", &[("v1", true)]),
        ];
        let spec = json!({"group": "a.example", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
        let mut changed = spec.clone();
        changed["versionPriority"] = json!(7);
        let name = "v1.a.example";
        for (current, actions) in [
            (vec![], vec![Action::Create(service(name, "true", &spec))]),
            (vec![service(name, "true", &spec)], vec![]),
            (
                vec![service(name, "true", &changed)],
                vec![Action::Restore(name.to_owned(), spec.clone())],
            ),
            (vec![service(name, "onstart", &changed)], vec![]),
            (vec![service(name, "", &changed)], vec![]),
        ] {
            assert_eq!(plan(&current, &definitions), actions, "{current:?}");
        }
        for (managed, actions) in [
            ("true", vec![Action::Delete("v2.a.example".to_owned())]),
            ("onstart", vec![]),
            ("", vec![]),
        ] {
            let current = [service(name, "true", &spec), service("v2.a.example", managed, &spec)];
            assert_eq!(plan(&current, &definitions), actions, "{managed}");
        }
        for (managed, spec_of, is_restored) in [
            ("onstart", &changed, true),
            ("onstart", &spec, false),
            ("true", &changed, true),
            ("", &changed, false),
        ] {
            let current = service(name, managed, spec_of);
            let recorded = service(name, "onstart", &spec);
            assert_eq!(is_restored_on_start(&current, &recorded), is_restored, "{managed}");
        }
    }
}
