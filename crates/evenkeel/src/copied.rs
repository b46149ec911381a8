//! File with settings that `evenkeel clone` writes into a data folder, and that `evenkeel up` reads.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{fs, io::ErrorKind, path::Path};

/// Name of the file in the data folder.
const FILE: &str = "clone.json";

/// Settings of the copied cluster. The API does not serve them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Copied {
    /// KubeSchedulerConfiguration of the cluster, if `evenkeel clone` got it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheduler_config: Option<Map<String, Value>>,
    /// CIDRs of the Services' cluster IPs, separated by commas, if the copy has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_cluster_ip_range: Option<String>,
}

impl Copied {
    /// Writes the file, which marks the folder as a copy.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads the file of a data folder; `None` if the folder is not a copy of a cluster.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or was changed to something else.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let copied = serde_json::from_str(&text).with_context(|| {
            format!("{} is not as evenkeel clone writes it; clone again", path.display())
        })?;
        Ok(Some(copied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_copy_if_it_has_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Copied::read(folder.path()).expect("no file"), None);
        assert_eq!(Copied::read(&folder.path().join("none")).expect("no folder"), None);
        let copied = Copied {
            scheduler_config: Some(Map::from_iter([("podInitialBackoffSeconds".into(), 3.into())])),
            service_cluster_ip_range: Some("10.43.0.0/16".into()),
        };
        copied.write(folder.path()).expect("written");
        assert_eq!(Copied::read(folder.path()).expect("read"), Some(copied));
        fs::write(folder.path().join(FILE), "{\"scheduler\": {}}").expect("written");
        let error = Copied::read(folder.path()).expect_err("an unknown field").to_string();
        assert!(
            error.ends_with("clone.json is not as evenkeel clone writes it; clone again"),
            "{error}"
        );
    }
}
