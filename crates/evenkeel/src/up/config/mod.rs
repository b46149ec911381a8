//! The configuration file of `evenkeel up`: a Cluster of `evenkeel.dev/v1alpha1`. Flags win over the file.

mod read;
mod types;

pub(super) use read::read;
pub(super) use types::{Cluster, Components, ConsolePort, NoConsole, Nodes};

/// Returns the JSON schema of the file.
pub(super) fn schema() -> String {
    serde_json::to_string_pretty(&schemars::schema_for!(Cluster)).unwrap_or_default()
}
