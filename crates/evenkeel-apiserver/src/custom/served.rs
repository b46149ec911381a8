//! Served CustomResourceDefinitions and their resource types in the table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use super::resource_types;
use crate::resource::custom::Definition;
use crate::resource::{ResourceType, Table};
use evenkeel_apiextensions::conditions;
use evenkeel_apimachinery::value::text;

/// CustomResourceDefinition with the condition `Established`.
struct ServedDefinition {
    /// Fields of the definition that determine its resource types.
    basis: Value,
    resource_types: Vec<Arc<ResourceType>>,
    replaced: watch::Sender<bool>,
}

/// Established definitions by name.
#[derive(Default)]
pub(crate) struct Served(Mutex<BTreeMap<String, ServedDefinition>>);

impl Served {
    /// Replaces the custom resource types in the table with those of `all` definitions. Ends the watches of definitions
    /// that changed or no longer exist.
    pub(super) fn refresh(&self, table: &Table, all: &[&Value]) {
        let mut previous = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = false;
        let mut replaced_definitions: Vec<watch::Sender<bool>> = Vec::new();
        let mut current: BTreeMap<String, ServedDefinition> = BTreeMap::new();
        for crd in all.iter().filter(|crd| conditions::is_true(crd, "Established")) {
            let name = text(crd, "metadata.name").to_owned();
            let basis = basis(crd);
            let terminating = !text(crd, "metadata.deletionTimestamp").is_empty();
            let entry = match previous.remove(&name) {
                Some(kept) if kept.basis == basis => {
                    if let Some(definition) = definition_of(&kept.resource_types) {
                        definition.set_terminating(terminating);
                    }
                    kept
                }
                other => {
                    changed = true;
                    replaced_definitions.extend(other.map(|old| old.replaced));
                    let (replaced, receiver) = watch::channel(false);
                    let resource_types = resource_types::resource_types(crd, receiver);
                    ServedDefinition { basis, resource_types, replaced }
                }
            };
            current.insert(name, entry);
        }
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
fn basis(crd: &Value) -> Value {
    serde_json::json!([crd["metadata"]["uid"], crd["spec"], crd["status"]["acceptedNames"]])
}

fn definition_of(resource_types: &[Arc<ResourceType>]) -> Option<&Arc<Definition>> {
    resource_types.first()?.custom.as_ref().map(|custom| &custom.definition)
}
