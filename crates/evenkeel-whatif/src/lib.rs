//! Copies clusters, and simulates changes of the copies.
//!
//! [`clone`] reads the objects of a cluster, without secrets and without objects that change all the time. [`simulate`] loads
//! such objects into an API server in memory. Controllers, scheduler and simulated nodes run beside it in virtual time, and the
//! pods of the copy keep their nodes. Then it makes a change, and records events. [`report()`] summarizes a recording, and
//! [`compare()`] returns the differences of two reports. Both are pure functions.

mod actions;
mod change;
pub mod clone;
mod cluster;
mod compare;
mod differences;
mod format;
mod kubelets;
mod observe;
mod page;
mod recording;
mod report;
mod run;
mod server_thread;
mod steering;
mod text;
mod wire;

pub use change::{NoSuchNode, Nodes, NodesError, Outage, Scenario, parse_duration};
pub use cluster::{Cluster, ReadError};
pub use compare::{Comparison, compare};
pub use page::{Page, PageVariant};
pub use recording::{Amounts, EventKind, NodeRecord, PodRecord, RecordedEvent, Recording, Write};
pub use report::{BudgetSpans, Charts, ReadyPods, Report, charts, report};
pub use run::{Progress, SimulateError, simulate, simulate_with_progress};
