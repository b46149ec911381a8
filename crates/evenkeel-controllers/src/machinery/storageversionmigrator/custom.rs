//! Status of a CustomResourceDefinition during and after the migration of its objects.

use evenkeel_api::time::{Timestamp, seconds};
use serde_json::{Value, json};

/// Field manager of the condition, and of `storedVersions` after a migration.
pub(super) const FIELD_MANAGER: &str = "migration-runner-controller";

/// Stage of a migration.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage<'a> {
    Running {
        /// Name of the migration.
        name: &'a str,
    },
    Finished {
        /// Whether the migration succeeded.
        succeeded: bool,
    },
}

/// Returns the status to apply to a CustomResourceDefinition. After a migration, even a failed one, the storage version
/// becomes the only stored version, unless the definition has changed since the migration started.
///
/// Upstream: `finishCRDMigration`.
pub(super) fn apply_configuration(definition: &Value, stage: Stage<'_>, now: Timestamp) -> Value {
    let metadata = &definition["metadata"];
    let generation = &metadata["generation"];
    let conditions = definition["status"]["conditions"].as_array();
    let current = conditions
        .and_then(|all| all.iter().find(|condition| condition["type"] == "StorageMigrating"));
    let is_unchanged = current.is_some_and(|current| current["observedGeneration"] == *generation);
    let (status, reason, message) = match stage {
        Stage::Running { name } => {
            ("True", "MigrationRunning", format!("Migration {name} is running"))
        }
        Stage::Finished { succeeded: true } if is_unchanged => {
            let message = "The migration has succeeded and the stored versions have been updated";
            ("False", "MigrationSucceeded", message.to_owned())
        }
        Stage::Finished { succeeded: true } => {
            let message = "The migration has succeeded but the stored versions have not been updated due to a \
                           generation mismatch";
            ("False", "MigrationSucceeded", message.to_owned())
        }
        Stage::Finished { succeeded: false } => {
            ("False", "MigrationFailed", "The migration has failed".to_owned())
        }
    };
    let mut status = json!({"conditions": [{
        "type": "StorageMigrating", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": seconds(now), "observedGeneration": generation,
    }]});
    if is_unchanged && matches!(stage, Stage::Finished { .. }) {
        let versions = definition["spec"]["versions"].as_array();
        let storage_version =
            versions.and_then(|all| all.iter().find(|version| version["storage"] == true));
        if let Some(version) = storage_version {
            status["storedVersions"] = json!([version["name"]]);
        }
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // If the definition has changed since it was read, the request conflicts.
        "metadata": {"name": metadata["name"], "resourceVersion": metadata["resourceVersion"]},
        "status": status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::T0;

    fn definition(observed_generation: i64) -> Value {
        json!({
            "metadata": {"name": "widgets.test", "resourceVersion": "7", "generation": 3},
            "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
            "status": {
                "storedVersions": ["v1", "v2"],
                "conditions": [{"type": "StorageMigrating", "status": "True", "observedGeneration": observed_generation}],
            },
        })
    }

    #[test]
    fn stored_versions_are_pruned_only_for_the_observed_generation() {
        let patch = apply_configuration(&definition(3), Stage::Finished { succeeded: true }, T0);
        assert_eq!(patch["status"]["storedVersions"], json!(["v2"]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["status"]["conditions"][0]["status"], "False");
        let patch = apply_configuration(&definition(2), Stage::Finished { succeeded: true }, T0);
        assert!(patch["status"]["storedVersions"].is_null());
        assert!(patch["status"]["conditions"][0]["message"].as_str().unwrap().contains("mismatch"));
        let patch = apply_configuration(&definition(3), Stage::Running { name: "m" }, T0);
        assert!(patch["status"]["storedVersions"].is_null());
        assert_eq!(patch["status"]["conditions"][0]["message"], "Migration m is running");
    }
}
