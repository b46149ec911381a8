//! Served CustomResourceDefinitions and their resource types in the table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_tasks::watch;
use serde_json::Value;

use super::resource_types;
use crate::resource::custom::Definition;
use crate::resource::{ResourceType, Table};
use evenkeel_apiextensions::conditions;
use evenkeel_apimachinery::value::text;

/// CustomResourceDefinition with the condition `Established`.
struct ServedDefinition {
    /// Fields of the definition that determine its resource types, to detect changes.
    relevant_fields: Value,
    resource_types: Vec<Arc<ResourceType>>,
    /// Set to true when the resource types are replaced or removed, to end their watches.
    replaced: watch::Sender<bool>,
}

/// Established definitions by name.
#[derive(Default)]
pub(crate) struct Served(Mutex<BTreeMap<String, ServedDefinition>>);

impl Served {
    /// Replaces the custom resource types in the table with the resource types of the definitions `crds`. Ends the
    /// watches of definitions that changed or no longer exist.
    pub(super) fn refresh(&self, table: &Table, crds: &[&Value]) {
        let mut previous = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = false;
        let mut replaced_definitions: Vec<watch::Sender<bool>> = Vec::new();
        let mut current: BTreeMap<String, ServedDefinition> = BTreeMap::new();
        for crd in crds.iter().filter(|crd| conditions::is_true(crd, "Established")) {
            let name = text(crd, "metadata.name").to_owned();
            let relevant_fields = relevant_fields(crd);
            let terminating = !text(crd, "metadata.deletionTimestamp").is_empty();
            let served_definition = match previous.remove(&name) {
                Some(unchanged) if unchanged.relevant_fields == relevant_fields => {
                    if let Some(definition) = definition_of(&unchanged.resource_types) {
                        definition.set_terminating(terminating);
                    }
                    unchanged
                }
                new_or_changed => {
                    changed = true;
                    replaced_definitions.extend(new_or_changed.map(|old| old.replaced));
                    let (replaced, receiver) = watch::channel(false);
                    let resource_types = resource_types::resource_types(crd, receiver);
                    ServedDefinition { relevant_fields, resource_types, replaced }
                }
            };
            current.insert(name, served_definition);
        }
        // The remaining definitions no longer exist.
        changed |= !previous.is_empty();
        let removed = std::mem::replace(&mut *previous, current);
        replaced_definitions.extend(removed.into_values().map(|definition| definition.replaced));
        if changed {
            table.set_custom(
                previous.values().flat_map(|definition| definition.resource_types.iter().cloned()),
            );
        }
        for replaced in replaced_definitions {
            replaced.send_replace(true);
        }
    }

    /// Returns the resource type that deletes a definition's objects: the storage version's if it is served,
    /// because it needs no conversion webhook.
    pub(super) fn resource_type_for_deletion(&self, name: &str) -> Option<Arc<ResourceType>> {
        let served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let types = served.get(name).map_or(&[][..], |definition| &definition.resource_types[..]);
        let is_stored = |resource: &&Arc<ResourceType>| {
            definition_of(types)
                .is_some_and(|definition| definition.stored_as == resource.api_version)
        };
        types.iter().find(is_stored).or(types.first()).cloned()
    }
}

/// Returns the fields of a definition that determine its resource types.
fn relevant_fields(crd: &Value) -> Value {
    serde_json::json!([crd["metadata"]["uid"], crd["spec"], crd["status"]["acceptedNames"]])
}

/// Returns the definition that all resource types share.
fn definition_of(resource_types: &[Arc<ResourceType>]) -> Option<&Arc<Definition>> {
    resource_types.first()?.custom.as_ref().map(|custom| &custom.definition)
}
