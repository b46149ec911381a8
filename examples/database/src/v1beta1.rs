//! Version v1beta1 of databases: the volumes' size is a number, and backups are unknown.

use crate::v1;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Annotation that keeps the schedule of the backups, which v1beta1 cannot express.
pub const BACKUP_SCHEDULE: &str = "data.example.com/backup-schedule";

/// Desired state of a database.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "data.example.com",
    version = "v1beta1",
    kind = "Database",
    namespaced,
    status = "v1::DatabaseStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSpec {
    /// Version of the database's image.
    pub version: String,
    /// Number of instances.
    #[serde(default)]
    pub replicas: i32,
    /// Size of each instance's volume in GiB.
    pub storage_gi: u32,
}

impl From<Database> for v1::Database {
    fn from(mut old: Database) -> Self {
        let annotations = old.metadata.annotations.as_mut();
        let spec = v1::DatabaseSpec {
            version: old.spec.version,
            instances: old.spec.replicas,
            storage: format!("{}Gi", old.spec.storage_gi),
            backup_schedule: annotations.and_then(|all| all.remove(BACKUP_SCHEDULE)),
        };
        Self { metadata: old.metadata, spec, status: old.status }
    }
}

impl TryFrom<v1::Database> for Database {
    type Error = String;

    fn try_from(mut new: v1::Database) -> Result<Self, String> {
        let storage = &new.spec.storage;
        let storage_gi = storage.strip_suffix("Gi").and_then(|number| number.parse().ok());
        let storage_gi = storage_gi
            .ok_or_else(|| format!("spec.storage: {storage} is not a whole number of GiB"))?;
        if let Some(schedule) = new.spec.backup_schedule {
            let annotations = new.metadata.annotations.get_or_insert_default();
            annotations.insert(BACKUP_SCHEDULE.to_owned(), schedule);
        }
        let spec =
            DatabaseSpec { version: new.spec.version, replicas: new.spec.instances, storage_gi };
        Ok(Self { metadata: new.metadata, spec, status: new.status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversion_there_and_back_loses_nothing() {
        for schedule in [None, Some("0 3 * * *".to_owned())] {
            let spec = v1::DatabaseSpec {
                version: "17".to_owned(),
                instances: 3,
                storage: "10Gi".to_owned(),
                backup_schedule: schedule.clone(),
            };
            let mut stored = v1::Database::new("orders", spec);
            stored.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
            let old = Database::try_from(stored.clone()).expect("convertible");
            assert_eq!((old.spec.replicas, old.spec.storage_gi), (3, 10));
            assert_eq!(v1::Database::from(old), stored, "{schedule:?}");
        }
    }

    #[test]
    fn a_size_that_is_no_number_of_gib_cannot_be_converted() {
        let spec = v1::DatabaseSpec {
            version: "17".to_owned(),
            instances: 1,
            storage: "512Mi".to_owned(),
            backup_schedule: None,
        };
        let error = Database::try_from(v1::Database::new("orders", spec)).expect_err("no GiB");
        assert_eq!(error, "spec.storage: 512Mi is not a whole number of GiB");
    }
}
