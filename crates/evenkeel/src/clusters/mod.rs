//! Clusters of `evenkeel up`: one folder each in the user's state folder.
//!
//! | file | content |
//! |---|---|
//! | `lock` | empty; the running process holds its lock, which ends with the process |
//! | `cluster.json` | the record of the running process, or of a crashed process |
//! | `kubeconfig`, `controllers.sock` | kubeconfig and control socket; in the data folder, if the cluster has one |
//! | `log`, `log.old` | the log |
//!
//! A process that stops gracefully removes the folder. A folder without a held lock belongs to a crashed process.

mod commands;
mod connection;
mod console;
mod folder;
mod load;
mod logs;
mod manifests;
mod named;
mod record;
mod table;

pub(crate) use commands::{DownArgs, ListArgs, ResetArgs, StatusArgs, down, list, reset, status};
pub(crate) use connection::Connection;
pub(crate) use console::{ConsoleArgs, console};
pub(crate) use folder::{Claim, Clusters};
pub(crate) use load::{LoadArgs, load, load_objects, load_paths, parse_manifests, read_manifests};
pub(crate) use logs::{LogsArgs, logs};
pub(crate) use record::{DEFAULT_NAME, Record, check_name, cluster_of_context, context};
pub(crate) use table::LiveStatus;
