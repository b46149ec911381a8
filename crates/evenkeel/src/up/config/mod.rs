//! The configuration file of `evenkeel up`: a Cluster of `evenkeel.dev/v1alpha1`. Flags win over the file.

mod audit;
mod devices;
mod failures;
mod nodes;
mod read;
mod types;
mod users;

pub(super) use devices::{EQUIPMENT_LABEL, Equipment};
pub(super) use failures::{Outage, outages};
pub(super) use read::read;
pub(super) use types::{Cluster, Components, ConsolePort, NoConsole, Nodes, Pool, Scheduler};
pub(super) use users::{USER_LABEL, User};

/// Returns the JSON schema of the file.
pub(crate) fn schema() -> serde_json::Value {
    schemars::schema_for!(Cluster).into()
}
