//! The definitions that are served, and their rows in the resource table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use super::rows;
use crate::resource::custom::Definition;
use crate::resource::{ResourceType, Table};
use evenkeel_apiextensions::conditions;
use evenkeel_apimachinery::value::text;

/// A definition that is served.
struct Live {
    /// What its rows depend on.
    basis: Value,
    rows: Vec<Arc<ResourceType>>,
    over: watch::Sender<bool>,
}

/// The definitions that are served, by name.
#[derive(Default)]
pub(crate) struct Served(Mutex<BTreeMap<String, Live>>);

impl Served {
    /// Brings the table in line with the definitions. Watches of rows that go or change end.
    pub(super) fn refresh(&self, table: &Table, all: &[&Value]) {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = false;
        let mut ended: Vec<watch::Sender<bool>> = Vec::new();
        let mut now: BTreeMap<String, Live> = BTreeMap::new();
        for crd in all.iter().filter(|crd| conditions::is_true(crd, "Established")) {
            let name = text(crd, "metadata.name").to_owned();
            let basis = basis(crd);
            let terminating = !text(crd, "metadata.deletionTimestamp").is_empty();
            let kept = live.remove(&name);
            let entry = match kept {
                Some(kept) if kept.basis == basis => {
                    if let Some(definition) = definition_of(&kept.rows) {
                        definition.set_terminating(terminating);
                    }
                    kept
                }
                other => {
                    changed = true;
                    ended.extend(other.map(|old| old.over));
                    let (over, told) = watch::channel(false);
                    Live { basis, rows: rows::rows(crd, told), over }
                }
            };
            now.insert(name, entry);
        }
        changed |= !live.is_empty();
        ended.extend(std::mem::take(&mut *live).into_values().map(|gone| gone.over));
        *live = now;
        if changed {
            table.set_custom(live.values().flat_map(|live| live.rows.iter().cloned()));
        }
        for over in ended {
            over.send_replace(true);
        }
    }

    /// Returns the row of a definition through which its objects are deleted: in the version that objects are stored in, if
    /// it is served, nobody is asked to convert them.
    pub(super) fn row(&self, name: &str) -> Option<Arc<ResourceType>> {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = live.get(name).map_or(&[][..], |live| &live.rows[..]);
        let is_stored = |row: &&Arc<ResourceType>| {
            definition_of(rows).is_some_and(|definition| definition.stored_as == row.api_version)
        };
        rows.iter().find(is_stored).or(rows.first()).cloned()
    }
}

/// What the rows of a definition depend on.
fn basis(crd: &Value) -> Value {
    serde_json::json!([crd["metadata"]["uid"], crd["spec"], crd["status"]["acceptedNames"]])
}

fn definition_of(rows: &[Arc<ResourceType>]) -> Option<&Arc<Definition>> {
    rows.first()?.custom.as_ref().map(|custom| &custom.definition)
}
