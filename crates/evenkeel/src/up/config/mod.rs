//! The configuration file of `evenkeel up`: a Cluster of `evenkeel.dev/v1alpha1`. Flags win over the file.

mod audit;
mod devices;
mod failures;
mod read;
mod types;
mod users;

pub(super) use devices::Equipment;
pub(super) use failures::{Step, steps};
pub(super) use read::read;
pub(super) use types::{Cluster, Components, ConsolePort, NoConsole, Nodes, Pool};
pub(super) use users::User;

/// Returns the JSON schema of the file.
pub(super) fn schema() -> String {
    serde_json::to_string_pretty(&schemars::schema_for!(Cluster)).unwrap_or_default()
}
