//! `componentstatuses`: health of the control plane components in this process. Upstream probes their ports
//! (`registry/core/componentstatus`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::resource::{ResourceType, Source};

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Health checks by component name.
#[derive(Default)]
pub(crate) struct Components(Mutex<BTreeMap<String, Check>>);

impl Components {
    /// Adds a component, or replaces the one of that name.
    pub(crate) fn add(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.to_owned(), Arc::new(check));
    }
}

impl Source for Components {
    fn list(&self, _resource: &str, _namespace: &str) -> Vec<Value> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.into_iter().map(|(name, check)| status(&name, &check())).collect()
    }
}

/// Returns whether the resource is `componentstatuses`.
pub(crate) fn is_componentstatuses(resource: &ResourceType) -> bool {
    &*resource.resource_prefix == "/componentstatuses"
}

fn status(name: &str, health: &Result<(), String>) -> Value {
    let (status, message) = match health {
        Ok(()) => ("True", "ok"),
        Err(why) => ("False", &**why),
    };
    let condition = json!({"type": "Healthy", "status": status, "message": message});
    json!({"metadata": {"name": name}, "conditions": [condition]})
}
