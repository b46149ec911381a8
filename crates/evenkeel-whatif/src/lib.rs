//! Copies of clusters, and what a change would do to one.
//!
//! [`clone`] reads the objects of a cluster, without secrets and without what changes all the time. [`simulate`] loads such
//! objects into an API server in memory. Controllers, scheduler and simulated nodes run around it in virtual time, and the
//! pods of the copy stay where they are. Then it makes a change, and records what happens. [`report()`] sums a recording up,
//! and [`compare()`] tells two reports apart; both are pure functions.

mod actions;
mod change;
pub mod clone;
mod cluster;
mod compare;
mod observe;
mod page;
mod recording;
mod report;
mod run;
mod server_thread;
mod text;
mod wire;

pub use change::{NoSuchNode, Nodes, NodesError, Outage, Scenario, parse_duration};
pub use cluster::{Cluster, ReadError};
pub use compare::{Comparison, compare};
pub use page::{Page, PageVariant};
pub use recording::{Amounts, Happened, NodeRecord, PodRecord, Recording, What, Write};
pub use report::{BudgetSpans, Charts, ReadyPods, Report, charts, report};
pub use run::{Progress, SimulateError, simulate, simulate_with_progress};
